"""Limits of a run and of the matrix: from what a log showed, else such that nothing is taken down and nothing runs for ever."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import psutil

from matrix.evidence.own_limits import INFINITE, KINDS, inherited_limits, limits_for_specification
from matrix.kernel_text import kernel_text
from matrix.propose.draft import Draft
from matrix.propose.facts import Facts

KIB, MIB = 1 << 10, 1 << 20
KEPT_WHY = "as the shell had it that ran init (ulimit)"
FILES_WHY = "open files of a process where init ran; without it, those of the shell that runs the matrix"
SHARE = 0.8  # of the memory there is: what takes more is ended before the machine is in trouble
LEAST_WALL_S, MOST_WALL_S = 600, 4 * 3600
UNKNOWN_WALL = "20m"


def ends(draft: Draft) -> list[str]:
    memory, why = _memory(draft.facts)
    wall, why_wall = _wall(draft.facts)
    startup = in_words(max(300.0, 5 * (draft.facts.startup_s if draft.facts and draft.facts.startup_s else 0)))
    lines = [
        "search: {max_runs: 40, max_wall: 2h}",
        "limits:",
        f"  wall: {wall}  # of one run; {why_wall}",
        f"  startup: {startup}  # to the first step",
        "  idle: 60s  # without output, progress and work; never shorter than ten times the longest gap of a surviving run",
        f"  memory: {memory}  # {why}",
    ]
    lines += _inherited()
    if draft.writes_in_place:
        lines.append("executor: {jobs: 1}  # runs side by side would write to the same place")
    elif not draft.has_own_folder:
        lines.append("executor: {jobs: 1}  # no flag for its output folder was found: runs side by side would write to the same files")
    elif not (draft.facts and draft.facts.memory_limit_bytes):
        lines.append("executor: {jobs: 1}  # each run may take nearly all memory; with a limit of its own, write auto")
    return lines


def _inherited() -> list[str]:
    """Limits that the shell gives the job and that are out of the ordinary: a run from another shell has to have them too."""
    kept = limits_for_specification()
    lines = [f"  {key}: {limit_text(key, value)}  # {KEPT_WHY}" for key, value in kept.items()]
    files = inherited_limits().get("RLIMIT_NOFILE", (INFINITE, INFINITE))[0]
    if files != INFINITE and "nofile" not in kept:
        lines.append(f"  # nofile: {files}  # {FILES_WHY}")
    return lines


def limit_text(key: str, value: int) -> str:
    """Return a limit as the specification writes it: ulimit counts sizes in KiB."""
    kind = next(kind for kind in KINDS.values() if kind.key == key)
    if kind.in_bytes:
        return f"{value // MIB}MiB" if value % MIB == 0 else f"{value // KIB}KiB"
    return f"{value}s" if key == "cpu_time" else str(value)


def _memory(facts: Facts | None) -> tuple[str, str]:
    """A limit that keeps the machine alive; the one that the dead run had, where that is known."""
    if facts and facts.memory_limit_bytes:
        return _size(facts.memory_limit_bytes), "as the run that was seen had it"
    least, whose = memory_here()
    return _size(int(least * SHARE)), f"{SHARE:.0%} of {whose}, so that a run cannot take it down; set it to what the job has where it dies"


def memory_here(mounted: Path = Path("/sys/fs/cgroup"), groups: Path = Path("/proc/self/cgroup")) -> tuple[int, str]:
    """Bytes that there are for programs, and whose they are: the machine's, or those of the group that this process is in."""
    total = psutil.virtual_memory().total
    limits = [limit for file in _limit_files(mounted, groups) if (limit := _whole_number(file)) and limit < total]
    return (min(limits), "what the container or job that init ran in has") if limits else (total, "this machine's memory")


def _limit_files(mounted: Path, groups: Path) -> Iterator[Path]:
    """Of the group itself and those around it; a container sees its own as the outermost."""
    try:
        lines = kernel_text(groups).splitlines()
    except OSError:
        return  # no Linux
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        place, name = (mounted / controllers, "memory.limit_in_bytes") if controllers else (mounted, "memory.max")
        inner = place / path.strip("/")
        yield from (folder / name for folder in (inner, *inner.parents) if folder.is_relative_to(place))


def _whole_number(file: Path) -> int | None:
    try:
        text = kernel_text(file).strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None


def _wall(facts: Facts | None) -> tuple[str, str]:
    if facts and facts.seconds:
        return in_words(min(MOST_WALL_S, max(LEAST_WALL_S, 3 * facts.seconds))), f"the one that was seen took {in_words(facts.seconds)}"
    return UNKNOWN_WALL, "a run that it ends counts as neither dead nor alive, so give a survivor the time it needs"


def _size(size: int) -> str:
    return f"{max(1, size // MIB)}MiB"


def in_words(seconds: float) -> str:
    whole = max(1, math.ceil(seconds))
    return f"{math.ceil(whole / 60)}m" if whole >= 300 else f"{whole}s"
