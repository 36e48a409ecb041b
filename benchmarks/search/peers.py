"""Other ways to choose the runs and to read the answers, on the same programs as the search.

Those that repeat runs are told the crash rate, unless their name says otherwise, and choose the repeats so that all of their
survivals together are wrong with a chance of at most ERROR.  A death ends the repeats of its cell.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence

from benchmarks.search.players import Played
from benchmarks.search.worlds import MAIN, Truth, World, holds
from matrix.records import Cell, Value
from matrix.spec.axes import Axis

ERROR = 0.05
DDMIN_TESTS = 12  # surviving tests that one minimisation and its sweep are planned for
MOST = 2000  # answers after which bisection gives up


class Runs:
    """Runs of one program, counted; `dies` repeats a cell until it dies or has survived all the repeats."""

    def __init__(self, world: World, seed: int, repeats: int) -> None:
        self.world, self.rng, self.repeats, self.count = world, random.Random(f"run {seed}"), repeats, 0

    def once(self, cell: Cell) -> bool:
        self.count += 1
        return self.world.run(cell, self.rng).signature == MAIN

    def dies(self, cell: Cell) -> bool:
        return any(self.once(cell) for _ in range(self.repeats))

    def sweep(self, axes: Sequence[Axis]) -> Truth:
        """The axes of which a single change survives, with the values that still die."""
        bad, found = self.world.spec.known_bad, Truth()
        for axis in axes:
            dying = [value for value in axis.values if value == bad[axis.name] or self.dies({**bad, axis.name: value})]
            if len(dying) < len(axis.values):
                found[axis.name] = dying
        return found


def repeats_for(rate: float, survivals: int) -> int:
    return 1 if rate >= 1 else math.ceil(math.log(ERROR / survivals) / math.log(1 - rate))


def one_at_a_time(world: World, seed: int, repeats: int | None = None) -> Played:
    axes = world.spec.axes
    runs = Runs(world, seed, repeats or repeats_for(world.rate, sum(len(axis.values) - 1 for axis in axes)))
    runs.dies(world.spec.known_bad)
    return _played(runs, runs.sweep(axes))


def one_at_a_time_thrice(world: World, seed: int) -> Played:
    """Three repeats, as people do it, whatever the crash rate."""
    return one_at_a_time(world, seed, repeats=3)


def ddmin(world: World, seed: int) -> Played:
    """Delta debugging (Zeller and Hildebrandt 2002) of the difference to a cell that survives, then a sweep of the axes that are left.

    The surviving cell is given: every axis changed, drawn at random.  Our own implementation: picire 21.8 does not start with
    today's setuptools."""
    bad, draw = world.spec.known_bad, random.Random(f"good {seed}")
    runs = Runs(world, seed, repeats_for(world.rate, DDMIN_TESTS))
    good = bad
    while world.dies(good):
        good = {axis.name: draw.choice([value for value in axis.values if value != bad[axis.name]]) for axis in world.spec.axes}
    kept = minimise(list(bad), lambda names: runs.dies({**good, **{name: bad[name] for name in names}}))
    return _played(runs, runs.sweep([axis for axis in world.spec.axes if axis.name in kept]))


def minimise(items: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """A part of `items` that fails and of which no element can be left out; no part is tested twice."""
    known: dict[tuple[str, ...], bool] = {}

    def test(part: list[str]) -> bool:
        if tuple(part) not in known:
            known[tuple(part)] = fails(part)
        return known[tuple(part)]

    pieces = 2
    while len(items) > 1:
        parts = [items[len(items) * k // pieces : len(items) * (k + 1) // pieces] for k in range(pieces)]
        rests = [[item for item in items if item not in part] for part in parts]
        if (smaller := next((part for part in parts if test(part)), None)) is not None:
            items, pieces = smaller, 2
        elif (rest := next((rest for rest in rests if test(rest)), None)) is not None:
            items, pieces = rest, max(pieces - 1, 2)
        elif pieces < len(items):
            pieces = min(len(items), 2 * pieces)
        else:
            break
    return items


def pairwise_ochiai(world: World, seed: int) -> Played:
    """A covering array of all pairs of values (allpairspy), each row repeated, and the crash set of one or two conditions that
    agrees best by Ochiai's coefficient; of equals the one with fewer conditions, then by chance."""
    from allpairspy import AllPairs

    axes, bad = world.spec.axes, world.spec.known_bad
    rows = [bad, *(dict(zip(bad, row, strict=True)) for row in AllPairs([[*axis.values] for axis in axes]))]
    runs = Runs(world, seed, repeats_for(world.rate, len(rows)))
    died = {number for number, row in enumerate(rows) if runs.dies(row)}
    draw = random.Random(f"ties {seed}")
    best: tuple[float, int, float] = (-1.0, 0, 0.0)
    answer: Truth = {}
    for truth in _crash_sets(axes, bad):
        inside = {number for number, row in enumerate(rows) if holds(truth, row)}
        score = len(inside & died) / math.sqrt(len(inside) * len(died)) if died else 0.0
        if (rank := (score, -len(truth), draw.random())) > best:
            best, answer = rank, truth
    return _played(runs, answer)


def _crash_sets(axes: Sequence[Axis], bad: Cell) -> Iterator[Truth]:
    conditions = [[(axis.name, values) for values in _conditions(axis, bad[axis.name])] for axis in axes]
    yield from ({name: values} for each in conditions for name, values in each)
    for one, two in itertools.combinations(conditions, 2):
        yield from (dict(pair) for pair in itertools.product(one, two))


def _conditions(axis: Axis, bad: Value) -> list[list[Value]]:
    """This value alone and, of an ordered axis, at least and at most each value."""
    values, found = list(axis.values), [[bad]]
    if axis.ordered:
        place = values.index(bad)
        found += [values[low:] for low in range(1, place + 1)] + [values[:high] for high in range(place + 1, len(values))]
    return [each for number, each in enumerate(found) if each not in found[:number]]


def full(world: World, seed: int) -> Played:
    """Every cell of the matrix; right when every cell that dies has died in one of its repeats."""
    cells = list(world.spec.cells())
    inside, rng = sum(map(world.dies, cells)), random.Random(f"run {seed}")
    repeats = repeats_for(world.rate, inside)
    tries = [_until_death(world.rate, repeats, rng) for _ in range(inside)]
    return Played(runs=(len(cells) - inside) * repeats + sum(n for n, _ in tries), exact=all(died for _, died in tries))


def _until_death(rate: float, repeats: int, rng: random.Random) -> tuple[int, bool]:
    number = next((n for n in range(1, repeats + 1) if rng.random() < rate), None)
    return (number or repeats, number is not None)


def git_bayesect(world: World, seed: int) -> Played:
    """git_bayesect's own bisector with its defaults, on one ordered axis; it stops at the same confidence as the search."""
    from git_bayesect import Bisector

    (axis,) = world.spec.axes
    values = list(reversed(axis.values))  # index 0 is the newest, which fails
    bisector, rng = Bisector([1.0] * len(values)), random.Random(f"run {seed}")
    dying = sum(value in world.causes[0][axis.name] for value in values)
    for number in range(1, MOST + 1):
        index = bisector.select()
        bisector.record(index, world.run({axis.name: values[index]}, rng).signature == MAIN)
        if bisector.distribution.max() >= world.spec.search.confidence:
            return Played(runs=number, exact=int(bisector.distribution.argmax()) == dying - 1)
    return Played(runs=MOST, exact=False)


def _played(runs: Runs, answer: Truth) -> Played:
    return Played(runs=runs.count, exact=[answer] == list(runs.world.causes))
