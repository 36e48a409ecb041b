"""A core file for the moment of death: which libraries were mapped, and where it was; read, then removed.

The kernel writes a core's notes first, so a core cut off after a few MiB still lists every mapped file.  Nothing
else sees a library that was loaded a millisecond before the abort.  Stacks need the whole core, which is taken of few
deaths only.  The pattern is the machine's: it is read, never changed, and a file of the user's is never overwritten.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
from pathlib import Path

from matrix.evidence.core_notes import pid_of
from matrix.kernel_text import kernel_text

PATTERN = Path("/proc/sys/kernel/core_pattern")
USES_PID = Path("/proc/sys/kernel/core_uses_pid")


SIGNALS = ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGQUIT", "SIGSYS", "SIGTRAP", "SIGXCPU", "SIGXFSZ")  # those that leave one
NOTES_BYTES = 9 << 20  # always enough: 4 MiB of headers for all mappings that are allowed, a list of files of 4 MiB, and the threads
LEAST_BYTES = 5 << 20  # enough for the notes of a process with 10,000 mappings
FULL_BYTES = 8 << 30
DISK_SHARE = 0.25  # of what is free on the disk; the rest is the user's


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorePlan:
    """Where a core of a child will land; `why_not` is set when none is asked for."""

    folder: Path
    glob: str = ""  # with {pid} for the pid
    relative: bool = False  # it lands in the folder in which the process is when it dies
    cap_bytes: int = 0
    full: bool = False  # the cap is meant to hold all of it
    why_not: str = ""


def plan(cwd: Path, *, full: bool = False, limit_bytes: int | None = None) -> CorePlan:
    """What can be had for a child that starts in `cwd`: the notes, or as much as fits below `limit_bytes` and on the disk."""
    found = _place(cwd)
    if found.why_not:
        return found
    if limit_bytes is not None and limit_bytes < LEAST_BYTES:
        return dataclasses.replace(found, why_not=f"limits.core is {limit_bytes} bytes")
    cap = min(FULL_BYTES, int(shutil.disk_usage(found.folder).free * DISK_SHARE), limit_bytes or FULL_BYTES)
    if cap < LEAST_BYTES:
        return dataclasses.replace(found, why_not=f"the disk of {found.folder} is nearly full")
    return dataclasses.replace(found, cap_bytes=cap if full or limit_bytes else min(cap, NOTES_BYTES), full=full)


def _place(cwd: Path) -> CorePlan:
    try:
        pattern = kernel_text(PATTERN).strip()
    except OSError as problem:
        return CorePlan(folder=cwd, why_not=f"{PATTERN}: {problem.strerror}")
    if pattern.startswith("|"):
        return CorePlan(folder=cwd, why_not=f"the kernel hands cores to a program ({pattern.split()[0]})")
    if "%p" not in pattern and _text(USES_PID) == "1":
        pattern += ".%p"
    where = Path(pattern)
    folder = where.parent if where.is_absolute() else cwd / where.parent
    if not os.access(folder, os.W_OK):
        return CorePlan(folder=folder, why_not=f"{folder} is not writable")
    if "%p" not in pattern and (folder / where.name).exists():
        return CorePlan(folder=folder, why_not=f"a file {where.name} is in the working folder and would be overwritten")
    name = re.sub(r"%[a-oq-zA-Z]", "*", where.name).replace("%p", "{pid}")
    return CorePlan(folder=folder, glob=name, relative=not where.is_absolute())


def take(core: CorePlan, pid: int, into: Path, *, cwd: Path | None = None) -> Path | None:
    """Move the core of process `pid` to `into`; None when there is none (or it is another process's).

    `cwd` is where the process was when it was last seen: a program that changed its folder leaves its core there."""
    if core.why_not:
        return None
    folders = [core.folder, *([cwd] if cwd and core.relative and cwd != core.folder else [])]
    for folder in folders:
        for found in folder.glob(core.glob.replace("{pid}", str(pid))):
            with contextlib.suppress(OSError, ValueError):
                if pid_of(found) == pid:
                    return Path(shutil.move(found, into))
    return None


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return kernel_text(path).strip()
    return ""
