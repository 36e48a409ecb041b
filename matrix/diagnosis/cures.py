"""Which of the changes that survive cure the fault, which go around it, and which only hide it."""

from __future__ import annotations

from typing import Literal

from matrix.diagnosis import edges, fork, memory_causes, memory_form, openmp
from matrix.diagnosis.case import Case
from matrix.records import Cell
from matrix.search import Search

GONE = {openmp.CAUSE: openmp.is_gone, fork.CAUSE: fork.is_gone}
ADVICE = {
    openmp.CAUSE: "Let the whole process use one OpenMP runtime: packages from one source, or the same copy of the library for all.",
    fork.CAUSE: "Start processes with spawn or forkserver, or fork before anything starts threads.",
}


def advise(search: Search, case: Case, cause: str) -> None:
    """Tell the search which surviving changes must not be the fix, and which should be tried first, if `cause` it is.

    All of it each time: what was said while another cause was leading holds no more."""
    search.withdraw_advice()
    changes = {(axis, survivor.trial.cell[axis]): survivor.trial.cell for axis, survivor in case.beside}
    narrow = edges.narrow(case, cause)
    near = {change for change, cell in changes.items() if narrow(cell) or still_grows(case, cause, cell)}
    for change, cell in changes.items():
        if why := hides(case, cell):
            search.veto(*change, why)
        elif is_gone(case, cause, cell) or (near and change not in near):
            search.prefer_fix(*change)


def hides(case: Case, cell: Cell) -> str | None:
    """Why a cell survives with the fault still in it; None: nothing says so."""
    return openmp.hides(case, cell)


def still_grows(case: Case, cause: str, cell: Cell) -> str | None:
    """Describe how memory grows towards the limit under a change that survives; None where it does not, or memory is not the cause."""
    return memory_form.still_grows(case, cell) if cause in memory_causes.NAMES else None


def is_gone(case: Case, cause: str, cell: Cell) -> bool:
    return cause in GONE and GONE[cause](case, cell)


def kind(case: Case, cause: str, cell: Cell) -> Literal["cures", "avoids"]:
    """A cure is shown by the fault's own evidence being gone while everything else still runs; less than that avoids it."""
    return "cures" if is_gone(case, cause, cell) else "avoids"
