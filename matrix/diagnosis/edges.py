"""Changes that survive with hardly any room left to the limit that the deaths met: the next run may meet it too."""

from __future__ import annotations

from collections.abc import Callable

from matrix.diagnosis import limits, memory, slow
from matrix.diagnosis.case import Case
from matrix.records import Cell, Filesystem, Observation

LITTLE = 0.1  # of the limit
ON_TIME = 0.5  # of the time limit: a machine that others use too makes a run twice as long
IN_FLIGHT = 0.25  # of shared memory: how many batches wait there differs from run to run


def narrow(case: Case, cause: str) -> Callable[[Cell], str | None]:
    """Of a cell: what its surviving runs had left, in words, when that is little; None: enough, or nobody knows."""
    looked = _looked_at(case, cause)
    if looked is None:
        return lambda cell: None
    return lambda cell: next((why for survivor in case.survivors_of(cell) if (why := looked(survivor))), None)


def _looked_at(case: Case, cause: str) -> Callable[[Observation], str | None] | None:
    """What a surviving run had left, by the limit that this cause meets; None: it is none, or nobody knows where it is."""
    if cause == limits.FULL:
        always = _always_full(case)
        return lambda survivor: next((_left(place) for place in survivor.filesystems if _key(place) not in always and _tight(place)), None)
    if case.signature == slow.SIGNATURE:
        limit_s = min((death.wall_s for death in case.deaths), default=float("inf"))
        return lambda survivor: _late(survivor.wall_s, limit_s)
    if cause in {each.name for each in memory.CAUSES}:
        level = min(filter(None, map(memory.highest, case.deaths)), default=0)
        return lambda survivor: _held(memory.highest(survivor), level)
    return _counted if cause == limits.RESOURCE else None


def _tight(place: Filesystem) -> bool:
    return place.least_free_bytes < (IN_FLIGHT if place.use == "shm" else LITTLE) * place.total_bytes


def _key(place: Filesystem) -> tuple[str, int]:
    return place.folder, place.total_bytes


def _always_full(case: Case) -> set[tuple[str, int]]:
    """File systems that are as full whatever is changed: a disk of the machine."""
    every = [{_key(place) for place in survivor.filesystems if _tight(place)} for survivor in case.survivors]
    return set.intersection(*every) if len(every) > 1 else set()


def _left(place: Filesystem) -> str:
    return f"{place.folder} had {place.least_free_bytes >> 20} MiB left of {place.total_bytes >> 20} MiB"


def _late(wall_s: float, limit_s: float) -> str | None:
    return f"it took {wall_s:.0f} of the {limit_s:.0f} s after which it is ended" if wall_s > (1 - ON_TIME) * limit_s else None


def _held(peak: int, level: int) -> str | None:
    narrow = (1 - LITTLE) * level < peak <= level
    return f"memory peaked at {peak >> 20} MiB, and at {level >> 20} MiB it is killed" if narrow else None


def _counted(survivor: Observation) -> str | None:
    trend = next((each for each in survivor.trends if each.limit and each.most > (1 - LITTLE) * each.limit), None)
    return f"{trend.most} {trend.what} were in use of {trend.limit}" if trend else None
