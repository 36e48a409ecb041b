"""A death that says itself what it is: the same Python exception from the same line, whatever the axes are.

Such a death needs no search.  One or two runs in which every axis is changed at once show that no axis takes part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from matrix.diagnosis.case import Case
from matrix.diagnosis.endings import EXCEPTION
from matrix.diagnosis.samples import CORRUPT
from matrix.records import Cell, Observation, PythonError, Value, describe_cell
from matrix.spec.axes import Axis

CAUSES = (EXCEPTION, CORRUPT)  # an exception of these is the program's or the data's own word
MOST_CELLS = 3  # with everything changed: more values than that take a search
TWICE = 2
WHY = "The exception says what happened: does it come with everything changed at once?"
NUMBER = re.compile(r"0x[0-9a-f]+|\d+")


def cell_with_everything_changed(
    case: Case, cause: str, axes: Sequence[Axis], allowed: Callable[[Mapping[str, Value]], bool], asked: Sequence[Cell]
) -> Cell | None:
    """Return the next cell that shows whether any axis matters; None: the death does not speak for itself, or all were asked for."""
    if cause not in CAUSES or not _alike_deaths(case):
        return None
    cells = _opposite_cells(axes, case.known_bad)
    if not 1 <= len(cells) <= MOST_CELLS or not all(allowed(cell) for cell in cells):
        return None
    return next((cell for cell in cells if cell not in asked), None)


def why_no_axis_matters(case: Case, cause: str, axes: Sequence[Axis]) -> str | None:
    """Return what the deaths prove together; None while an axis may still take part."""
    deaths = _alike_deaths(case)
    if cause not in CAUSES or len(deaths) < TWICE:
        return None
    died = [death.trial.cell for death in deaths]
    cells = _opposite_cells(axes, case.known_bad)
    if not 1 <= len(cells) <= MOST_CELLS or any(cell not in died for cell in cells):
        return None
    error = deaths[0].python_error
    line = f" at {error.frames[-1]}" if error and error.frames else ""
    name = error.type if error else ""
    changed = describe_cell({axis: value for axis, value in cells[0].items() if value != case.known_bad[axis]})
    return f"{name}{line} came in {len(deaths)} of {len(deaths)} runs, also with {changed}: no axis of this matrix takes part"


def _alike_deaths(case: Case) -> list[Observation]:
    """Return all runs when every one died of one exception; [] when any run ended in another way."""
    runs = [run for run in case.unprobed if case.outcomes[run.attempt].kind != "unavailable"]
    first = runs[0].python_error if runs else None
    if first is None or any(case.outcomes[run.attempt].kind != "died" for run in runs):
        return []
    return runs if all(run.python_error is not None and is_same_exception(first, run.python_error) for run in runs) else []


def is_same_exception(one: PythonError, other: PythonError) -> bool:
    """True for one type from one line, or with one message where a worker's exception is raised again in the main process."""
    if one.type != other.type:
        return False
    same_line = bool(one.frames) and one.frames[-1:] == other.frames[-1:]
    return same_line or _last_words(one) == _last_words(other) != ""


def _last_words(error: PythonError) -> str:
    """The last line of the message, numbers left out."""
    lines = [line.strip() for line in error.message.splitlines() if line.strip()]
    return NUMBER.sub("#", lines[-1]).removeprefix(f"{error.type}: ") if lines else ""


def _opposite_cells(axes: Sequence[Axis], known_bad: Cell) -> list[Cell]:
    """Cells in which every axis has another value, until each axis had all the values that can matter."""
    others = {axis.name: _telling_values(axis, known_bad[axis.name]) for axis in axes}
    others = {name: values for name, values in others.items() if values}
    count = max((len(values) for values in others.values()), default=0)
    return [known_bad | {name: values[min(number, len(values) - 1)] for name, values in others.items()} for number in range(count)]


def _telling_values(axis: Axis, known: Value) -> list[Value]:
    """Both ends of an ordered axis; all other values of any other one, but those that only hide the failure."""
    values = [axis.values[0], axis.values[-1]] if axis.ordered else list(axis.values)
    return [value for value in dict.fromkeys(values) if value != known and value not in axis.hides]
