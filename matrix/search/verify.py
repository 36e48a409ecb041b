"""Last stage: fresh runs that were not used to find the answer.  Does the fix hold, and does the culprit suffice?"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from matrix.records import Cell, Value
from matrix.search import alone, claim, unseen
from matrix.search.decode import NEUTRAL, State, View
from matrix.search.find import reduce_step
from matrix.search.grid import Key
from matrix.search.ledger import Tally, ran_whole, signature_of
from matrix.search.stats import E_VALUE, clean_runs_for_e_value, fewest
from matrix.search.want import Step, Want
from matrix.search.words import changed

if TYPE_CHECKING:
    from matrix.search.hypotheses import Floats
    from matrix.search.lengths import Length
    from matrix.search.posterior import Belief

CLEAN = 2  # at least so many clean runs of the fix; where every run dies the e-value decides alone
INSIDE = 2  # random cells inside the culprit that must die alike


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    """How far the verification is.  `None` for a fact: not known yet, or it cannot be known."""

    fix: Cell | None  # the changes under test; None: there is no way out to test
    clean: int = 0  # fresh clean runs of the fix
    clean_wanted: int = 0
    bad_again: bool | None = None  # a fresh run of the known-bad cell died alike
    sufficient: bool | None = None  # random cells inside the culprit died alike
    inside: tuple[Cell, ...] = ()  # cells whose answer decides that
    elsewhere: tuple[Cell, int | None] | None = None  # a cell that was never run, and the length of its run: see `unseen.elsewhere`
    outside: bool | None = True  # with every axis of the culprit changed at once it survives
    unproven: tuple[Cell, ...] = ()  # changes of the other axes of the culprit, which have too few fresh survivals
    puzzling: tuple[Cell, ...] = ()  # cells that only survived, though the answer says that they die at times: see `_puzzling`

    @property
    def verified(self) -> bool:
        return self.fix is not None and self.clean >= self.clean_wanted


@functools.lru_cache(maxsize=2)
def check(view: View, seed: int) -> Check:
    """What the answers of `view` say of the verification; a view never changes, so it is worked out once."""
    ways = [changes for changes in view.ways_out() if not rejected(view, changes)]
    if not ways:
        return Check(fix=None)
    fix = _under_test(view, ways)
    sufficient, inside = _sufficiency(view, seed)
    return Check(
        fix=fix,
        clean=clean_runs(view, fix),
        clean_wanted=_clean_wanted(view, fix),
        bad_again=_bad_again(view),
        sufficient=sufficient,
        inside=inside,
        elsewhere=unseen.elsewhere(view),
        outside=unseen.outside(view, claim.answered(view)),
        unproven=_unproven(view, fix),
        puzzling=_puzzling(view),
    )


def _under_test(view: View, ways: list[Cell]) -> Cell:
    """The first of these ways out that can be verified, or in its place the nearest change of another axis that fresh runs have
    verified already: which of several axes is the cheapest to change nobody has said."""
    able = [changes for changes in ways if not _cut_short(view, changes)] or ways
    first, nearest = able[0], dict[tuple[str, ...], Cell]()
    for changes in able:
        if len(changes) == len(first) and _preferred(view, changes) == _preferred(view, first):
            nearest.setdefault(tuple(changes), changes)
    return next((changes for changes in nearest.values() if view.sure and _verified(view, changes)), first)


def _preferred(view: View, changes: Cell) -> bool:
    return any(change in view.preferred for change in changes.items())


def _verified(view: View, fix: Cell) -> bool:
    return clean_runs(view, fix) >= _clean_wanted(view, fix)


def step(view: View, seed: int) -> Step:
    """The next fresh run: the inside of the culprit, the known-bad cell, ways out that were never tried alone, the fix; while the
    answer is not decided, whatever of these tells most, and then the others."""
    steps = _steps(view, seed)
    wanted = [each for each in steps if isinstance(each, Want)]
    if not wanted:
        return "wait" if "wait" in steps else None
    if view.belief is None or view.belief.decided or view.grid.spec.search.strategy != "adaptive":
        return wanted[0]
    from matrix.search import choose  # here: it imports numpy

    return choose.most_telling(view, view.belief, wanted)


def _steps(view: View, seed: int) -> list[Step]:
    found = check(view, seed)
    if found.fix is None:
        return [alone.step(view)]
    inside = [_inside_step(view, cell) for cell in found.inside]
    others = [
        alone.step(view),
        _again_step(view),
        _unproven_step(view, found),
        _puzzling_step(view, found),
        _outside_step(view, found, seed),
        unseen.elsewhere_step(view, found.elsewhere),
        _fix_step(view, found),
    ]
    steps = [*inside, *others, _bad_step(view, found), alone.late_step(view)]  # a cell inside that dies again spares the known-bad one
    if found.sufficient is False:
        steps.append(reduce_step(view))
    return steps


def cost(view: View, seed: int) -> int:
    """Runs that the verification still needs, as expected from the crash rate; 0 when there is nothing to verify."""
    found = check(view, seed)
    if found.fix is None:
        return 0
    deaths = len(found.inside) or int(found.bad_again is None)
    return len(alone.untried(view)) + max(0, found.clean_wanted - found.clean) + math.ceil(deaths / view.mixture().rate)


def clean_runs(view: View, changes: Cell) -> int:
    return view.ledger.tally(view.grid.apply(changes), "verify").survivals


def clean_wanted(view: View, fix: Cell) -> int:
    """Fresh clean runs of the fix, those that it has included, whose e-value against "it still crashes as before" is enough."""
    if view.belief is None:
        return clean_runs_for_e_value(view.mixture(verified=False), E_VALUE)
    return clean_runs(view, fix) + _more(view, view.belief, fix, _length(view, view.belief, fix).deadly)


def _clean_wanted(view: View, fix: Cell) -> int:
    return max(1 if view.sure else CLEAN, clean_wanted(view, fix))


def _more(view: View, belief: Belief, fix: Cell, deadly: Floats) -> int:
    """Further clean runs, each of which kills with `deadly` (rates,) where the crash is."""
    lived = belief.lived(view.ledger.fresh(view.grid.apply(fix)))
    if belief.survives(lived) <= 1 / E_VALUE:
        return 0
    return fewest(lambda runs: belief.survives(lived * (1 - deadly) ** runs) <= 1 / E_VALUE)


def _length(view: View, belief: Belief, fix: Cell) -> Length:
    """Natural runs, or longer ones where those verify the fix in less time."""
    from matrix.search import choose  # here: it imports numpy

    return min(
        choose.whole_lengths(view, belief),
        key=lambda each: max(1 if view.sure else CLEAN, _more(view, belief, fix, each.deadly)) * each.survived_s,
    )


def rejected(view: View, changes: Cell) -> bool:
    """No way out, though it avoids the main failure: with this very change it has died of it before (more rarely, say, or at the edge of
    a limit), or fresh runs keep ending in other ways, or no longer start.  Runs that were cut short reject nothing that lived before."""
    cell = view.grid.apply(changes)
    fresh, ever = view.ledger.tally(cell, "verify"), view.ledger.tally(cell)
    elsewise = fresh.other_deaths >= max(NEUTRAL, fresh.survivals) or (_cut_short(view, changes) and not ever.survivals)
    return bool(ever.deaths) or fresh.unavailable is not None or elsewise


def _cut_short(view: View, changes: Cell) -> bool:
    """Whether fresh runs of this fix mostly gave no answer: no more are asked for."""
    fresh = view.ledger.tally(view.grid.apply(changes), "verify")
    return fresh.neutral >= max(NEUTRAL, fresh.survivals)


def _fresh(view: View, cell: Mapping[str, Value]) -> State:
    """As View.state, from the verification runs alone."""
    tally = view.ledger.tally(cell, "verify")
    if tally.deaths:
        return "dies"
    if tally.survivals and tally.survivals >= view.needed:
        return "survives"
    return "unknown" if tally.neutral >= max(NEUTRAL, tally.survivals) or tally.unavailable else "open"


def _bad_again(view: View) -> bool | None:
    """A fresh death with the culprit: of a cell inside it, or of the known-bad cell itself."""
    bad, answer = _fresh(view, view.grid.known_bad), claim.answered(view)
    if bad == "dies" or any(answer.holds(cell) and _fresh(view, cell) == "dies" for cell in _fresh_cells(view)):
        return True
    return False if bad == "survives" else None


def _sufficiency(view: View, seed: int) -> tuple[bool | None, tuple[Cell, ...]]:
    """Whether cells inside the culprit die whatever the other axes are, and the cells that are still to be run.  A fresh run of any cell
    that is like the one that was drawn does as well."""
    if view.culprit() and view.combinations() and not view.cornered:
        return False, ()
    answer, fresh = claim.answered(view), _fresh_cells(view)
    wanted = _wanted(view, answer)
    died, tried, still_open = list[Cell](), 0, list[Cell]()
    for able, cell in claim.drawn(view, seed, answer):
        dead = next((each for each in fresh if each not in died and able(each) and _fresh(view, each) == "dies"), None)
        state = "dies" if dead else _fresh(view, cell)
        tried += 1
        died += [dead or cell] if state == "dies" else []
        if state == "survives":
            return False, ()
        if state == "open":
            still_open.append(cell)
        if len(died) + len(still_open) == wanted:
            break
    if still_open:
        return None, tuple(still_open)
    return (True if len(died) >= min(wanted, tried) else None), ()


def _wanted(view: View, answer: claim.Claim) -> int:
    """Cells inside that must die: one where the known-bad values say it all, of a crash set with several parts one of each."""
    if view.cornered and view.belief is not None:
        return len(view.belief.crash_set)
    return INSIDE if view.belief is None or not answer.culprit or answer.wider else 1


def _fresh_cells(view: View) -> list[Cell]:
    """Other cells than the known-bad one that have fresh answers."""
    cells = view.ledger.cells()
    return [cell for cell in cells if cell != view.grid.known_bad and view.ledger.tally(cell, "verify") != Tally()]


def _unproven(view: View, fix: Cell) -> tuple[Cell, ...]:
    """Of every axis of the culprit that the fix leaves alone, the nearest change, while it lacks the evidence that the fix needs: by
    bad luck an axis without a part in it survives too, and the crash set that was found to fit cannot tell."""
    if view.belief is None:
        return ()
    answer, belief = claim.answered(view), view.belief
    changes = [{axis: value} for axis, value in answer.nearest.items() if axis not in fix]
    return tuple(each for each in changes if not _shown(view, belief, each, answer))


def _shown(view: View, belief: Belief, changes: Cell, answer: claim.Claim) -> bool:
    """Whether fresh runs show that this change is a way out.  Those that found it count too, where they would be enough for the best of
    all axes that might have been named: as they are where every run dies."""
    missing = _more(view, belief, changes, _length(view, belief, changes).deadly)
    if not missing or not view.sure:
        return not missing
    alone = [(t, o) for t, o in view.ledger.entries() if answer.lifted(t.cell) == changes.keys()]
    main = view.ledger.main_signature()
    if any(outcome.kind == "died" and signature_of(outcome) == main for _, outcome in alone):
        return False
    return belief.excused(belief.lived(alone)) <= 1 / (E_VALUE * len(view.grid.axes))


def _unproven_step(view: View, found: Check) -> Step:
    for changes in found.unproven:
        cell = view.grid.apply(changes)
        tally = view.ledger.tally(cell, "verify")
        if view.belief is not None and not tally.pending and tally.neutral < NEUTRAL and not tally.unavailable:
            length = _length(view, view.belief, changes).max_steps
            why = f"Is {changed(changes)} a way out of its own?  A fresh run."
            return Want(cell=cell, purpose="verify", max_steps=length, why=why)
    return "wait" if any(view.ledger.tally(view.grid.apply(each), "verify").pending for each in found.unproven) else None


def _puzzling(view: View) -> tuple[Cell, ...]:
    """Cells of the crash set that have only survived whole runs, while no cell at all has both died and survived: the crash may come
    every time, and another crash set than any that was considered tell these cells from the others."""
    if view.belief is None or view.belief.sure:
        return ()
    main, died, lived = view.ledger.main_signature(), set[Key](), dict[Key, Cell]()
    for trial, outcome in view.ledger.entries():
        if view.belief.best_contains(trial.cell):
            key = view.grid.key(trial.cell)
            if outcome.kind == "died" and signature_of(outcome) == main:
                died.add(key)
            elif outcome.kind == "survived" and ran_whole(trial, outcome):
                lived[key] = trial.cell
    return () if died & lived.keys() else tuple(lived.values())


def _puzzling_step(view: View, found: Check) -> Step:
    tallies = [(cell, view.ledger.tally(cell)) for cell in found.puzzling]
    free = [cell for cell, tally in tallies if not tally.pending and tally.neutral < NEUTRAL]
    if not free:
        return "wait" if any(tally.pending for _, tally in tallies) else None
    cell = min(free, key=lambda cell: view.ledger.tally(cell).survivals)
    which = changed(view.grid.changes(cell)) or "the known-bad values"
    return Want(cell=cell, purpose="verify", why=f"It survived with {which}, where it should die at times: does it?")


def _outside_step(view: View, found: Check, seed: int) -> Step:
    if found.outside is not None or view.belief is None:
        return None
    return unseen.outside_step(view, seed, _length(view, view.belief, found.fix or {}).max_steps)


def _again_step(view: View) -> Step:
    """Where it seems to come every time, one more death is worth several survivals."""
    bad = view.grid.known_bad
    tally = view.ledger.tally(bad, "verify")
    if view.belief is None or not view.belief.sure or view.sure or tally.neutral >= NEUTRAL or tally.unavailable:
        return None
    if tally.pending:
        return "wait"
    return Want(cell=bad, purpose="verify", why="The known-bad cell once more: does it die every time?")


def _fix_step(view: View, found: Check) -> Step:
    assert found.fix is not None
    cell = view.grid.apply(found.fix)
    missing, pending = found.clean_wanted - found.clean, view.ledger.tally(cell, "verify").pending
    if missing <= pending:
        return "wait" if missing > 0 else None
    if _cut_short(view, found.fix):
        return None
    why = f"Fresh run {found.clean + pending + 1} of {found.clean_wanted} of the fix {changed(found.fix)}."
    length = _length(view, view.belief, found.fix).max_steps if view.belief is not None else None
    return Want(cell=cell, purpose="verify", max_steps=length, why=why)


def _bad_step(view: View, found: Check) -> Step:
    bad = view.grid.known_bad
    if found.bad_again is not None or _fresh(view, bad) != "open":
        return None
    if view.ledger.tally(bad, "verify").pending:
        return "wait"
    return Want(
        cell=bad,
        purpose="verify",
        why="The known-bad cell once more: does it still die while the fix survives?",
        max_steps=_till_death(view),
    )


def _till_death(view: View) -> int | None:
    """Steps of a run that is to die: natural, or more where that takes less time until a death."""
    from matrix.search import choose  # here: it imports numpy

    if (belief := view.belief) is None:
        return None
    lengths = choose.whole_lengths(view, belief)
    return min(lengths, key=lambda each: each.survived_s * (1 / belief.killed(each.deadly) - 1) + each.died_s).max_steps


def _inside_step(view: View, cell: Cell) -> Step:
    if view.ledger.tally(cell, "verify").pending:
        return "wait"
    culprit = changed({name: value for name, value in cell.items() if name in view.culprit()})
    which = f"With {culprit} and the other axes" if culprit else "Other axes"
    return Want(cell=cell, purpose="verify", max_steps=_till_death(view), why=f"{which} drawn at random: does it die in the same way?")
