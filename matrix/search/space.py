"""Every crash set that the search considers: which cells die, as conjunctions of conditions and unions of two of them, and how
likely each is before anything was run.

A condition holds on one axis for a set of values that contains the known-bad one: `=`, at least, at most (on ordered axes), `in`.
Conjunctions are listed in full as far as their number allows; `beam.py` adds longer ones to the leading ones where it does not.
This module imports numpy; only the adaptive strategy imports it.
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from matrix.records import Cell, Value
from matrix.search import corners
from matrix.search.corners import Corners
from matrix.search.grid import Change, Grid, Key
from matrix.search.hypotheses import Axis, Block, Bools, Floats, Hypotheses, Partition, Short, conjunctions, count

ANY = 0  # the condition that always holds
# Shares of the prior by the number of conditions.  Most faults need one thing or two; what is in no hypothesis is the open world.
# Of what comes every time, as a limit does that several settings reach together, more need two or three; of what may be luck they are
# held to be few, since a survival by luck makes an axis without a part in it look needed.
ORDERS = {0: 0.01, 1: 0.625, 2: 0.26, 3: 0.075, 4: 0.012, 5: 0.003}
ORDERS_EVERY_TIME = {0: 0.01, 1: 0.5, 2: 0.31, 3: 0.12, 4: 0.03, 5: 0.01}
TWO_CAUSES = {(1, 1): 0.01, (1, 2): 0.004, (2, 2): 0.001}  # unions of two conjunctions, by their conditions
THIS_ONLY, BETWEEN = 0.7, 0.06  # of an axis without order: its known-bad value alone; sets between that and "all but one"
RARE = 0.04  # of an ordered axis: crash sets that are no threshold
POOL = 1024  # cells looked at, at most
ALL_SUBSETS = 5  # values of an axis up to which every subset is a condition
ALONE = 1.08  # what a cell with a single change is worth more: it shows a way out, or that there is none
HIDING = 0.97  # what a value that only hides makes a cell worth less
FULL, PLAIN, LONG = 30_000, 150_000, 40_000  # conjunctions of three with all conditions, with plain ones; longer ones and unions


class Space:
    """Hypotheses and the cells that can tell them apart.  `H`: hypotheses, `C`: cells, `L`: conditions.

    `suspected`: how much likelier than other axes an axis is to take part in the crash; `every_time`: how likely it is to come in every
    run where its conditions hold."""

    def __init__(self, grid: Grid, seed: int, suspected: Mapping[str, float] | None = None, every_time: float = 0.0) -> None:
        self.grid = grid
        self.orders = {order: share + every_time * (ORDERS_EVERY_TIME[order] - share) for order, share in ORDERS.items()}
        self.values: dict[str, list[Value]] = {}
        for name, axis in grid.axes.items():
            able = [value for value in axis.values if grid.unavailable((name, value)) is None or value == grid.known_bad[name]]
            if len(able) > 1:
                self.values[name] = able
        self.weights = np.array([(suspected or {}).get(name, 1.0) for name in self.values])
        self.conditions: list[tuple[str, tuple[Value, ...]]] = [("", ())]  # ANY
        self._of_axis = [self._conditions_of(name) for name in self.values]
        self._add_thresholds()
        self.plain: list[Axis] = [[(number, share) for number, share, plain in axis if plain] for axis in self._of_axis]
        shares = [1.0, *(share for axis in self._of_axis for _, share, _ in axis)]
        self.share = np.array(shares + [0.0] * (len(self.conditions) - len(shares)))  # (L,): of its axis's prior
        self.axis_of = np.array([-1, *(list(self.values).index(name) for name, _ in self.conditions[1:])])
        self.hypotheses = Hypotheses(self._blocks())
        self.pool: list[Cell] = _pool(grid, seed)
        self.pool_truth = self._truths(self.pool)  # (L, C)
        self.worth = np.array([_worth(grid, cell) for cell in self.pool])  # (C,): beyond what a cell teaches
        self._numbers = {grid.key(cell): number for number, cell in enumerate(self.pool)}
        self._having: dict[Change, Bools] = {}
        self._columns: dict[Key, Bools] = {}
        self._truth: dict[Key, Bools] = {}
        self._seen: list[Key] = []  # the cells that `_partition` looks at, in their order
        self._partition = Partition(len(self.hypotheses))

    @property
    def log_prior(self) -> Floats:
        """(H,)"""
        return self.hypotheses.log_prior

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

    def _add_thresholds(self) -> None:
        """At least and at most every value of an ordered axis, also without the known-bad one: what corners are made of."""
        known = set(self.conditions)
        for name, values in self.values.items():
            if self.grid.axes[name].ordered:
                kept = [tuple(part) for place in range(1, len(values)) for part in (values[place:], values[:place])]
                self.conditions += [(name, part) for part in kept if (name, part) not in known]

    @functools.cached_property
    def corners(self) -> Corners:
        numbers = {condition: number for number, condition in enumerate(self.conditions)}
        ordered = {name for name in self.values if self.grid.axes[name].ordered}
        return corners.listed(self.values, self.grid.known_bad, ordered, self.plain, numbers)

    def _blocks(self) -> list[Block]:
        every: list[Axis] = [[(number, share) for number, share, _ in axis] for axis in self._of_axis]
        wanted = [every, every, every, every if count(every, 3) <= FULL else self.plain, self.plain, self.plain]
        limits = [1, PLAIN, PLAIN, PLAIN, LONG, LONG]
        found, shares = list[tuple[tuple[Short, ...], Floats]](), list[float]()
        for order, share in self.orders.items():
            if 0 < count(wanted[order], order) <= limits[order]:
                part, each, _ = conjunctions(wanted[order], order, self.weights)
                found.append(((part,), each))
                shares.append(share)
        for (left, right), share in TWO_CAUSES.items():
            if 0 < count(self.plain, left) * count(self.plain, right) <= LONG and len(self.plain) >= left + right:
                found.append(self._unions(left, right))
                shares.append(share)
        whole = sum(shares)
        return [Block(parts=parts, log_prior=np.log(each * share / whole)) for (parts, each), share in zip(found, shares, strict=True)]

    def _unions(self, left: int, right: int) -> tuple[tuple[Short, ...], Floats]:
        """Two causes that share no axis."""
        (one, p, _), (two, q, _) = (conjunctions(self.plain, order, self.weights) for order in (left, right))
        rows, columns = np.divmod(np.arange(len(one) * len(two)), len(two))
        ours, theirs = self.axis_of[one][rows], self.axis_of[two][columns]
        apart = (ours[:, :, None] != theirs[:, None, :]).all(axis=(1, 2))
        if left == right:
            apart &= rows < columns
        share = (p[rows] * q[columns])[apart]
        return (one[rows[apart]], two[columns[apart]]), share / share.sum()

    # -------------------------------------------------------------- membership
    def truth(self, cell: Mapping[str, Value]) -> Bools:
        """(L,): which conditions hold in a cell."""
        key = self.grid.key(cell)
        if key not in self._truth:
            self._truth[key] = np.array([True, *(cell[name] in kept for name, kept in self.conditions[1:])])
        return self._truth[key]

    def _truths(self, cells: Sequence[Cell]) -> Bools:
        """(L, C): `truth` of many cells, an axis at a time."""
        found = np.ones((len(self.conditions), len(cells)), dtype=bool)
        names = np.array([name for name, _ in self.conditions])
        for axis in self.grid.axes.values():
            places = {value: place for place, value in enumerate(axis.values)}
            at = np.array([places[cell[axis.name]] for cell in cells])
            for condition in np.nonzero(names == axis.name)[0]:
                kept = self.conditions[condition][1]
                found[condition] = np.array([value in kept for value in axis.values])[at]
        return found

    def column(self, cell: Mapping[str, Value]) -> Bools:
        """(H,): which hypotheses say that this cell dies."""
        key = self.grid.key(cell)
        if key not in self._columns:
            self._columns[key] = self.hypotheses.column(self.truth(cell))
        return self._columns[key]

    def partition(self, cells: Mapping[Key, Cell]) -> Partition:
        """The hypotheses grouped by what they say of these cells; only what is new since the last call costs anything."""
        keys = list(cells)
        if self._seen != keys[: len(self._seen)]:
            self._seen, self._partition = [], Partition(len(self.hypotheses))
        for key in keys[len(self._seen) :]:
            self._partition = self._partition.split(self.column(cells[key]))
            self._seen.append(key)
        return self._partition

    def number(self, cell: Mapping[str, Value]) -> list[int]:
        """Where a cell is in the pool: one number, or none."""
        found = self._numbers.get(self.grid.key(cell))
        return [] if found is None else [found]

    def having(self, value: Change) -> Bools:
        """(C,): which cells of the pool have this value."""
        if value not in self._having:
            self._having[value] = np.array([cell[value[0]] == value[1] for cell in self.pool])
        return self._having[value]

    # -------------------------------------------------------------- words
    def describe(self, parts: Sequence[Sequence[int]]) -> str:
        """`bs>=32 and mining=sync, or threads=2`."""
        return ", or ".join(" and ".join(self._words(number) for number in part) or "every cell" for part in parts)

    def _words(self, number: int) -> str:
        name, kept = self.conditions[number]
        values = self.values[name]
        if len(kept) > 1 and self.grid.axes[name].ordered:
            if kept == tuple(values[-len(kept) :]):
                return f"{name}>={kept[0]}"
            if kept == tuple(values[: len(kept)]):
                return f"{name}<={kept[-1]}"
        return f"{name}={'|'.join(map(str, kept))}"


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
    """Mostly "this value only", less often "all but one" and what lies between."""
    if len(values) == 2:
        return {(bad,): (1.0, True)}
    but_one = [tuple(v for v in values if v != other) for other in values if other != bad]
    between = [kept for kept in _subsets(values, bad) if kept not in but_one and len(kept) > 1]
    middle = BETWEEN if between else 0.0
    found: Weights = {(bad,): (THIS_ONLY, True)}
    found |= {kept: ((1 - THIS_ONLY - middle) / len(but_one), True) for kept in but_one}
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
        worth *= HIDING if value in axis.hides else 1.0
    return worth


def _drawn(grid: Grid, rng: random.Random) -> Cell:
    """A random cell in which anything from a few axes to all of them are changed."""
    keep = rng.random()
    return {name: grid.known_bad[name] if rng.random() < keep else rng.choice(axis.values) for name, axis in grid.axes.items()}
