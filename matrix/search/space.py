"""Every crash set that the search considers: which cells die, as a conjunction of at most three conditions, and how likely
each is before anything was run.

A condition holds on one axis for a set of values that contains the known-bad one: `=`, at least, at most (on ordered axes), `in`.
A hypothesis is four numbers of conditions (a, b, c, d) and means (a and b and c) or d; most have d = NEVER, and two
independent causes are (a, ANY, ANY, b).  This module imports numpy; only the adaptive strategy imports it.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from matrix.records import Cell, Value
from matrix.search.grid import SLOW_KINDS, Change, Grid, Key

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

ANY, NEVER = 0, 1  # conditions that always hold, and never
# Shares of the prior.  Most faults need one thing or two; the rest of the mass is the open world (posterior.OPEN).
ORDERS = {0: 0.02, 1: 0.65, 2: 0.25, 3: 0.07}
TWO_CAUSES = 0.01
RARE = 0.04  # of an ordered axis: crash sets that are no threshold
POOL = 1024  # cells looked at, at most
ALL_SUBSETS = 5  # values of an axis up to which every subset is a condition
ALONE = 1.08  # what a cell with a single change is worth more: it shows a way out, or that there is none
SLOW, HIDING = 0.7, 0.97  # what an environment of its own, and a value that only hides, make a cell worth less
MANY = 150_000  # hypotheses beyond which conjunctions of three take the plain conditions only


class Space:
    """Hypotheses and the cells that can tell them apart.  `H`: hypotheses, `C`: cells, `L`: conditions."""

    def __init__(self, grid: Grid, seed: int) -> None:
        self.grid = grid
        self.values: dict[str, list[Value]] = {}
        for name, axis in grid.axes.items():
            able = [value for value in axis.values if grid.unavailable((name, value)) is None or value == grid.known_bad[name]]
            if len(able) > 1:
                self.values[name] = able
        self.conditions: list[tuple[str, tuple[Value, ...]]] = [("", ()), ("", ())]  # ANY and NEVER
        self._of_axis = [self._conditions_of(name) for name in self.values]
        self.parts, self.log_prior = self._hypotheses()  # (H, 4), (H,)
        self.pool: list[Cell] = _pool(grid, seed)
        self.pool_truth = np.stack([self._truth(cell) for cell in self.pool], axis=1)  # (L, C)
        self.worth = np.array([_worth(grid, cell) for cell in self.pool])  # (C,): beyond what a cell teaches
        self._numbers = {grid.key(cell): number for number, cell in enumerate(self.pool)}
        self._having: dict[Change, Bools] = {}
        self._columns: dict[Key, Bools] = {}

    # -------------------------------------------------------------- building
    def _conditions_of(self, name: str) -> list[tuple[int, float, bool]]:
        """(number, share of the axis's prior, whether it is a plain one) of every condition on an axis."""
        values, bad = self.values[name], self.grid.known_bad[name]
        weights = _ordered(values, bad) if self.grid.axes[name].ordered else _unordered(values, bad)
        found = []
        for kept, (weight, plain) in weights.items():
            found.append((len(self.conditions), weight, plain))
            self.conditions.append((name, kept))
        return found

    def _hypotheses(self) -> tuple[Ints, Floats]:
        parts = [np.array([[ANY, ANY, ANY, NEVER]])]
        weights = [np.array([ORDERS[0]])]
        for order in (1, 2, 3):
            combinations = list(itertools.combinations(range(len(self._of_axis)), order))
            plain = order == 3 and sum(math.prod(len(self._of_axis[axis]) for axis in axes) for axes in combinations) > MANY
            for axes in combinations:
                numbers, products = _product([self._of_axis[axis] for axis in axes], plain)
                rest = np.full((len(numbers), 4 - order), ANY)
                rest[:, -1] = NEVER
                parts.append(np.hstack([numbers, rest]))
                weights.append(products * ORDERS[order] / len(combinations))
        pairs = list(itertools.combinations(range(len(self._of_axis)), 2))
        for axes in pairs:
            numbers, products = _product([self._of_axis[axis] for axis in axes], True)
            parts.append(np.stack([numbers[:, 0], *[np.full(len(numbers), ANY)] * 2, numbers[:, 1]], axis=1))
            weights.append(products * TWO_CAUSES / len(pairs))
        weight = np.concatenate(weights)
        return np.concatenate(parts), np.log(weight / weight.sum())

    # -------------------------------------------------------------- membership
    def _truth(self, cell: Mapping[str, Value]) -> Bools:
        """(L,): which conditions hold in a cell."""
        return np.array([True, False, *(cell[name] in kept for name, kept in self.conditions[2:])])

    def column(self, cell: Mapping[str, Value]) -> Bools:
        """(H,): which hypotheses say that this cell dies."""
        key = self.grid.key(cell)
        if key not in self._columns:
            self._columns[key] = self._inside(self._truth(cell), self.parts)
        return self._columns[key]

    def number(self, cell: Mapping[str, Value]) -> list[int]:
        """Where a cell is in the pool: one number, or none."""
        found = self._numbers.get(self.grid.key(cell))
        return [] if found is None else [found]

    def having(self, value: Change) -> Bools:
        """(C,): which cells of the pool have this value."""
        if value not in self._having:
            self._having[value] = np.array([cell[value[0]] == value[1] for cell in self.pool])
        return self._having[value]

    def over_pool(self, which: Ints) -> Bools:
        """(H', C): the cells of the pool that each of these hypotheses says die."""
        return self._inside(self.pool_truth, self.parts[which])

    @staticmethod
    def _inside(truth: Bools, parts: Ints) -> Bools:
        inside: Bools = (truth[parts[:, 0]] & truth[parts[:, 1]] & truth[parts[:, 2]]) | truth[parts[:, 3]]
        return inside

    # -------------------------------------------------------------- words
    def describe(self, hypothesis: int) -> str:
        """`bs>=32 and mining=sync`."""
        first, last = self.parts[hypothesis, :3], int(self.parts[hypothesis, 3])
        text = " and ".join(self._words(int(number)) for number in first if number != ANY) or "every cell"
        return text if last == NEVER else f"{text}, or {self._words(last)}"

    def _words(self, number: int) -> str:
        name, kept = self.conditions[number]
        values = self.values[name]
        if len(kept) > 1 and self.grid.axes[name].ordered:
            if kept == tuple(values[-len(kept) :]):
                return f"{name}>={kept[0]}"
            if kept == tuple(values[: len(kept)]):
                return f"{name}<={kept[-1]}"
        return f"{name}={'|'.join(map(str, kept))}"


def _product(axes: Sequence[list[tuple[int, float, bool]]], plain: bool) -> tuple[Ints, Floats]:
    """Every choice of one condition an axis: their numbers (N, axes) and the product of their shares (N,)."""
    chosen = [[condition for condition in axis if condition[2] or not plain] for axis in axes]
    numbers = np.meshgrid(*[[number for number, _, _ in axis] for axis in chosen], indexing="ij")
    shares = np.meshgrid(*[[share for _, share, _ in axis] for axis in chosen], indexing="ij")
    return np.stack([part.ravel() for part in numbers], axis=1), np.prod([part.ravel() for part in shares], axis=0)


Weights = dict[tuple[Value, ...], tuple[float, bool]]


def _ordered(values: Sequence[Value], bad: Value) -> Weights:
    """Thresholds and the value itself share the prior; intervals and sets with holes get what is left over."""
    place, count = values.index(bad), len(values)
    plain = [values[low:] for low in range(1, place + 1)] + [values[:high] for high in range(place + 1, count)] + [[bad]]
    plain_keys = list(dict.fromkeys(map(tuple, plain)))
    intervals = [tuple(values[low:high]) for low in range(place + 1) for high in range(place + 1, count + 1)]
    odd = [kept for kept in [*intervals, *_subsets(values, bad)] if kept not in plain_keys and len(kept) < count]
    odd = list(dict.fromkeys(odd))
    rare = RARE if odd else 0.0
    found: Weights = {kept: ((1 - rare) / len(plain_keys), True) for kept in plain_keys}
    return found | {kept: (rare / len(odd), False) for kept in odd}


def _unordered(values: Sequence[Value], bad: Value) -> Weights:
    """Half for "this value only", the rest for "all but one" and, less, for what lies between."""
    if len(values) == 2:
        return {(bad,): (1.0, True)}
    but_one = [tuple(v for v in values if v != other) for other in values if other != bad]
    between = [kept for kept in _subsets(values, bad) if kept not in but_one and len(kept) > 1]
    middle = 0.1 if between else 0.0
    found: Weights = {(bad,): (0.6, True)}
    found |= {kept: ((0.4 - middle) / len(but_one), True) for kept in but_one}
    return found | {kept: (middle / len(between), False) for kept in between}


def _subsets(values: Sequence[Value], bad: Value) -> Iterator[tuple[Value, ...]]:
    """Proper subsets with the known-bad value; of long axes none."""
    if len(values) > ALL_SUBSETS:
        return
    for size in range(1, len(values)):
        yield from (kept for kept in itertools.combinations(values, size) if bad in kept)


def _pool(grid: Grid, seed: int) -> list[Cell]:
    """Cells that may be run: every single change, what the specification names, and the rest of the matrix or a sample of it."""
    spec = grid.spec
    named = [*spec.included, *([spec.known_good] if spec.known_good else [])]
    cells = [grid.known_bad, *(grid.apply(dict([change])) for change in grid.singles), *named]
    rng = random.Random(f"{seed} pool")
    if spec.size <= POOL:
        others = list(spec.cells())
        rng.shuffle(others)
    else:
        others = [_drawn(grid, rng) for _ in range(POOL)]
    found = {grid.key(cell): cell for cell in [*cells, *others] if grid.runnable(cell)}
    found.setdefault(grid.key(grid.known_bad), grid.known_bad)
    return list(found.values())[: max(POOL, len(cells))]


def _worth(grid: Grid, cell: Cell) -> float:
    changes = grid.changes(cell)
    worth = ALONE if len(changes) == 1 else 1.0
    for name, value in changes.items():
        axis = grid.axes[name]
        worth *= (SLOW if axis.kind in SLOW_KINDS else 1.0) * (HIDING if value in axis.hides else 1.0)
    return worth


def _drawn(grid: Grid, rng: random.Random) -> Cell:
    """A random cell in which anything from a few axes to all of them are changed."""
    keep = rng.random()
    return {name: grid.known_bad[name] if rng.random() < keep else rng.choice(axis.values) for name, axis in grid.axes.items()}
