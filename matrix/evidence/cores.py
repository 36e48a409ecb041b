"""A small core file for the moment of death: which libraries were mapped, read from its notes, then removed.

The kernel writes a core's notes first, so a core cut off after a few MiB still lists every mapped file.  Nothing
else sees a library that was loaded a millisecond before the abort.  The pattern is the machine's: it is read, never
changed, and a file of the user's is never overwritten.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
from pathlib import Path

from matrix.evidence.core_notes import read_core

PATTERN = Path("/proc/sys/kernel/core_pattern")
USES_PID = Path("/proc/sys/kernel/core_uses_pid")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorePlan:
    """Where a core of a child will land; `why_not` is set when none is asked for."""

    folder: Path
    glob: str = ""  # with {pid} for the pid
    why_not: str = ""


def plan(cwd: Path) -> CorePlan:
    """What can be had for a child that starts in `cwd`."""
    try:
        pattern = PATTERN.read_text().strip()
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
    return CorePlan(folder=folder, glob=re.sub(r"%[a-oq-zA-Z]", "*", where.name).replace("%p", "{pid}"))


def take(core: CorePlan, pid: int, into: Path) -> Path | None:
    """Move the core of process `pid` to `into`; None when there is none (or it is another process's)."""
    if core.why_not:
        return None
    for found in core.folder.glob(core.glob.replace("{pid}", str(pid))):
        with contextlib.suppress(OSError, ValueError):
            notes = read_core(found)
            if notes and notes.pid == pid:
                return Path(shutil.move(found, into))
    return None


def _text(path: Path) -> str:
    with contextlib.suppress(OSError):
        return path.read_text().strip()
    return ""
