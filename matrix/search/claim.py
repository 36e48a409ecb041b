"""What an answer claims of the axes one by one, and cells that put the claim to the test."""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Iterator, Mapping

from matrix.records import Cell, Value
from matrix.search.decode import View
from matrix.search.grid import Grid

TRIES = 6  # cells drawn at random, since some end in another way

Choices = dict[str, list[Value]]  # a value of each axis
Able = Callable[[Cell], bool]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
    """`culprit`: where it dies; `nearest`: of each of its axes the change that survives, nearest to the known-bad value; `harmless`: of
    every axis the values that are not said to survive."""

    culprit: Choices
    nearest: dict[str, Value]
    harmless: Choices

    @property
    def wider(self) -> bool:
        """Whether more than the known-bad values die."""
        return any(len(values) > 1 for values in self.culprit.values())

    def holds(self, cell: Mapping[str, Value]) -> bool:
        """Whether the cell is said to die."""
        return like(cell, self.culprit)

    def lifted(self, cell: Mapping[str, Value]) -> set[str]:
        """The axes of the culprit that are changed enough in this cell."""
        return {axis for axis, values in self.culprit.items() if cell[axis] not in values}


def answered(view: View) -> Claim:
    """What is decided at the asked confidence."""
    grid, culprit, states = view.grid, view.culprit(), view.states()
    alive = {axis: [value for name, value in grid.singles if name == axis and states[name, value] == "survives"] for axis in culprit}
    able = {axis: [v for v in grid.axes[axis].values if grid.unavailable((axis, v)) is None] for axis in grid.axes}
    return Claim(
        culprit=culprit,
        nearest={axis: min(values, key=lambda value: grid.distance((axis, value))) for axis, values in alive.items()},
        harmless={
            axis: [v for v in values if v == grid.known_bad[axis] or states.get((axis, v), "open") in ("dies", "open")]
            for axis, values in able.items()
        },
    )


# ------------------------------------------------------------------ cells
def inside(grid: Grid, claim: Claim) -> list[Choices]:
    """What cells inside the culprit must be like that are to die.

    First the known-bad values of the culprit with everything else changed: what else is needed would be missing there.  Then the far
    corner (ordered axes as far from the known-bad cell as they still die), where a product such as bs x steps gives itself away;
    it is left out when the culprit is nothing but known-bad values.  The others are drawn at random, in case these cannot run."""
    choices = {axis: claim.culprit.get(axis) or claim.harmless[axis] for axis in grid.axes}
    core = {axis: [grid.known_bad[axis]] if axis in claim.culprit else _changed(grid, axis, values) for axis, values in choices.items()}
    corner = {axis: _farthest(grid, axis, values) for axis, values in choices.items()}
    return [core, *([corner] if claim.wider or not claim.culprit else []), *[choices] * TRIES]


def outside(grid: Grid, claim: Claim) -> Choices:
    """Every axis of the culprit changed at once."""
    away = {axis: [v for v in grid.axes[axis].values if v not in values] for axis, values in claim.culprit.items()}
    return {axis: away.get(axis) or claim.harmless[axis] for axis in grid.axes}


def draw(grid: Grid, seed: str, choices: Choices, able: Able | None = None) -> Cell | None:
    return grid.inside(random.Random(seed), choices, able)


def drawn(view: View, seed: int, claim: Claim) -> Iterator[tuple[Able, Cell]]:
    """Distinct cells inside the culprit, each with what another cell must be like to do as well; none in which a combination survives."""
    seen = set()
    for number, (choices, others) in enumerate(_alone(view, claim) if view.cornered else _inside(view, claim)):
        able = functools.partial(_only, choices, others)
        cell = draw(view.grid, f"{seed} inside {number}", choices, able)
        if cell is not None and view.grid.key(cell) not in seen:
            seen.add(view.grid.key(cell))
            yield able, cell


def _inside(view: View, claim: Claim) -> Iterator[tuple[Choices, list[Choices]]]:
    cures = [{axis: [value] for axis, value in combination.changes.items()} for combination in view.combinations()]
    return ((choices, cures) for choices in inside(view.grid, claim))


def _alone(view: View, claim: Claim) -> Iterator[tuple[Choices, list[Choices]]]:
    """Of a crash set with several parts: each must do without the others, with everything else changed."""
    parts = view.belief.crash_set if view.belief is not None else []
    elsewhere = {axis: _changed(view.grid, axis, values) for axis, values in claim.harmless.items()}
    return ((elsewhere | part, [other for other in parts if other is not part]) for part in parts)


def _only(choices: Choices, others: list[Choices], cell: Cell) -> bool:
    return like(cell, choices) and not any(like(cell, other) for other in others)


def like(cell: Mapping[str, Value], choices: Choices) -> bool:
    """Whether the cell has one of the values of each of these axes."""
    return all(cell[axis] in values for axis, values in choices.items())


def _changed(grid: Grid, axis: str, values: list[Value]) -> list[Value]:
    return [value for value in values if value != grid.known_bad[axis]] or values


def _farthest(grid: Grid, axis: str, values: list[Value]) -> list[Value]:
    return [max(values, key=lambda value: grid.distance((axis, value)))] if grid.axes[axis].ordered else values
