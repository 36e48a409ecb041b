"""What the search knows, for the diagnosis, for reports and for people; honest after any number of answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from matrix.records import Cell, Fix, Innocent, Interaction, Rate, RateInterval, Status, Value
from matrix.search import calibrate, claim, verify
from matrix.search.decode import Combination, View
from matrix.search.grid import Change
from matrix.search.ledger import Tally, signature_of
from matrix.search.stats import Beta, upper95
from matrix.search.words import changed, learnt_of, never_tested, tried

LEADING = 3  # crash sets that are named


@dataclasses.dataclass(frozen=True, kw_only=True)
class Result:
    """Where it dies, and the way out.

    `probability`: that further runs of single changes would leave `culprit` as it is (0.0: the crash was not reproduced).
    `confirmed`: crash with the culprit, survival without it, the same signature, fresh runs; `reasons` say what is missing."""

    status: Status
    reproduced: bool
    culprit: dict[str, list[Value]]
    interactions: list[Interaction]
    probability: float
    fix: Fix | None
    other_fixes: list[Fix]
    crash_rate: RateInterval | None  # of the known-bad cell; None: it gave no answer yet
    confirmed: bool
    reasons: list[str]
    main_signature: str | None
    other_signatures: dict[str, int]
    never_tested: list[str]
    runs: int
    steps: int  # of all runs together; 0 when the program shows none
    text: str  # the first sentence of explain(): what was learnt
    verify_runs: int = 0  # of `runs`: fresh ones, not used to find the answer; the others led to it
    leading: tuple[tuple[str, float], ...] = ()  # the likeliest crash sets with their probability; empty when none can be said
    why_next: str | None = None  # why the next run was chosen; None: nothing is asked
    innocent: tuple[Innocent, ...] = ()  # axes that take no part
    crash_set: tuple[dict[str, list[Value]], ...] = ()  # in full, once it is decided: a cell dies that agrees with any of these

    def dies(self, cell: Mapping[str, Value]) -> bool:
        """Whether the crash set says that this cell dies; nothing does before it is decided."""
        return any(claim.like(cell, part) for part in self.crash_set)

    @property
    def find_runs(self) -> int:
        """Runs that led to the answer: calibration and search."""
        return self.runs - self.verify_runs

    def explain(self) -> str:
        """A few lines for people."""
        lines = [self.text, *(each.text for each in self.interactions)]
        if self.fix:
            lines.append(f"Way out: {changed(self.fix.set)} ({tried(self.fix)}).")
        lines += [f"{'Hides it' if fix.kind == 'hides' else 'Also survives'}: {changed(fix.set)}." for fix in self.other_fixes]
        lines += [f"Not confirmed: {reason}." for reason in self.reasons]
        if self.reasons and self.leading:
            lines.append("Leading: " + ", or ".join(f"{words} ({share:.0%})" for words, share in self.leading) + ".")
        if self.why_next:
            lines.append(f"Next: {self.why_next}")
        lines += [f"Never tested: {each}." for each in self.never_tested]
        return "\n".join(lines)


def build(view: View, *, seed: int, complete: bool, stopped: str | None, why_next: str | None = None) -> Result:
    """The result of the answers in `view`; `complete`: nothing more will be asked, and why if that is not for being done."""
    tally = view.ledger.tally(view.grid.known_bad)
    entries = [outcome for _, outcome in view.ledger.entries()]
    reproduced = tally.deaths > 0
    found = verify.check(view, seed) if reproduced else verify.Check(fix=None)
    reasons = _reasons(view, found, tally)
    culprit, probability = _answer(view, decided=not (complete and reasons)) if reproduced else ({}, 0.0)
    guessed = culprit != view.culprit()
    if guessed:
        likeliest = changed({axis: "|".join(map(str, values)) for axis, values in culprit.items()})
        reasons.insert(0, f"the likeliest conditions ({likeliest}) have probability {probability:.2f}, below {view.confidence:g}")
    if reasons and stopped:
        reasons.append(f"the search was ended: {stopped}")
    main = view.ledger.main_signature()
    return Result(
        status=_status(view, culprit or found.fix, complete=complete, confirmed=not reasons),
        reproduced=reproduced,
        culprit=culprit,
        interactions=_interactions(view) if reproduced and not guessed else [],
        probability=probability,
        fix=_tried(view, found) or (_likely_fix(view) if guessed else None),
        other_fixes=_other_fixes(view, found) if reproduced else [],
        crash_rate=_crash_rate(tally),
        confirmed=not reasons,
        reasons=reasons,
        main_signature=main,
        other_signatures={s: n for s, n in _signatures(view).items() if s != main},
        never_tested=never_tested(view),
        runs=view.ledger.runs,
        steps=sum(outcome.steps or 0 for outcome in entries),
        text=learnt_of(view, culprit, probability),
        verify_runs=view.ledger.runs - sum(outcome.kind != "unavailable" for _, outcome in view.ledger.found()),
        leading=tuple(view.belief.leading(LEADING)) if view.belief is not None else (),
        why_next=why_next,
        innocent=tuple(_innocent(view, culprit)) if reproduced else (),
        crash_set=tuple(view.belief.crash_set) if view.belief is not None and view.belief.decided else (),
    )


def _answer(view: View, *, decided: bool) -> tuple[dict[str, list[Value]], float]:
    """The culprit with its probability.  Where nothing more will be asked and the runs did not suffice, what is likelier than not tells
    more than nothing, as long as its probability stands beside it."""
    likely = {} if decided else view.likely()
    probability = view.probability(likely) if likely else 0.0
    return (likely, probability) if probability > view.probability() else (view.culprit(), view.probability())


# ------------------------------------------------------------------ facts
def _signatures(view: View) -> dict[str, int]:
    counts: dict[str, int] = {}
    for _, outcome in view.ledger.entries():
        if outcome.kind == "died":
            counts[signature_of(outcome)] = counts.get(signature_of(outcome), 0) + 1
    return counts


def _crash_rate(tally: Tally) -> RateInterval | None:
    """Equal-tailed interval of the Jeffreys posterior; without a death from 0 to the exact one-sided 95 % limit."""
    if not tally.deaths + tally.survivals:
        return None
    rate = Beta.after(tally.deaths, tally.survivals)
    if not tally.deaths:
        return RateInterval(low=0.0, median=rate.quantile(0.5), high=upper95(tally.survivals))
    return RateInterval(low=rate.quantile(0.025), median=rate.quantile(0.5), high=rate.quantile(0.975))


def _interactions(view: View) -> list[Interaction]:
    """One for each group of axes that survive together, and what the answer is in full where no list of values can say it."""
    groups: dict[tuple[str, ...], list[Combination]] = {}
    for each in view.combinations():
        groups.setdefault(tuple(each.changes), []).append(each)
    texts = {axes: [_text(group)] for axes, group in groups.items()}
    if view.belief is not None and view.belief.decided and view.belief.trading:
        texts.setdefault(tuple(view.belief.trading), []).append(f"In full, it dies with {view.belief.leading(1)[0][0]}.")
    return [Interaction(axes=list(axes), text=" ".join(lines)) for axes, lines in texts.items()]


def _text(group: list[Combination]) -> str:
    changes = ", or ".join(changed(each.changes) for each in group)
    if any(each.ask is not None for each in group):
        return f"It survives with {changes}; not all of that may be needed."
    return f"It survives with {changes}, but not when any one of these is taken back."


def _innocent(view: View, culprit: Mapping[str, object]) -> Iterator[Innocent]:
    """Yield the axes of which every other value that can run is known to die, and died where it was run."""
    together = {axis for each in view.combinations() for axis in each.changes}
    together |= set(view.belief.trading) if view.belief is not None and view.belief.decided else set()
    for name in view.grid.axes:
        states = {change: state for change, state in view.states().items() if change[0] == name and state != "unavailable"}
        deaths = _deaths_elsewhere(view, name)
        if name not in culprit and name not in together and deaths and states and set(states.values()) == {"dies"}:
            yield Innocent(axis=name, deaths=deaths, probability=round(min(_dies(view, change) for change in states), 4))


def _deaths_elsewhere(view: View, axis: str) -> int:
    """Count the deaths of the main signature with another value of that axis than the known-bad one."""
    main, value = view.ledger.main_signature(), view.grid.known_bad[axis]
    entries = view.ledger.entries()
    return sum(o.kind == "died" and signature_of(o) == main and t.cell[axis] != value for t, o in entries)


def _dies(view: View, change: Change) -> float:
    """Return how likely a run with that change alone is to be in the crash set."""
    if view.tally(change).deaths:
        return 1.0
    return 1.0 if view.belief is None else view.belief.dies(view.grid.apply(dict([change])))


# ------------------------------------------------------------------ fixes
def _fix(view: View, changes: Cell, found: verify.Check | None = None) -> Fix:
    """Clean runs are the fresh ones where there are any: the runs that chose the fix flatter it."""
    cell = view.grid.apply(changes)
    fresh = view.ledger.tally(cell, "verify")
    tally = fresh if fresh.survivals else view.ledger.tally(cell)
    return Fix(
        kind="avoids",
        set=dict(changes),
        cell=cell,
        advice=f"Run with {changed(changes)}.",
        clean_runs=tally.survivals,
        clean_steps=tally.steps,
        failure_rate_upper_95=Rate(value=upper95(tally.survivals)) if tally.survivals else None,
        verified=found is not None and found.verified,
    )


def _tried(view: View, found: verify.Check) -> Fix | None:
    """The fix under test, once it has survived at all."""
    fix = _fix(view, found.fix, found) if found.fix else None
    return fix if fix and fix.clean_runs else None


def _likely_fix(view: View) -> Fix | None:
    """Of the changes that probably survive the cheapest; it is not verified."""
    able = (dict([change]) for change in view.likely_survivors())
    return next((_fix(view, changes) for changes in able if not verify.rejected(view, changes)), None)


def _other_fixes(view: View, found: verify.Check) -> list[Fix]:
    """Only what was run and survived, whatever the other runs say about the rest."""
    ways = [_fix(view, changes) for changes in view.ways_out() if changes != found.fix and not verify.rejected(view, changes)]
    hidden = [change for change, state in view.states().items() if state == "survives" and view.barred(dict([change]))]
    return [fix for fix in ways + [_hiding(view, change) for change in hidden] if fix.clean_runs]


def _hiding(view: View, change: Change) -> Fix:
    why = view.vetoed.get(change, "the specification says that this value hides the fault instead of removing it")
    fix = _fix(view, dict([change]))
    return dataclasses.replace(fix, kind="hides", why=why, advice=f"Do not rely on {changed(fix.set)}: {why}.")


# ------------------------------------------------------------------ judgement
def _status(view: View, named: Mapping[str, object] | None, *, complete: bool, confirmed: bool) -> Status:
    tally = view.ledger.tally(view.grid.known_bad)
    if not tally.deaths:
        if tally.survivals == 0 or not complete:
            return "inconclusive"
        claimed = any(each.died for each in view.grid.spec.observed)
        return (
            "healthy" if calibrate.exposure(view.ledger) >= calibrate.CLEAN_RUNS and not claimed and not tally.neutral else "not_reproduced"
        )
    if confirmed:
        return "diagnosed"
    return "suspected" if named else "inconclusive"


def _reasons(view: View, found: verify.Check, tally: Tally) -> list[str]:
    """Why the answer is not confirmed; empty when it is."""
    if not tally.deaths:
        return ["the crash was not reproduced"]
    if found.fix is None:
        if view.ways_out():
            return ["no contrast: whatever survives has died of it at times too, or ends in other ways"]
        alive = any(state == "open" and view.tally(change).survivals for change, state in view.states().items())
        return ["no contrast: nothing that may be a fix " + ("has survived often enough" if alive else "survives")]
    reasons = []
    if not found.verified:
        reasons.append(f"the fix has {found.clean} of {found.clean_wanted} fresh clean runs")
    if found.bad_again is not True:
        reasons.append("no fresh run of the known-bad cell " + ("dies any more" if found.bad_again is False else "has died yet"))
    if found.sufficient is not True:
        reasons.append(_insufficient(view, found))
    reasons += [f"{changed(changes)} has too few fresh clean runs to show that its axis takes part" for changes in found.unproven]
    if found.elsewhere is not None:
        reasons.append("too few cells have been run to tell a rule from chance")
    if found.puzzling:
        cells = ", or ".join(changed(view.grid.changes(cell)) or "the known-bad cell" for cell in found.puzzling[:LEADING])
        reasons.append(f"it is said to come at times only, but no cell has both died and survived, and {cells} only survived")
    if view.outside:
        reasons.append("the answers fit no set of conditions that was considered")
    if found.outside is not True:
        axes = f"{' and '.join(view.culprit())} changed {'at once' if len(view.culprit()) > 1 else 'beside other axes'}"
        reasons.append(f"with {axes} it " + ("dies too" if found.outside is False else "has not survived often enough"))
    if view.probability() < view.confidence:
        reasons.append(f"the culprit has probability {view.probability():.2f}, below {view.confidence:g}")
    return reasons


def _insufficient(view: View, found: verify.Check) -> str:
    if found.sufficient is None:
        return "not enough random cells inside the culprit have died alike"
    axes = sorted({axis for each in view.combinations() for axis in each.changes}) or ["other axes"]
    return f"the culprit is not sufficient: a cell inside it survives ({' and '.join(axes)} interact)"
