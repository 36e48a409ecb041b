"""Crash sets of two axes that trade off: half the batch and twice the memory survive together, though neither alone does.

Of two ordered axes these are staircases: the more there is of one, the less of the other it takes to die.  Of other axes one of two
conditions is enough.  `beam.py` puts them inside of conjunctions.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence, Set

import numpy as np

from matrix.records import Value
from matrix.search.hypotheses import Axis, Bools, Floats, Short

MOST = 300  # staircases of two axes, for each of the four ways in which they can rise; of longer axes one step only
STEPS = 4  # of a staircase, at most

Conditions = Mapping[tuple[str, tuple[Value, ...]], int]  # axis and values -> number of the condition; without values: always
Stairs = tuple[tuple[int, int], ...]  # the conditions of each step: a cell is inside when both of any step hold


@dataclasses.dataclass(frozen=True, kw_only=True)
class Corners:
    """P crash sets: `steps`: pairs of conditions, each (P, 2); `axes` (P, 2): which axes they are about."""

    steps: tuple[Short, ...]
    axes: Short

    def __len__(self) -> int:
        return len(self.axes)

    def inside(self, truth: Bools) -> Floats:
        """(P, K): 1 where they contain the cells of `truth` (L, K)."""
        found = np.zeros((len(self), truth.shape[1]), dtype=bool)
        for step in self.steps:
            found |= truth[step[:, 0]] & truth[step[:, 1]]
        return found.astype(np.float64)


def listed(
    values: Mapping[str, Sequence[Value]], bad: Mapping[str, Value], ordered: Set[str], plain: Sequence[Axis], of: Conditions
) -> Corners:
    """Every corner of two of these axes.  `plain`: the plain conditions of each axis, in the order of `values`."""
    found: list[tuple[Stairs, tuple[int, int]]] = []
    for (one, left), (two, right) in itertools.combinations(enumerate(values), 2):
        stairs = {left, right} <= ordered and math.comb(len(values[left]) + len(values[right]), len(values[left])) <= MOST
        shapes = _staircases(left, right, values, bad, of) if stairs else _either(plain[one], plain[two])
        found += [(shape, (one, two)) for shape in shapes]
    most = max((len(shape) for shape, _ in found), default=0)
    padded = [[*shape, *[shape[-1]] * (most - len(shape))] for shape, _ in found]
    steps = np.array(padded, dtype=np.int16).reshape(len(found), most, 2)
    axes = np.array([pair for _, pair in found], dtype=np.int16).reshape(len(found), 2)
    return Corners(steps=tuple(steps[:, step] for step in range(most)), axes=axes)


def _either(left: Axis, right: Axis) -> Iterator[Stairs]:
    return (((a, 0), (b, 0)) for (a, _), (b, _) in itertools.product(left, right))


def _staircases(left: str, right: str, values: Mapping[str, Sequence[Value]], bad: Mapping[str, Value], of: Conditions) -> Iterator[Stairs]:
    """Distinct ones with the known-bad cell, and of two steps at least: with one step they are conjunctions."""
    seen = set[frozenset[tuple[Value, Value]]]()
    for across, up in itertools.product((1, -1), repeat=2):
        columns, rows = list(values[left])[::across], list(values[right])[::up]
        for heights in itertools.combinations_with_replacement(range(len(rows), -1, -1), len(columns)):  # from where on each column dies
            steps = [place for place, height in enumerate(heights) if height < len(rows) and (place == 0 or height < heights[place - 1])]
            cells = frozenset((x, y) for x, height in zip(columns, heights, strict=True) for y in rows[height:])
            if not 2 <= len(steps) <= STEPS or cells in seen or (bad[left], bad[right]) not in cells:
                continue
            seen.add(cells)
            yield tuple((_from(of, left, columns, place, across), _from(of, right, rows, heights[place], up)) for place in steps)


def _from(of: Conditions, axis: str, values: Sequence[Value], place: int, direction: int) -> int:
    """The condition that an axis has one of the values from this one on; they are kept in the axis's own order."""
    kept = tuple(values[place:])[::direction]
    return of[axis, kept] if place else 0
