"""Single changes that are run alone before the answer counts: each way out, and what was only seen to die together with others."""

from __future__ import annotations

import math
from collections import Counter
from statistics import median

from matrix.records import Cell
from matrix.search.decode import NEUTRAL, View
from matrix.search.grid import Change
from matrix.search.ledger import signature_of
from matrix.search.want import Step, Want
from matrix.search.words import changed

LATE = 1.5  # times the usual step of death in the known-bad cell


def untried(view: View) -> list[Cell]:
    """Single changes that should survive and were never run alone, of an ordered axis the nearest: a way out must have been tried."""
    if view.belief is None:
        return []
    nearest: dict[object, tuple[float, Cell]] = {}
    for (axis, value), state in view.states().items():
        cell, distance = view.grid.apply({axis: value}), view.grid.distance((axis, value))
        side = _side(view, (axis, value)) if view.grid.axes[axis].ordered else value
        if state == "survives" and distance < nearest.get((axis, side), (math.inf, cell))[0]:
            nearest[(axis, side)] = (distance, cell)
    tallies = [(cell, view.ledger.tally(cell)) for _, cell in nearest.values()]
    return [cell for cell, tally in tallies if not tally.survivals and not tally.unavailable and tally.neutral < NEUTRAL]


def dying_late(view: View) -> list[Cell]:
    """Single changes of ordered axes that were seen to die only together with others, and much later than the known-bad cell: whatever
    fills up more slowly there may never be full when they come alone.  Of each axis and side the farthest; the most suspicious first,
    since what it does alone may explain the others: of what fills up, changes multiply the steps, mostly by as much as they themselves
    are more or less."""
    deaths = _death_steps(view)
    usual = [steps for steps, changes in deaths if not changes]
    if view.belief is None or not usual or max(usual) > LATE * min(usual):  # the last: it dies at any time
        return []
    limit = LATE * median(usual)
    slowing = {change: max(1.0, steps / median(usual)) for steps, changes in deaths if len(changes) == 1 for change in changes.items()}
    earliest: dict[Change, float] = {}
    for steps, changes in deaths:
        for change in changes.items():
            others = math.prod(slowing.get(other, 1.0) for other in changes.items() if other != change)
            earliest[change] = min(steps / others, earliest.get(change, math.inf))
    late = [change for change, steps in earliest.items() if steps > limit and view.grid.axes[change[0]].ordered]
    farthest: dict[tuple[str, bool], Change] = {}
    for change in sorted(late, key=view.grid.distance):
        farthest[change[0], _side(view, change)] = change
    often = Counter(change for steps, changes in deaths if steps > limit for change in changes.items())
    suspicious = sorted(farthest.values(), key=lambda change: (-_times(view, change), -often[change]))
    tallies = [(cell, view.ledger.tally(cell)) for cell in (view.grid.apply(dict([change])) for change in suspicious)]
    return [cell for cell, tally in tallies if not (tally.survivals or tally.deaths or tally.neutral or tally.unavailable)]


def _times(view: View, change: Change) -> float:
    """How much more or less of a quantity the change is, as a logarithm; 0 of what is no positive number."""
    values = [float(value) for value in (change[1], view.grid.known_bad[change[0]]) if isinstance(value, int | float) and value > 0]
    return abs(math.log(values[0] / values[1])) if len(values) == 2 else 0.0


def _death_steps(view: View) -> list[tuple[int, Cell]]:
    """Of every death of the main kind the step, where it is known, and what was changed."""
    main = view.ledger.main_signature()
    deaths = [(t, o) for t, o in view.ledger.entries() if o.kind == "died" and o.steps and signature_of(o) == main]
    return [(outcome.steps or 0, view.grid.changes(trial.cell)) for trial, outcome in deaths]


def late_step(view: View) -> Step:
    """One more death of the known-bad cell may show that it dies at any step, which spares all of these."""
    cells, bad = dying_late(view), view.ledger.tally(view.grid.known_bad, "verify")
    if len(cells) > 1 + bad.deaths + bad.survivals and not bad.neutral and sum(not changes for _, changes in _death_steps(view)) == 1:
        why = "With other values it died much later: does the known-bad cell always die so soon?"
        return "wait" if bad.pending else Want(cell=view.grid.known_bad, purpose="verify", why=why)
    return _tried_alone(view, cells, "It died with {} only together with other changes, and late: does it alone?")


def step(view: View) -> Step:
    return _tried_alone(view, untried(view), "It should survive with {}: tried alone, does it?")


def _tried_alone(view: View, cells: list[Cell], why: str) -> Step:
    free = [cell for cell in cells if not view.ledger.tally(cell).pending]
    if not free:
        return "wait" if cells else None
    return Want(cell=free[0], purpose="verify", why=why.format(changed(view.grid.changes(free[0]))))


def _side(view: View, change: Change) -> bool:
    """Whether a value of an ordered axis lies above the known-bad one."""
    axis, value = change
    values = view.grid.axes[axis].values
    return values.index(value) > values.index(view.grid.known_bad[axis])
