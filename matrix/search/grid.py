"""The matrix seen from its known-bad cell: a cell is the set of changes that leads to it."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import combinations
from operator import itemgetter
from typing import TYPE_CHECKING

from matrix.records import Cell, Value, describe_cell

if TYPE_CHECKING:
    from matrix.spec import Spec
    from matrix.spec.axes import Axis

Key = tuple[Value, ...]  # the values of a cell in the order of the axes
Change = tuple[str, Value]  # one axis and its other value

OPPOSITES = 12  # at most so many cells in which everything is changed
DRAWS = 40  # random cells looked at for one that is wanted
SLOW_KINDS = ("package", "python")  # a value needs an environment of its own to be built


class Grid:
    """Axes, known-bad cell and changes of one specification.  A value of `reasons` says why a change cannot be tested alone."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.axes: dict[str, Axis] = {axis.name: axis for axis in spec.axes}
        self.known_bad: Cell = {name: spec.known_bad[name] for name in self.axes}
        self.order: dict[Change, int] = {}
        for name, axis in self.axes.items():
            self.order.update({(name, value): len(self.order) for value in asking_order(axis, self.known_bad[name])})
        self._values = itemgetter(*self.axes)
        self._missing = {(name, value): spec.unavailable(name, value) for name, axis in self.axes.items() for value in axis.values}
        self._runnable: dict[Key, bool] = {}
        self.reasons = {change: reason for change in self.order if (reason := self._reason(change))}
        self.singles = sorted((c for c in self.order if c not in self.reasons), key=self._round)

    def _reason(self, change: Change) -> str | None:
        if (missing := self._missing[change]) is not None:
            return f"cannot run here: {missing}"
        return None if self.spec.allowed(self.apply(dict([change]))) else "the specification excludes it alone"

    def _round(self, change: Change) -> tuple[bool, bool, int, int]:
        """Every axis once before any axis twice; what only hides a fault, or costs a new environment, after the rest."""
        axis = self.axes[change[0]]
        ranks = [c for c in self.order if c[0] == change[0]]
        return change[1] in axis.hides, axis.kind in SLOW_KINDS, ranks.index(change), self.order[change]

    def key(self, cell: Mapping[str, Value]) -> Key:
        """Raises ValueError when the cell lacks an axis of the matrix."""
        try:
            values = self._values(cell)
            return values if len(self.axes) > 1 else (values,)
        except KeyError as missing:
            raise ValueError(f"cell {describe_cell(cell)} has no axis {missing}; a cell names every axis: {', '.join(self.axes)}") from None

    def apply(self, changes: Mapping[str, Value]) -> Cell:
        return {**self.known_bad, **changes}

    def changes(self, cell: Mapping[str, Value]) -> Cell:
        """What differs from the known-bad cell, in the order of the axes."""
        return {name: cell[name] for name in self.axes if cell[name] != self.known_bad[name]}

    def available(self, cell: Mapping[str, Value]) -> str | None:
        """Why the cell cannot run here; None when it can."""
        reasons = (self.unavailable((name, cell[name])) for name in self.axes)
        return next((reason for reason in reasons if reason is not None), None)

    def unavailable(self, change: Change) -> str | None:
        """Why a value cannot run here, as the specification knows before any run; None when it can."""
        return self._missing[change]

    def runnable(self, cell: Mapping[str, Value]) -> bool:
        key = self.key(cell)
        if key not in self._runnable:
            self._runnable[key] = self.spec.allowed(dict(cell)) and self.available(cell) is None
        return self._runnable[key]

    def hides(self, changes: Mapping[str, Value]) -> bool:
        return any(value in self.axes[name].hides for name, value in changes.items())

    def distance(self, change: Change) -> int:
        """How far a value is from the known-bad one: in levels when the axis is ordered, else by its place in the list."""
        axis = self.axes[change[0]]
        if not axis.ordered:
            return axis.values.index(change[1])
        return abs(axis.values.index(change[1]) - axis.values.index(self.known_bad[change[0]]))

    def opposites(self, seed: int, barred: Collection[Change] = ()) -> list[Cell]:
        """Cells in which every axis is changed (as far as exclusions let), until every pair of changes has been in one; without those
        that are barred or only hide the fault.

        When no single change survives, these ask "does anything survive?" at the price of a few runs."""
        able = [change for change in self.order if change not in barred and not self.hides(dict([change]))]
        choices = {name: [v for n, v in able if n == name] for name in self.axes}
        choices = {name: [v for v in values if self.unavailable((name, v)) is None] for name, values in choices.items()}
        left = {pair for pair in combinations([(n, v) for n, values in choices.items() for v in values], 2) if pair[0][0] != pair[1][0]}
        rng, cells = random.Random(f"{seed} opposites"), list[Cell]()
        while left and len(cells) < OPPOSITES:
            best = max(self._drawn(rng, choices), key=lambda changes: len(left & _pairs(changes)), default={})
            if not left & _pairs(best):
                break
            cells.append(self.apply(best))
            left -= _pairs(best)
        return cells

    def _drawn(self, rng: random.Random, choices: Mapping[str, list[Value]]) -> Iterator[Cell]:
        for draw in range(DRAWS):
            keep = 0.0 if draw < DRAWS // 2 else 0.25  # exclusions may forbid to change everything
            changes = {name: rng.choice(values) for name, values in choices.items() if values and rng.random() >= keep}
            if self.runnable(self.apply(changes)):
                yield changes

    def inside(self, rng: random.Random, choices: Mapping[str, list[Value]], able: Callable[[Cell], bool] | None = None) -> Cell | None:
        """A random runnable cell of these values that is `able` and not the known-bad one; None when there is none."""
        for _ in range(DRAWS):
            cell = {name: rng.choice(values) for name, values in choices.items()}
            if cell != self.known_bad and (able is None or able(cell)) and self.runnable(cell):
                return cell
        return None


def asking_order(axis: Axis, known: Value) -> list[Value]:
    """An axis's other values: of an ordered axis both ends first, since they show soonest whether the axis matters at
    all, then from the known-bad value outwards, which is where a threshold decides the nearest fix."""
    others = [value for value in axis.values if value != known]
    if not axis.ordered:
        return others
    ends = [value for value in (axis.values[0], axis.values[-1]) if value != known]
    near = sorted(others, key=lambda value: abs(axis.values.index(value) - axis.values.index(known)))
    return list(dict.fromkeys(ends + near))


def _pairs(changes: Mapping[str, Value]) -> set[tuple[Change, Change]]:
    return set(combinations(changes.items(), 2))
