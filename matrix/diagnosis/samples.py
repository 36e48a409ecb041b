"""Whether native code dies at one sample of the data: where deaths come under other batch sizes and other orders.

A step has so many samples as one axis says, or two of them multiplied (a batch, and batches before an optimizer step).  Which axes those
are is told by the deaths alone: under the right ones the last batches of all deaths share a sample.  In another order that sample comes
at another place.  The search runs most such cells anyway, with the other axes drawn at random; `question` asks for what is missing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import combinations

from matrix.diagnosis import limits
from matrix.diagnosis.addresses import behind_the_end, the_fault
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import finding
from matrix.diagnosis.native import crash_signal, heap_is_damaged
from matrix.diagnosis.native_causes import NATIVE_CRASH
from matrix.records import Cell, Finding, Observation, Value, describe_cell

CORRUPT = "corrupt_input_data"
WHY = "Steps of another size: does it die at the same sample of the data?"
RATIO_OFF = 0.03  # places are known to within a batch
APART = 3  # steps between deaths of different sizes: so far they cannot be apart when they come at one step, counted somehow
NEAR = 0.1  # of the time that the steps took: moments within it are the same
FAR = 1 << 30  # bytes: no table is so large that a count leads there
Span = tuple[int, int]  # samples from the first to before the last


@dataclasses.dataclass(frozen=True, kw_only=True)
class Idea:
    """That all deaths come at one sample: `size` are the axes that multiply to the samples of a step, `order` is the axis that changes
    which sample comes when; None: there is one order."""

    size: tuple[str, ...]
    order: str | None
    places: Mapping[Value | None, Span]  # by the value of `order`
    shown: tuple[Value | None, ...]  # those at which deaths of several sizes, at several steps, share that place

    @property
    def parts(self) -> tuple[int, int]:
        """How much it takes to explain the deaths so."""
        return len(self.places), len(self.size)

    @property
    def places_shown(self) -> bool:
        """Whether it comes at a place of its own in each of two orders."""
        return any(self.apart(one, other) for one, other in combinations(self.shown, 2))

    @property
    def told(self) -> bool:
        """Whether these places are in no simple ratio: at such ones something is full, too, that is filled faster."""
        return any(self._moved(one, other) for one, other in combinations(self.shown, 2))

    def apart(self, one: Value | None, other: Value | None) -> bool:
        """Whether these are two places."""
        early, late = sorted((self.places[one], self.places[other]))
        return early[1] <= late[0]

    def _moved(self, one: Value | None, other: Value | None) -> bool:
        """Whether neither place follows from the other by a simple ratio, or by that of the axis's values."""
        early, late = sorted((self.places[one], self.places[other]))
        ratios = [1.0, 1.5, *range(2, 9)]
        if isinstance(one, int | float) and isinstance(other, int | float) and one and other:
            ratios += [abs(one / other), abs(other / one)]
        return not any(early[0] * ratio * (1 - RATIO_OFF) < late[1] and late[0] < early[1] * ratio * (1 + RATIO_OFF) for ratio in ratios)


def findings(case: Case) -> Iterator[Finding]:
    crashed = _crashes(case)
    ideas = _ideas(crashed)
    if not ideas:
        return
    idea = ideas[0]
    batch = f"if {' times '.join(idea.size)} is the size of a batch"
    if all(each.places_shown for each in ideas):
        places = " and ".join(str(idea.places[value][0]) for value in idea.shown)
        orders = " or ".join(dict.fromkeys(str(each.order) for each in ideas))
        fact = f"{batch}, deaths came at one sample, {places} by the order that {orders} makes: what it holds ends it"
        # how it crashed is the same whether the data or the caller holds what is wrong
        corrupt, native = (3.5, -3.0) if any(map(_may_count, crashed)) else (5.0, -5.0)
        if not all(each.told for each in ideas):
            corrupt, native, fact = corrupt / 2, native / 2, f"{fact}, unless it fills something up that many times faster"
    elif idea.order is None:
        fact = f"{batch}, all deaths came at one sample, about {idea.places[None][0]}, at several steps"
        by_address = any(crash_signal(death) in ("SIGSEGV", "SIGBUS") for death in crashed)  # so ends a count that leaves its table
        corrupt, native = (1.5, -0.5) if by_address else (3.0, -1.0)
    else:
        return
    yield finding(CORRUPT, "same sample", crashed[0], corrupt, fact, "stdout.log")
    for cause in NATIVE_CRASH:
        yield finding(cause, "same sample", crashed[0], native, fact, "stdout.log")


def question(case: Case, allowed: Callable[[Cell], bool]) -> Cell | None:
    """A cell whose death would show that it is one sample in another order as well: one that died there, with steps of another size."""
    crashed = _crashes(case)
    ideas = _ideas(crashed)
    if all(idea.places_shown for idea in ideas):
        return None
    ran = [run.trial.cell for run in case.unprobed]
    return next((cell for idea in ideas for cell in _cells(idea, crashed) if cell not in ran and allowed(cell)), None)


def _cells(idea: Idea, crashed: Sequence[Observation]) -> Iterator[Cell]:
    """Cells that died in an order in which it is not shown to be one sample, with other values of the axes of size, the smallest step
    first, where they would die at a step of its own."""
    values = {tuple(death.trial.cell[axis] for axis in idea.size): _size(death, idea.size) for death in crashed}
    for death in crashed if idea.order is not None else ():
        value = death.trial.cell[idea.order or ""]
        first, last = idea.places[value]
        if value in idea.shown or not all(idea.apart(value, shown) for shown in idea.shown):
            continue
        for chosen, size in sorted(values.items(), key=lambda each: each[1]):
            if min(abs(place // size - _step(death)) for place in (first, last - 1)) > APART:
                yield {**death.trial.cell, **dict(zip(idea.size, chosen, strict=True))}


# ------------------------------------------------------------------ deaths
def _crashes(case: Case) -> list[Observation]:
    """Of native code; []: they do not come at one step of their cell, or are as well explained by what is full or by a time."""
    crashed = [death for death in case.deaths if crash_signal(death)]
    cells: dict[str, list[int]] = {}
    for death in crashed:
        cells.setdefault(describe_cell(death.trial.cell), []).append(_step(death))
    steady = all(len(set(steps)) == 1 for steps in cells.values()) and any(len(steps) > 1 for steps in cells.values())
    return crashed if steady and not any(map(_fills, crashed)) and not _one_time(crashed) else []


def _fills(death: Observation) -> bool:
    """Whether it died as what fills up does: at a limit, or where something wrote on into what is not its own."""
    fault = the_fault(death)
    wrote = fault is not None and (fault.access == "write" or (fault.access is None and behind_the_end(fault)))
    ran_on = fault is not None and wrote and abs(fault.index_bytes or 0) < FAR
    at_limit = any(trend.limit and trend.most >= limits.NEAR * trend.limit for trend in death.trends)
    return ran_on or at_limit or heap_is_damaged(death)


def _may_count(death: Observation) -> bool:
    """Whether a count could lead there as well: what checks itself may check how full something is, and what lies just behind something
    is where a table ends."""
    fault = the_fault(death)
    just_behind = fault is not None and (behind_the_end(fault) or fault.before not in ("nothing", ""))
    return crash_signal(death) == "SIGABRT" or just_behind


def _one_time(crashed: Sequence[Observation]) -> bool:
    """Whether all deaths may have come at one moment, since the start or since the first step: between the last step and the next."""
    windows = [window for death in crashed if (window := _window(death))]
    off = NEAR * max((late - first for first, _, late in windows), default=0.0)
    by_start = [(early, late) for _, early, late in windows]
    by_step = [(early - first, late - first) for first, early, late in windows]
    return any(max(early for early, _ in each) <= min(late for _, late in each) + off for each in (by_start, by_step) if each)


def _window(death: Observation) -> tuple[float, float, float] | None:
    """The time of the first step, and the earliest and the latest time of death, in seconds since the start; None: no steps."""
    seen = death.progress
    if seen.first_step_s is None or seen.last_step_s is None or seen.longest_gap_s is None:
        return None
    return seen.first_step_s, seen.last_step_s, seen.last_step_s + seen.longest_gap_s


def _step(death: Observation) -> int:
    return -1 if death.progress.last_step is None else death.progress.last_step


# ------------------------------------------------------------------ places
def _ideas(crashed: Sequence[Observation]) -> list[Idea]:
    """Those that fit all deaths and that some of them show, with the fewest places and axes: several only where axes changed together."""
    cells = [death.trial.cell for death in crashed]
    varied = [axis for axis in (cells[0] if cells else ()) if len({cell[axis] for cell in cells}) > 1]
    counts = [axis for axis in varied if all(type(value := cell[axis]) is int and value > 0 for cell in cells)]
    sizes = [*((axis,) for axis in counts), *combinations(counts, 2)]
    found = (_idea(crashed, size, order) for order in (None, *varied) for size in sizes if order not in size)
    fitting = [idea for idea in found if idea and idea.shown]
    simplest = min((idea.parts for idea in fitting), default=None)
    return [idea for idea in fitting if idea.parts == simplest]


def _idea(crashed: Sequence[Observation], size: tuple[str, ...], order: str | None) -> Idea | None:
    groups: dict[Value | None, list[Observation]] = {}
    for death in crashed:
        groups.setdefault(death.trial.cell[order] if order else None, []).append(death)
    places = {}
    for value, deaths in groups.items():
        if (place := _shared(deaths, size)) is None:
            return None
        places[value] = place
    shown = tuple(value for value, deaths in groups.items() if _several(deaths, size))
    return Idea(size=size, order=order, places=places, shown=shown)


def _several(deaths: Sequence[Observation], size: tuple[str, ...]) -> bool:
    """Whether deaths of different sizes came so far apart that it was not at one step."""
    return any(abs(_step(one) - _step(other)) >= APART and _size(one, size) != _size(other, size) for one, other in combinations(deaths, 2))


def _shared(deaths: Sequence[Observation], size: tuple[str, ...]) -> Span | None:
    """The samples that their last batches share.  Steps may be counted from 0 or from 1."""
    for following in (1, 0):
        steps = [(max(_step(death) + following, 0), _size(death, size)) for death in deaths]
        start, end = max(step * samples for step, samples in steps), min((step + 1) * samples for step, samples in steps)
        if start < end:
            return start, end
    return None


def _size(death: Observation, size: tuple[str, ...]) -> int:
    return math.prod(int(death.trial.cell[axis]) for axis in size)
