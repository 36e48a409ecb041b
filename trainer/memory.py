"""What this process and its children hold, as the kernel counts it."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import psutil

MB = 1e6


@dataclasses.dataclass(frozen=True, kw_only=True)
class Held:
    total_bytes: int  # PSS where there is one (Linux): a page that several processes share counts once; else RSS
    anonymous_bytes: int | None  # of it, what belongs to no file; None: not known here
    processes: int = 1


def held(pid: int) -> Held:
    """Of one process.  Raises ProcessLookupError when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text(errors="replace").splitlines()[1:]
        sizes = {name: int(value.split()[0]) * 1024 for name, _, value in (line.partition(":") for line in lines)}
        return Held(total_bytes=sizes["Pss"], anonymous_bytes=sizes["Pss_Anon"])
    except (OSError, KeyError):  # no Linux, an old kernel, or it is gone
        pass
    try:
        return Held(total_bytes=psutil.Process(pid).memory_info().rss, anonymous_bytes=None)
    except psutil.Error as error:
        raise ProcessLookupError(pid) from error


def held_by_tree(pid: int | None = None) -> Held:
    """Of a process and everything that it started; None: this process."""
    total, anonymous, count = 0, 0, 0
    for each in [pid or os.getpid(), *_descendants(pid)]:
        try:
            one = held(each)
        except ProcessLookupError:
            continue
        total, anonymous, count = total + one.total_bytes, anonymous + (one.anonymous_bytes or 0), count + 1
    return Held(total_bytes=total, anonymous_bytes=anonymous or None, processes=count)


def _descendants(pid: int | None) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.Error:
        return []


def resident_bytes() -> int | None:
    """RSS of this process; None: not told here."""
    return _status("VmRSS:")


def high_water_bytes() -> int | None:
    """Most RSS that this process ever had; None: not told here."""
    return _status("VmHWM:")


def _status(name: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text(errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(name)), None)


def percent_in_use() -> float:
    """Of the machine's memory."""
    return float(psutil.virtual_memory().percent)
