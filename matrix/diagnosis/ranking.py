"""From findings to a ranking: log likelihood ratios are added, an unknown cause always stays in the running."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from matrix.diagnosis import catalogue, rivals
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import SHARED
from matrix.records import Fact, Finding, Grade, NotCollected, Ranked, RuledOut

UNKNOWN_NATS = 2.0  # what a cause's evidence must beat before it is likelier than "something that is not in the catalogue"
CAPS: dict[Grade, float] = {"confirmed": 0.98, "supported": 0.9, "suspected": 0.7}  # evidence without a contrast proves less than it seems
RULED_OUT = -3.0
SPECIFIC = 2.5  # nats of evidence that is for this cause and not for its whole family
ONCE = ("other thread", "short file", "recursion", "heap", "checked heap", "sender", "given back")  # mostly missed, so seen once is seen
EXCLUDES = ("other thread", "short file", "given back")  # of those: what is seen once speaks against the other causes as well
ELSEWHERE = 0.5  # of what deaths in other cells say where those of the known-bad cell say nothing: they may be another failure
MARGIN = 2.0  # nats before the next cause: evidence that several causes share confirms none of them


Said = Mapping[str, Mapping[str, float]]  # cause -> rule -> nats


def collect(case: Case) -> list[Finding]:
    return list(catalogue.findings(case))


def rank(case: Case, findings: Sequence[Finding]) -> list[Ranked]:
    """Causes by probability, with `unknown` among them; the probabilities sum to 1."""
    grouped = _by_cause(findings)
    said = {cause: by_rule(case, of_cause) for cause, of_cause in grouped.items()}
    scores = {cause: sum(rules.values()) for cause, rules in said.items()}
    scores["unknown"] = UNKNOWN_NATS
    highest = max(scores.values())
    weights = {cause: math.exp(score - highest) for cause, score in scores.items()}
    whole = sum(weights.values())
    shares = {cause: weight / whole for cause, weight in weights.items()}
    first = max((cause for cause in shares if cause != "unknown"), key=lambda cause: shares[cause], default="unknown")
    if first != "unknown":
        _keep_open(shares, first, CAPS[_grade_of(case, said, first)])
    named = {cause: round(share, 4) for cause, share in shares.items() if cause != "unknown" and (share >= 0.001 or cause == first)}
    named["unknown"] = round(1 - sum(named.values()), 4)  # with what the least likely causes had
    ordered = sorted(named, key=lambda cause: -named[cause])
    leading = {first, ordered[0]}
    return [_ranked(case, grouped.get(cause, []), said, cause, named[cause], leading=cause in leading) for cause in ordered]


def by_cause_and_rule(case: Case, findings: Iterable[Finding]) -> Said:
    """Return what each rule says of each cause, in nats."""
    return {cause: by_rule(case, of_cause) for cause, of_cause in _by_cause(findings).items()}


def total(case: Case, findings: Iterable[Finding]) -> float:
    """Sum over rules of what each says: repeats of one rule are not independent evidence."""
    return sum(by_rule(case, findings).values())


def by_rule(case: Case, findings: Iterable[Finding]) -> dict[str, float]:
    """What each rule says of one cause: the median over the deaths that it speaks about, those of the known-bad cell where there are any.

    One death that deviates outvotes nobody; but where a rule mostly misses what it looks for, seen once is seen."""
    known_bad = {o.attempt for o in case.observations if o.trial.cell == case.known_bad}
    weights: dict[str, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for finding in findings:
        weights[finding.rule][finding.attempt not in known_bad].append(finding.weight)
    said = {}
    for rule, (ours, others) in weights.items():
        every = ours + others
        if rule in ONCE and max(every) > 0:
            said[rule] = max(every)
        elif rule in EXCLUDES and min(every) < 0:
            said[rule] = min(every)
        else:
            said[rule] = statistics.median(ours) if ours else ELSEWHERE * max(0.0, statistics.median(others))
    return said


def _grade_of(case: Case, said: Said, cause: str) -> Grade:
    """confirmed needs a contrast that fresh runs repeated, and evidence for this cause in particular."""
    mine = said.get(cause, {})
    score, specific = sum(mine.values()), sum(weight for rule, weight in mine.items() if rule != SHARED)
    others = max((sum(rules.values()) for name, rules in said.items() if name != cause), default=0.0)
    clear = score >= UNKNOWN_NATS + 2 and specific >= SPECIFIC and score >= others + MARGIN
    if case.result.confirmed and clear and rivals.open_question(case, said, cause) is None:
        return "confirmed"
    return "supported" if score >= UNKNOWN_NATS + 1 else "suspected"


def ruled_out(case: Case, findings: Sequence[Finding], ranking: Sequence[Ranked]) -> list[RuledOut]:
    likely = {entry.cause for entry in ranking if entry.probability > 0.01}
    found = []
    for cause, of_cause in sorted(_by_cause(findings).items()):
        if cause not in likely and total(case, of_cause) <= RULED_OUT:
            strongest = min(of_cause, key=lambda finding: finding.weight)
            why = f"{strongest.fact} (attempt {strongest.attempt}, {strongest.file})"
            found.append(RuledOut(cause=cause, why=why, title=catalogue.ENTRIES[cause].title))
    return found


def _keep_open(shares: dict[str, float], first: str, cap: float) -> None:
    """What the evidence cannot carry goes to `unknown`."""
    excess = shares[first] - cap
    if excess > 0:
        shares[first] -= excess
        shares["unknown"] += excess


def _ranked(case: Case, mine: Sequence[Finding], said: Said, cause: str, probability: float, *, leading: bool) -> Ranked:
    """`leading`: where it dies is known whatever the cause, so the first entry and the first named cause tell it."""
    rules, entry = said.get(cause, {}), catalogue.ENTRIES[cause]
    form = _form(mine, rules)
    words = entry.forms.get(form, entry)
    return Ranked(
        cause=cause,
        probability=probability,
        grade=_grade_of(case, said, cause) if leading and cause != "unknown" else "suspected",
        summary=_summary(cause, mine),
        culprit=case.result.culprit if leading else {},
        interactions=list(case.result.interactions) if leading else [],
        supports=_facts(finding for finding in mine if finding.weight > 0 and rules[finding.rule] > 0),
        contradicts=_facts(finding for finding in mine if finding.weight < 0 and rules[finding.rule] < 0),
        not_collected=_not_collected(case) if leading else [],
        title=words.title,
        clause=words.clause,
        remedies=list(words.remedies),
        form=form if form in entry.forms else "",
        references=list(entry.references),
        rivals=rivals.told_apart(case, said, cause) if leading else [],
    )


def _form(findings: Sequence[Finding], rules: Mapping[str, float]) -> str:
    """Return the form of a cause that its strongest fact of a form shows; "": none does."""
    shown = [finding for finding in findings if finding.form and finding.weight > 0 and rules[finding.rule] > 0]
    return max(shown, key=lambda finding: finding.weight).form if shown else ""


def _summary(cause: str, findings: Sequence[Finding]) -> str:
    if cause == "unknown":
        return "Something that the catalogue of causes does not hold, or that this machine's evidence cannot tell apart."
    best = max(findings, key=lambda finding: finding.weight, default=None)
    return f"{best.fact[0].upper()}{best.fact[1:]}." if best and best.weight > 0 else "Nothing speaks for it."


def _facts(findings: Iterable[Finding]) -> list[Fact]:
    """The strongest finding of each rule, strongest first."""
    best: dict[str, Finding] = {}
    for finding in findings:
        if finding.rule not in best or abs(finding.weight) > abs(best[finding.rule].weight):
            best[finding.rule] = finding
    ordered = sorted(best.values(), key=lambda finding: -abs(finding.weight))
    return [Fact(fact=finding.fact, attempt=finding.attempt, file=finding.file) for finding in ordered]


def _not_collected(case: Case) -> list[NotCollected]:
    unique = {(missing.what, missing.why): missing for run in [*case.deaths, *case.probed] for missing in run.not_collected}
    return [*unique.values(), *(NotCollected(what=f"probe {name}", why=why) for name, why in case.no_probe.items())]


def _by_cause(findings: Iterable[Finding]) -> dict[str, list[Finding]]:
    grouped: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        grouped[finding.cause].append(finding)
    return grouped
