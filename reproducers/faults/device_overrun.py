"""A stand-in device whose driver writes past the end of a table when too many backward passes come before an update.

What is real: a library in C, compiled here, with a table of 12 places for backward passes and no check.  With 12 micro-batches
or fewer in an update it never writes behind the table.  With more it does, further with each update, until it meets a page that
is not its own: SIGSEGV in native code below a backward pass.  Clearing the device's cache gives the memory behind the table
back, so that the same overrun is met sooner.  What is arranged: the device.  It is registered with torch under the name that
--rename gives (as other backends are), it computes on the CPU, and its library is told of backward passes, updates and clearings.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from reproducers.faults.fault import CannotPlant, Fault

SOURCE = Path(__file__).with_suffix(".c")


def _compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


def _why_not() -> str | None:
    if not sys.platform.startswith("linux"):
        return f"pages of 4 KiB are taken for granted, as on Linux, and this is {sys.platform}"
    return None if _compiler() else "no C compiler was found (cc or gcc); on Debian: apt-get install gcc"


def _build(folder: Path, prefix: str) -> None:
    argv = [_compiler() or "cc", "-shared", "-fPIC", "-g", "-O1", "-o", f"lib{prefix}_device.so", f"{prefix}_device.c"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        raise CannotPlant(f"{argv[0]} did not compile the device's library: {done.stderr.strip()[-500:]}")


FAULT = Fault(
    name="device-overrun",
    about=__doc__,
    dies="SIGSEGV",
    when="",
    platforms="Linux",
    needs="a C compiler",
    why_not=_why_not,
    files=lambda prefix: {f"{prefix}_device.c": SOURCE},
    build=_build,
)
