"""Last stage: fresh runs that were not used to find the answer.  Does the fix hold, and does the culprit suffice?"""
from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping

from matrix.records import Cell, Value
from matrix.search.decode import NEUTRAL, State, View
from matrix.search.find import reduce_step
from matrix.search.stats import clean_runs_for_e_value
from matrix.search.want import Step, Want
from matrix.search.words import changed

E_VALUE = 20.0  # evidence that the fix no longer crashes at the rate that was seen before; a false alarm has a chance of at most 1/20
CLEAN = 2  # at least so many clean runs of the fix
INSIDE = 2  # random cells inside the culprit that must die alike
TRIES = 6  # cells drawn for that, since some end in another way


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """How far the verification is.  `None` for a fact: not known yet, or it cannot be known."""

    fix: Cell | None  # the changes under test; None: there is no way out to test
    clean: int = 0  # fresh clean runs of the fix
    clean_wanted: int = 0
    bad_again: bool | None = None  # a fresh run of the known-bad cell died alike
    sufficient: bool | None = None  # random cells inside the culprit died alike
    inside: tuple[Cell, ...] = ()  # cells whose answer decides that

    @property
    def verified(self) -> bool:
        return self.fix is not None and self.clean >= self.clean_wanted


def check(view: View, seed: int) -> Check:
    fix = next((changes for changes in view.ways_out() if not rejected(view, changes)), None)
    if fix is None:
        return Check(fix=None)
    sufficient, inside = _sufficiency(view, seed)
    return Check(
        fix=fix,
        clean=clean_runs(view, fix),
        clean_wanted=max(CLEAN, clean_runs_for_e_value(view.mixture(verified=False), E_VALUE)),
        bad_again=_bad_again(view, seed),
        sufficient=sufficient,
        inside=inside,
    )


def step(view: View, seed: int) -> Step:
    """The next fresh run: the inside of the culprit, the known-bad cell, ways out that were never tried alone, the fix."""
    found = check(view, seed)
    if found.fix is None:
        return _alone_step(view)
    inside = [_inside_step(view, cell) for cell in found.inside]
    steps = [*inside, _bad_step(view, found), _alone_step(view), _fix_step(view, found)]
    if found.sufficient is False:
        steps.append(reduce_step(view))
    wanted = next((each for each in steps if isinstance(each, Want)), None)
    return wanted or ("wait" if "wait" in steps else None)


def cost(view: View, seed: int) -> int:
    """Runs that the verification still needs, as expected from the crash rate; 0 when there is nothing to verify."""
    found = check(view, seed)
    if found.fix is None:
        return 0
    deaths = len(found.inside) or int(found.bad_again is None)
    return len(_alone(view)) + max(0, found.clean_wanted - found.clean) + math.ceil(deaths / view.mixture().rate)


def clean_runs(view: View, changes: Cell) -> int:
    return view.ledger.tally(view.grid.apply(changes), "verify").survivals


def rejected(view: View, changes: Cell) -> bool:
    """Fresh runs of this fix keep ending in other ways, or no longer start: no way out, though it avoids the main failure."""
    tally = view.ledger.tally(view.grid.apply(changes), "verify")
    return tally.unavailable is not None or tally.neutral >= max(NEUTRAL, tally.survivals)


def _fresh(view: View, cell: Mapping[str, Value]) -> State:
    """As View.state, from the verification runs alone."""
    tally = view.ledger.tally(cell, "verify")
    if tally.deaths:
        return "dies"
    if tally.survivals >= view.needed:
        return "survives"
    return "unknown" if tally.neutral >= max(NEUTRAL, tally.survivals) or tally.unavailable else "open"


def _bad_again(view: View, seed: int) -> bool | None:
    """A fresh death with the culprit: of a cell inside it, or of the known-bad cell itself."""
    bad = _fresh(view, view.grid.known_bad)
    if bad == "dies" or any(_fresh(view, cell) == "dies" for cell in _drawn_inside(view, seed)):
        return True
    return False if bad == "survives" else None


def _alone(view: View) -> list[Cell]:
    """Single changes that should survive and were never run alone, of an ordered axis the nearest: a way out must have been tried."""
    if view.belief is None:
        return []
    nearest: dict[object, tuple[int, Cell]] = {}
    for (axis, value), state in view.states().items():
        cell, distance = view.grid.apply({axis: value}), view.grid.distance((axis, value))
        values = view.grid.axes[axis].values
        side = values.index(value) > values.index(view.grid.known_bad[axis]) if view.grid.axes[axis].ordered else value
        if state == "survives" and distance < nearest.get((axis, side), (len(values) + 1, cell))[0]:
            nearest[(axis, side)] = (distance, cell)
    tallies = [(cell, view.ledger.tally(cell)) for _, cell in nearest.values()]
    return [cell for cell, tally in tallies if not tally.survivals and not tally.unavailable and tally.neutral < NEUTRAL]


def _alone_step(view: View) -> Step:
    untried = _alone(view)
    free = [cell for cell in untried if not view.ledger.tally(cell).pending]
    if not free:
        return "wait" if untried else None
    why = f"The answers so far say that it survives with {changed(view.grid.changes(free[0]))}: tried alone, does it?"
    return Want(cell=free[0], purpose="verify", why=why)


def _sufficiency(view: View, seed: int) -> tuple[bool | None, tuple[Cell, ...]]:
    """Whether cells inside the culprit die whatever the other axes are, and the cells that are still to be run."""
    if view.culprit() and view.combinations():
        return False, ()
    died, tried, still_open = 0, 0, list[Cell]()
    for cell in _drawn_inside(view, seed):
        state = _fresh(view, cell)
        tried += 1
        died += state == "dies"
        if state == "survives":
            return False, ()
        if state == "open":
            still_open.append(cell)
        if died + len(still_open) == INSIDE:
            break
    if still_open:
        return None, tuple(still_open)
    return (True if died >= min(INSIDE, tried) else None), ()


def _drawn_inside(view: View, seed: int) -> list[Cell]:
    """Distinct cells: culprit axes at values that still die, other axes at values seen harmless or never tested.

    The first is the far corner (ordered axes as far from the known-bad cell as they still die), where a product such as
    bs x steps gives itself away; the others are drawn at random."""
    culprit = view.culprit()
    choices = {name: culprit.get(name) or _harmless(view, name) for name in view.grid.axes}
    corner = {name: _farthest(view, name, values) for name, values in choices.items()}
    cures = [combination.changes for combination in view.combinations()]
    drawn = [view.grid.inside(random.Random(f"{seed} inside {k}"), choices if k else corner, cures) for k in range(TRIES)]
    return list({view.grid.key(cell): cell for cell in drawn if cell is not None}.values())


def _farthest(view: View, axis: str, values: list[Value]) -> list[Value]:
    return [max(values, key=lambda value: view.grid.distance((axis, value)))] if view.grid.axes[axis].ordered else values


def _harmless(view: View, axis: str) -> list[Value]:
    bad, states = view.grid.known_bad[axis], view.states()
    others = [value for value in view.grid.axes[axis].values if view.grid.unavailable((axis, value)) is None]
    return [value for value in others if value == bad or states.get((axis, value), "open") in ("dies", "open")]


def _fix_step(view: View, found: Check) -> Step:
    assert found.fix is not None
    cell = view.grid.apply(found.fix)
    missing, pending = found.clean_wanted - found.clean, view.ledger.tally(cell, "verify").pending
    if missing <= pending:
        return "wait" if missing > 0 else None
    why = f"Fresh run {found.clean + pending + 1} of {found.clean_wanted} of the fix {changed(found.fix)}."
    return Want(cell=cell, purpose="verify", why=why)


def _bad_step(view: View, found: Check) -> Step:
    bad = view.grid.known_bad
    if found.bad_again is not None or _fresh(view, bad) != "open":
        return None
    if view.ledger.tally(bad, "verify").pending:
        return "wait"
    return Want(cell=bad, purpose="verify", why="The known-bad cell once more: does it still die while the fix survives?")


def _inside_step(view: View, cell: Cell) -> Step:
    if view.ledger.tally(cell, "verify").pending:
        return "wait"
    culprit = changed({name: value for name, value in cell.items() if name in view.culprit()})
    why = f"With {culprit} and the other axes drawn at random: does it die in the same way?"
    return Want(cell=cell, purpose="verify", why=why if culprit else "Other axes drawn at random: does it die in the same way?")
