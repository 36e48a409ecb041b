"""A stand-in device whose driver writes past the end of a table when too many backward passes come before an update.

What is real: a library in C, compiled here, with a table of 12 places for backward passes and no check.  With 12 micro-batches
or fewer in an update it never writes behind the table.  With more it does, further with each update, until it meets a page that
is not its own: SIGSEGV in native code below a backward pass.  Clearing the device's cache gives the memory behind the table
back, so that the same overrun is met sooner.  What is arranged: the device.  It is registered with torch under the name that
--rename gives (as other backends are), it computes on the CPU, and its library is told of backward passes, updates and clearings.
"""

from __future__ import annotations

from pathlib import Path

from reproducers.faults.fault import Fault, compile_library, with_compiler

SOURCE = Path(__file__).with_suffix(".c")


def _build(folder: Path, prefix: str) -> None:
    compile_library(folder, f"{prefix}_device.c", f"lib{prefix}_device.so", options=["-O1"])


FAULT = Fault(
    name="device-overrun",
    family="endings",
    cause="device_backend_fault",
    about=__doc__,
    dies="SIGSEGV",
    when="",
    platforms="Linux",
    needs="a C compiler, torch in the program",
    why_not=with_compiler,
    files=lambda prefix: {f"{prefix}_device.c": SOURCE},
    build=_build,
)
