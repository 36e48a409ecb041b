"""The strategies whose cells are fixed before anything is run: one_at_a_time, pairwise, full.

What the answers mean is read as for the adaptive strategy, so that too few repeats of a rare crash give a low probability and
not a wrong culprit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations, islice

from matrix.records import Cell, Value
from matrix.search import find
from matrix.search.decode import NEUTRAL, View
from matrix.search.grid import Change, Grid
from matrix.search.want import Step, Want
from matrix.search.words import changed

Pair = tuple[Change, Change]


def cells(grid: Grid, seed: int) -> list[Cell]:
    """Every cell that the strategy wants to run; of a full matrix so many as max_runs allows."""
    spec = grid.spec
    if spec.search.strategy == "full":
        return list(islice((cell for cell in spec.cells() if grid.available(cell) is None), spec.search.max_runs))
    named = [*spec.included, *([spec.known_good] if spec.known_good else [])]
    rows = list(_covering(grid, seed)) if spec.search.strategy == "pairwise" else [grid.apply(dict([change])) for change in grid.singles]
    return [*rows, *(cell for cell in named if cell not in rows and cell != grid.known_bad and grid.runnable(cell))]


def notice(grid: Grid, wanted: int) -> str | None:
    """What max_runs leaves out; None when it leaves out nothing."""
    options = grid.spec.search
    wanted = grid.spec.size if options.strategy == "full" else wanted
    if options.strategy == "adaptive" or wanted <= options.max_runs:
        return None
    what = {"full": "the matrix has", "pairwise": "all pairs of values take", "one_at_a_time": "single changes take"}[options.strategy]
    return f"strategy {options.strategy}: {what} {wanted} cells and max_runs allows {options.max_runs} runs; the rest is never tested"


def step(view: View, wanted: list[Cell], repeats: int | None) -> Step:
    """Each cell as often as the user said, where a death ends the repeats; without the user's word once, and those that are
    still undecided then again."""
    missing = [(cell, _missing(view, cell, repeats or 1)) for cell in wanted]
    unseen = [(cell, count) for cell, count in missing if count > 0]
    free = [cell for cell, count in unseen if view.ledger.tally(cell).pending < count]
    if free:
        cell = min(free, key=lambda cell: find.answers(view, cell))  # the first of equals: everything once before anything twice
        return Want(cell=cell, purpose="find", why=_why(view, cell))
    if unseen:
        return "wait"
    return None if repeats else find.step(view, wanted)


def _missing(view: View, cell: Cell, repeats: int) -> int:
    tally = view.ledger.tally(cell)
    given_up = tally.neutral >= max(NEUTRAL, repeats)
    return 0 if tally.deaths or tally.unavailable or given_up else repeats - tally.survivals


def _why(view: View, cell: Cell) -> str:
    changes, strategy = view.grid.changes(cell), view.grid.spec.search.strategy
    if strategy == "one_at_a_time" or find.answers(view, cell):
        return find.why(view, cell)
    what = "One cell of the full matrix" if strategy == "full" else "A cell of the fewest that hold every pair of values"
    return f"{what}: {changed(changes) if changes else 'the known-bad one'}."


# ------------------------------------------------------------------ pairwise
def _covering(grid: Grid, seed: int) -> Iterator[Cell]:
    """Few cells in which, with the known-bad one, every two values of two axes meet that may meet.

    The covering array is allpairspy's; it stops early where rules exclude cells, and the pairs that it misses get a cell each."""
    values = {name: [v for v in axis.values if grid.unavailable((name, v)) is None] for name, axis in grid.axes.items()}
    left = {pair for pair in _pairs({(name, v) for name, of in values.items() for v in of}) if grid.spec.allowed(dict(pair))}
    left -= _pairs(set(grid.known_bad.items()))
    for cell in _all_pairs(grid, values):
        left -= _pairs(set(cell.items()))
        yield cell
    rng = random.Random(f"{seed} pairwise")
    for pair in sorted(left, key=str):
        missed = grid.inside(rng, {**values, **{name: [value] for name, value in pair}}) if pair in left else None
        if missed is not None:
            left -= _pairs(set(missed.items()))
            yield missed


def _all_pairs(grid: Grid, values: dict[str, list[Value]]) -> Iterator[Cell]:
    from allpairspy import AllPairs  # here: only this strategy needs it

    if len(values) < 2:  # it refuses a single axis
        yield from (grid.apply({name: value}) for name, of in values.items() for value in of if value != grid.known_bad[name])
        return
    names, known = list(values), [*grid.known_bad.values()]
    rows = AllPairs(list(values.values()), lambda row: grid.spec.allowed(dict(zip(names, row, strict=False))), [known])
    yield from (dict(zip(names, row, strict=True)) for row in rows)


def _pairs(changes: set[Change]) -> set[Pair]:
    ordered = sorted(changes, key=str)
    return {(one, two) for one, two in combinations(ordered, 2) if one[0] != two[0]}
