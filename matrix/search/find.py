"""Second stage: which changes of the known-bad cell survive?  Chooses runs only; decode.py says what the answers mean."""

from __future__ import annotations

from matrix.records import Cell
from matrix.search.decode import NEUTRAL, Combination, View
from matrix.search.want import Step, Want
from matrix.search.words import changed, counted


def step(view: View, cells: list[Cell]) -> Step:
    """The next run of the open cells: everything once before anything twice, because most changes do not matter, a
    death settles each of those in one run, and every death makes the survivals of the others worth more."""
    open_cells = [cell for cell in cells if view.state(cell) == "open"]
    free = [cell for cell in open_cells if _wanted(view, cell)]
    if not free:
        return "wait" if open_cells else None
    cell = min(free, key=lambda cell: answers(view, cell))  # the first of equals: the order of `cells`
    return Want(cell=cell, purpose="find", why=why(view, cell))


def _wanted(view: View, cell: Cell) -> bool:
    """Repeats run side by side only once a first survival has shown that repeats will be needed."""
    tally = view.ledger.tally(cell)
    return tally.pending < (view.needed - tally.survivals if tally.survivals else 1)


def answers(view: View, cell: Cell) -> int:
    tally = view.ledger.tally(cell)
    return tally.survivals + tally.neutral + tally.pending


def why(view: View, cell: Cell) -> str:
    changes, tally = view.grid.changes(cell), view.ledger.tally(cell)
    if tally.survivals:
        return f"It survived {counted(tally.survivals, 'run')} with {changed(changes)}, which is believed after {view.needed}."
    if tally.neutral:
        return f"No answer yet with {changed(changes)} ({counted(tally.neutral, 'run')} cut short or ended in another way): once more."
    if len(changes) == 1:
        ((axis, value),) = changes.items()
        return f"Does it still die with {axis}={value} instead of {view.grid.known_bad[axis]}?"
    return f"Does it still die with {changed(changes)}?" if changes else "The known-bad cell."


def named_cells(view: View) -> list[Cell]:
    """Cells that the specification names: included ones, and the known-good one."""
    spec = view.grid.spec
    named = [*spec.included, *([spec.known_good] if spec.known_good else [])]
    return [cell for cell in named if len(view.grid.changes(cell)) > 1]


def named_step(view: View) -> Step:
    """Cells that the specification names are run once, whatever is known of them already."""
    tallies = [(cell, view.ledger.tally(cell)) for cell in named_cells(view)]
    unseen = [(cell, t) for cell, t in tallies if not (t.deaths + t.survivals or t.unavailable or t.neutral >= NEUTRAL)]
    free = [cell for cell, tally in unseen if not tally.pending]
    if not free:
        return "wait" if unseen else None
    return Want(cell=free[0], purpose="find", why=f"The specification names this cell: {changed(view.grid.changes(free[0]))}.")


def combination_step(view: View, seed: int) -> Step:
    """When no single change is a way out: does anything survive when everything is changed, and how little of it is needed?"""
    if view.survivors():
        return None
    if (reduced := reduce_step(view)) is not None or view.combinations():
        return reduced
    for cell in view.grid.opposites(seed, view.vetoed):
        if view.state(cell) == "open":
            found = step(view, [cell])
            if isinstance(found, Want):
                everything = changed(view.grid.changes(cell))
                return Want(cell=cell, purpose="find", why=f"No single change survives: does it die with {everything}?")
            return found
    return None


def reduce_step(view: View) -> Step:
    """The next run that makes a surviving combination smaller."""
    for combination in view.combinations():
        if combination.ask is not None:
            found = step(view, [combination.ask])
            if isinstance(found, Want):
                return Want(cell=found.cell, purpose="find", why=_why_less(view, combination))
            return found
    return None


def _why_less(view: View, combination: Combination) -> str:
    rest = view.grid.changes(combination.ask or {})
    taken_back = {name: value for name, value in combination.changes.items() if name not in rest}
    return f"It survives with {changed(combination.changes)}: is {changed(taken_back)} needed for that?"
