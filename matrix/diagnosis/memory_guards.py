"""A process of the program that ends it when its memory passes a level: no kernel counts that, and no limit of ours is near.

Schedulers and frameworks bring such monitors.  What they do is told by the level: the same in every death, after however many steps
and however long, and no level that was held before.
"""

from __future__ import annotations

from collections.abc import Callable

from matrix.diagnosis import sigkill
from matrix.diagnosis.case import Case
from matrix.diagnosis.judge import first_signal
from matrix.diagnosis.limits import DIFFERENT, SAME_TIME
from matrix.diagnosis.memory_form import rises
from matrix.records import Observation

ENOUGH = 3  # deaths
SAME_LEVEL = 1.15  # ratio of the highest peak to the lowest: a monitor looks now and then
GREW = 1.5  # times what it held at its first step: a level that is always there tells nothing


def ended(case: Case, highest: Callable[[Observation], int]) -> list[Observation]:
    """The deaths, if a process of their own ended them all at one level of memory that no survivor passes which that process watches."""
    if not case.deaths or not all(map(_by_its_own, case.deaths)):
        return []
    peaks, walls = sorted(map(highest, case.deaths)), sorted(death.wall_s for death in case.deaths)
    steps = sorted(death.progress.last_step or 0 for death in case.deaths)
    if len(peaks) < ENOUGH or not all(_grew(death, highest(death)) for death in case.deaths):
        return []
    if not peaks[0] or peaks[-1] > SAME_LEVEL * peaks[0] or steps[-1] < DIFFERENT * max(1, steps[0]):
        return []
    if walls[-1] - walls[0] <= SAME_TIME * walls[len(walls) // 2]:  # of what grows with the time, a clock meets one level as well
        return []
    higher = [survivor for survivor in case.survivors if highest(survivor) > peaks[-1]]
    return case.deaths if _unwatched(case, higher) else []


def left_alone(case: Case, highest: Callable[[Observation], int], level: int) -> str | None:
    """Say which change of one axis alone takes the monitor away, so that memory passes the level and the program lives.

    Then the memory that the program takes does no harm by itself: the monitor's rule ends it."""
    for axis, survivor in case.beside:
        if highest(survivor) > level:
            change = f"{axis}={survivor.trial.cell[axis]}"
            return f"with {change} alone memory passes that level, nothing ends it, and it survives (attempt {survivor.attempt})"
    return None


def _by_its_own(death: Observation) -> bool:
    sender = sigkill.by_others(death, first_signal(death) or "")
    return sender is not None and sender.inside


def _grew(death: Observation, peak: int) -> bool:
    first = death.memory.first_tree_rss_bytes
    return first is not None and peak >= GREW * first and rises(death)


def _unwatched(case: Case, survivors: list[Observation]) -> bool:
    """Whether they have a setting in common with which nothing died: the one without the monitor."""
    if not survivors:
        return True
    return any(
        all(survivor.trial.cell[axis] == value for survivor in survivors) and all(death.trial.cell[axis] != value for death in case.deaths)
        for axis, value in survivors[0].trial.cell.items()
    )
