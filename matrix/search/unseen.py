"""Does the answer hold in cells that did not lead to it?  Of truths that are none of the crash sets some agree with one by luck."""

from __future__ import annotations

import math

from matrix.records import Cell, Outcome
from matrix.search import claim
from matrix.search.decode import View
from matrix.search.ledger import signature_of
from matrix.search.stats import E_VALUE
from matrix.search.want import Step, Want
from matrix.search.words import changed


def outside(view: View, answer: claim.Claim) -> bool | None:
    """Whether cells survive in which every axis of the culprit is changed, by all their runs: what dies only with both or with
    neither of two changes looks like a conjunction from the known-bad cell.  Where every run dies, two axes changed are enough; else
    fresh runs must show it, since survivals by luck led to this answer.  Of a single axis something else must be changed as well, or
    the change may only have helped beside the known-bad values."""
    if not answer.culprit or view.belief is None or (len(answer.culprit) == 1 and _drawn_outside(view, answer, "any") is None):
        return True
    lifted = min(2, len(answer.culprit)) if view.sure else len(answer.culprit)
    tried = [(trial, outcome) for trial, outcome in view.ledger.entries() if len(view.grid.changes(trial.cell)) > 1]
    entries = [(trial, outcome) for trial, outcome in tried if len(answer.lifted(trial.cell)) >= lifted]
    main = view.ledger.main_signature()
    if any(outcome.kind == "died" and signature_of(outcome) == main for _, outcome in entries):
        return False
    fresh = {trial.id for trial, _ in view.ledger.fresh()}
    shown = [(trial, outcome) for trial, outcome in entries if view.sure or trial.id in fresh]
    return True if view.belief.excused(view.belief.lived(shown)) <= 1 / E_VALUE else None


def outside_step(view: View, seed: int, max_steps: int | None) -> Step:
    """Asked while `outside` is not known."""
    verified = [outcome for trial, outcome in view.ledger.entries() if trial.purpose == "verify"]
    if sum(outcome.kind == "unavailable" or _other(view, outcome) for outcome in verified) > len(verified) / 2:
        return None  # what is asked for afresh keeps ending in other ways
    number = len(verified) + view.ledger.open_runs
    cell = _drawn_outside(view, claim.answered(view), f"{seed} outside {number}")
    if cell is None:
        return None
    changed_at_once = f"{' and '.join(view.culprit())} changed{' at once' if len(view.culprit()) > 1 else ', and other axes'}"
    why = f"With {changed_at_once}: does it survive?"
    return Want(cell=cell, purpose="verify", max_steps=max_steps, why=why)


def _drawn_outside(view: View, answer: claim.Claim, seed: str) -> Cell | None:
    """A cell with every axis of the culprit changed, and where that is one alone something else as well; None: there is none."""
    return claim.draw(view.grid, seed, claim.outside(view.grid, answer), lambda cell: len(view.grid.changes(cell)) > 1)


def _other(view: View, outcome: Outcome) -> bool:
    return outcome.kind == "censored" or (outcome.kind == "died" and signature_of(outcome) != view.ledger.main_signature())


def elsewhere(view: View) -> tuple[Cell, int | None] | None:
    """A cell that was never run, and the length of its run, while the answers are hardly likelier by the crash sets than where each
    cell dies or not for itself: some of the truths without a rule agree with one in a handful of cells.  How much likelier they must be
    depends on `View.ruleless`.  None: it is shown, or no cell is left that would tell."""
    from matrix.search import choose  # here: it imports numpy

    belief = view.belief
    return None if belief is None or not belief.decided or belief.fits >= _wanted(view) else choose.elsewhere(view, belief)


def _wanted(view: View) -> float:
    """The e-value that shows a rule."""
    return max(1.0, E_VALUE * view.ruleless)


def elsewhere_step(view: View, found: tuple[Cell, int | None] | None) -> Step:
    if found is None or view.belief is None:
        return None
    seen = {view.grid.key(cell) for cell in view.ledger.cells()}
    unseen = sum(not trial.probes and view.grid.key(trial.cell) not in seen for trial in view.ledger.pending.values())
    if unseen >= math.log2(_wanted(view) / view.belief.fits):  # each tells a rule from a coin, at best
        return "wait"
    cell, length = found
    why = f"Never run: does it end as the answer says, with {changed(view.grid.changes(cell))}?"
    return Want(cell=cell, purpose="verify", max_steps=length, why=why)
