"""At which place of the data native code dies, told by the deaths alone: under other batch sizes, in other orders, with other seeds.

A step has so many samples as one axis says, or two of them multiplied (a batch, and batches before an optimizer step).  Which axes those
are is told by the deaths: under the right ones the last batches of all deaths share a sample.  In another order that sample comes at
another place.  A worker that loads ahead dies before the step of its batch is made: its sample is up to that many batches later.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, permutations

from matrix.diagnosis.case import Case
from matrix.diagnosis.judge import worker_that_began
from matrix.diagnosis.memory_holders import worker_count
from matrix.records import Cell, Observation, Value, describe_cell

RATIO_OFF = 0.03  # places are known to within a batch
APART = 3  # steps between deaths of different sizes: so far they cannot be apart when they come at one step, counted somehow
SCATTERED = 1.5  # times as far: what fills up in lots of random size is full at about the same place under every seed
STAYS = 3  # values of the seed: two places that are drawn at random are now and then the same, to within a batch
COINCIDENCES = 3  # cells more than places that must agree: each of them does by chance in one of ten cases or so
PAIRS_SHOWN = 3  # pairs of places apart, from which that two axes always make the order together is no chance: there are many such two
PREFETCH = 2  # batches that each worker of torch's DataLoader has in hand by default; with more of them nothing is told
Key = tuple[Value, ...]  # what decides which sample comes when, in one cell
Span = tuple[int, int]  # samples from the first to before the last


@dataclasses.dataclass(frozen=True, kw_only=True)
class Order:
    """What changes which sample comes when: nothing, an axis, or two of which the second does nothing where the first is `plain`; where
    nothing is, both always do, as how it is shuffled and how much there is of it."""

    axis: str | None = None
    seed: str | None = None
    plain: Value | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(axis for axis in (self.axis, self.seed) if axis is not None)

    @property
    def always_both(self) -> bool:
        return self.seed is not None and self.plain is None

    def key(self, cell: Cell) -> Key:
        if self.axis is None:
            return ()
        value = cell[self.axis]
        return (value,) if self.seed is None or value == self.plain else (value, cell[self.seed])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Idea:
    """That all deaths come at one sample: `size` are the axes that multiply to the samples of a step."""

    size: tuple[str, ...]
    order: Order
    places: Mapping[Key, Span]
    shown: tuple[Key, ...]  # those at which deaths of several sizes, at several steps, share that place
    agree: int = 0  # cells that died, less the places: so many say what another one has said before
    repeats: bool = False  # whether deaths that differ in nothing that matters come at one step: they repeat each other, as those of a cell
    stayed: bool = False  # whether it stayed at its place under several values of `order.seed` where that changes no order

    @property
    def parts(self) -> tuple[int, int, int]:
        """How much it takes to explain the deaths so."""
        return len(self.places), len(self.size), len(self.order.axes)

    @property
    def places_shown(self) -> bool:
        """Whether it comes at a place of its own in each of two orders, of three where two axes always make them."""
        return sum(self.apart(one, other) for one, other in combinations(self.shown, 2)) >= (PAIRS_SHOWN if self.order.always_both else 1)

    @property
    def told(self) -> bool:
        """Whether these places are in no simple ratio: at such ones something is full, too, that is filled faster."""
        return any(self._moved(one, other) for one, other in combinations(self.shown, 2))

    @property
    def scattered(self) -> bool:
        """Whether it comes far later, or far earlier, under one value of the seed than under a smaller one and under a larger one: what
        fills up the faster the larger a number is, or the slower, never does so, and in lots of random size not so far."""
        groups: dict[Value, list[tuple[float, Span]]] = {}
        for key, place in self.places.items():
            if len(key) == 2 and is_number(key[1]):
                groups.setdefault(key[0], []).append((float(key[1]), place))
        triples = [three for group in groups.values() for three in combinations([place for _, place in sorted(group)], 3)]
        return any(_peaks(*three, later=_far_later) or _peaks(*three, later=_far_earlier) for three in triples)

    @property
    def of_a_record(self) -> bool:
        """Whether it followed the sample and not the seed: what is drawn at random, and what fills up, does not stay where the seed
        changes and the order does not, and move far to and fro where the seed changes the order."""
        known = self.agree >= COINCIDENCES and self.places_shown and self.told
        return known and self.scattered and self.stayed and (self.order.plain,) in self.shown and self.seeds_shown

    @property
    def seeds_shown(self) -> bool:
        """Whether deaths of several sizes share a place where the seed changes the order."""
        return any(len(key) == 2 for key in self.shown)

    def apart(self, one: Key, other: Key) -> bool:
        """Whether these are two places."""
        early, late = sorted((self.places[one], self.places[other]))
        return early[1] <= late[0]

    def _moved(self, one: Key, other: Key) -> bool:
        """Whether neither place follows from the other by a simple ratio, or by that of an axis's values."""
        early, late = sorted((self.places[one], self.places[other]))
        ratios = [1.0, 1.5, *range(2, 9)]
        for mine, theirs in zip(one, other, strict=False):
            if isinstance(mine, int | float) and isinstance(theirs, int | float) and mine and theirs:
                ratios += [abs(mine / theirs), abs(theirs / mine)]
        return not any(early[0] * ratio * (1 - RATIO_OFF) < late[1] and late[0] < early[1] * ratio * (1 + RATIO_OFF) for ratio in ratios)


def is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _peaks(one: Span, middle: Span, other: Span, *, later: Callable[[Span, Span], bool]) -> bool:
    return later(middle, one) and later(middle, other)


def _far_later(one: Span, other: Span) -> bool:
    return one[0] >= SCATTERED * other[1]


def _far_earlier(one: Span, other: Span) -> bool:
    return _far_later(other, one)


# ------------------------------------------------------------------ deaths
def step(death: Observation) -> int:
    """The last one that it told; -1: none."""
    return -1 if death.progress.last_step is None else death.progress.last_step


def ahead(death: Observation) -> int:
    """Batches that the process that died may have been ahead of the steps that the main one told."""
    began = worker_that_began(death)
    return PREFETCH * worker_count(death) if began is not None and began.role == "worker" else 0


def steady(deaths: Iterable[Observation]) -> bool:
    """Whether they come at one step of their cell, as far as cells have died more than once."""
    return all(max(map(step, each)) <= min(step(death) + ahead(death) for death in each) for each in _by_cell(deaths))


def repeated(deaths: Iterable[Observation]) -> bool:
    """Whether a cell has died twice: else it is not known that its deaths come at one step."""
    return any(len(each) > 1 for each in _by_cell(deaths))


def _by_cell(deaths: Iterable[Observation]) -> list[list[Observation]]:
    cells: dict[str, list[Observation]] = {}
    for death in deaths:
        cells.setdefault(describe_cell(death.trial.cell), []).append(death)
    return list(cells.values())


def size_of(cell: Cell, size: tuple[str, ...]) -> int:
    return math.prod(int(cell[axis]) for axis in size)


# ------------------------------------------------------------------ ideas
def ideas(case: Case, crashed: Sequence[Observation]) -> list[Idea]:
    """Those that fit all deaths and that some of them show, with the fewest places and axes: several only where axes changed together."""
    cells = [death.trial.cell for death in crashed]
    varied = [axis for axis in (cells[0] if cells else ()) if len({cell[axis] for cell in cells}) > 1]
    counts = [axis for axis in varied if all(type(value := cell[axis]) is int and value > 0 for cell in cells)]
    sizes = [*((axis,) for axis in counts), *combinations(counts, 2)]
    plain = [Order(), *(Order(axis=axis) for axis in varied)]
    both = (Order(axis=axis, seed=other) for axis, other in combinations(varied, 2))
    stages = (plain, _two(cells, varied), both)  # the later ones explain more by chance
    return next((found for orders in stages if (found := _fitting(case, crashed, sizes, orders))), [])


def _two(cells: Sequence[Cell], varied: Sequence[str]) -> Iterator[Order]:
    for axis, seed in permutations(varied, 2):
        for value in dict.fromkeys(cell[axis] for cell in cells):
            yield Order(axis=axis, seed=seed, plain=value)


def _fitting(case: Case, crashed: Sequence[Observation], sizes: Sequence[tuple[str, ...]], orders: Iterable[Order]) -> list[Idea]:
    found = (_idea(crashed, size, order) for order in orders for size in sizes if not set(order.axes) & set(size))
    shown = [idea for idea in found if idea and idea.shown and idea.agree >= len(idea.order.axes) + idea.order.always_both]
    fitting = [idea for idea in shown if not _went_past(case, crashed, idea)]
    simplest = min((idea.parts for idea in fitting), default=None)
    return [idea for idea in fitting if idea.parts == simplest]


def _idea(crashed: Sequence[Observation], size: tuple[str, ...], order: Order) -> Idea | None:
    groups: dict[Key, list[Observation]] = {}
    for death in crashed:
        groups.setdefault(order.key(death.trial.cell), []).append(death)
    places = {}
    for key, deaths in groups.items():
        if (place := _shared(deaths, size)) is None:
            return None
        places[key] = place
    shown = tuple(key for key, deaths in groups.items() if _several(deaths, size))
    plain = [death for key, deaths in groups.items() if len(key) == 1 for death in deaths]
    stayed = order.seed is not None and _several_seeds(plain, order.seed)
    agree = len({describe_cell(death.trial.cell) for death in crashed}) - len(places)
    repeats = any(_alike_twice(deaths, size) for deaths in groups.values())
    return Idea(size=size, order=order, places=places, shown=shown, agree=agree, repeats=repeats, stayed=stayed)


def _several_seeds(deaths: Sequence[Observation], seed: str) -> bool:
    """Whether deaths with enough values of it say where they came: every place lies in one of the first batches if they are large."""
    return len({death.trial.cell[seed] for death in deaths if step(death) >= APART + ahead(death)}) >= STAYS


def _alike_twice(deaths: Sequence[Observation], size: tuple[str, ...]) -> bool:
    """Whether two of these have the same axes of size: as they share a sample, they came at one step."""
    return len({tuple(death.trial.cell[axis] for axis in size) for death in deaths}) < len(deaths)


def _several(deaths: Sequence[Observation], size: tuple[str, ...]) -> bool:
    """Whether deaths of different sizes came so far apart that it was not at one step."""
    return any(
        abs(step(one) - step(other)) >= APART + max(ahead(one), ahead(other))
        and size_of(one.trial.cell, size) != size_of(other.trial.cell, size)
        for one, other in combinations(deaths, 2)
    )


def _shared(deaths: Sequence[Observation], size: tuple[str, ...]) -> Span | None:
    """The samples that their last batches share.  Steps may be counted from 0 or from 1."""
    for following in (1, 0):
        steps = [(max(step(death) + following, 0), size_of(death.trial.cell, size), ahead(death)) for death in deaths]
        start = max(at * samples for at, samples, _ in steps)
        end = min((at + 1 + more) * samples for at, samples, more in steps)
        if start < end:
            return start, end
    return None


def _went_past(case: Case, crashed: Sequence[Observation], idea: Idea) -> bool:
    """Whether a run that differs from a death in its size of a batch alone, and maybe its order, lived through that sample: then it is
    not what the sample holds alone, but how much is taken at one time."""
    free = {*idea.size, *idea.order.axes}
    ran = [run for run in case.survivors if step(run) >= 0 and idea.order.axis in (None, *run.trial.cell)]
    return any(
        _alike(run.trial.cell, death.trial.cell, free) and place is not None and step(run) * size_of(run.trial.cell, idea.size) >= place[1]
        for run in ran
        if (place := idea.places.get(idea.order.key(run.trial.cell)))
        for death in crashed
    )


def _alike(one: Cell, other: Cell, free: set[str]) -> bool:
    return all(value == other.get(axis) for axis, value in one.items() if axis not in free)
