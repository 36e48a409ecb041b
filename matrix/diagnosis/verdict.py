"""The verdict: what the search found (where), what the evidence says (why), and which change was shown to help."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Sequence

from matrix.diagnosis import catalogue, cures, edges, memory_form, pattern, ranking, samples, slow, stalls
from matrix.diagnosis.case import Case
from matrix.records import Cell, CrashPattern, Failure, Fix, Grade, Observation, Ranked, Status, Verdict, describe_cell
from matrix.search import Result


@dataclasses.dataclass(frozen=True, kw_only=True)
class Earlier:
    """Deaths that people had before the matrix."""

    steps: list[int]  # at which they came, as far as known
    logs: list[str]  # their logs, as the specification names them
    ranking: list[Ranked]  # causes that a log proves; []: no log, or it proves nothing
    differences: list[str]  # what may tell those runs from the runs of the matrix


def build(case: Case, *, name: str, complete: bool, wall_s: float, earlier: Earlier | None = None, told: str = "") -> Verdict:
    """The verdict after any number of attempts; `told`: what the death itself says, whatever the axes are."""
    result = case.result
    findings = ranking.collect(case)
    unexplained = None if result.reproduced or not complete else earlier
    ranked = ranking.rank(case, findings) if result.reproduced else _healthy(case)
    status = _status(result, ranked[0])
    if unexplained:
        ranked = _unreproduced(case, unexplained)
        status = "inconclusive" if ranked[0].cause == "unknown" else "suspected"
    narrow = edges.narrow(case, ranked[0].cause)
    fix = _fix(case, ranked[0].cause, result.fix, narrow) if result.fix else None
    others = [_fix(case, ranked[0].cause, other, narrow) for other in result.other_fixes]
    if fix and fix.kind == "hides":
        others, fix = [fix, *others], None
    cause = ranked[0].cause
    others.sort(key=lambda other: (other.kind == "hides", other.kind == "avoids", bool(cures.still_grows(case, cause, other.cell))))
    return Verdict(
        name=name,
        complete=complete,
        status=status,
        status_text=_unreproduced_text(case, unexplained, ranked) if unexplained else _text(case, status, ranked, told),
        ranking=ranked,
        fix=fix,
        other_fixes=others,
        crash_rate=result.crash_rate,
        innocent=list(result.innocent),
        not_confirmed=list(result.reasons) if status == "suspected" else [],
        failures=_failures(case, ranked, fix, others),
        runs=len(case.observations),
        steps=sum(outcome.steps or 0 for outcome in case.outcomes.values()),
        wall_s=round(wall_s, 1),
        ruled_out=ranking.ruled_out(case, findings, ranked) if result.reproduced else [],
        never_tested=list(result.never_tested),
        pattern=_pattern(case),
        outcomes=dict(case.outcomes),
        differences=unexplained.differences if unexplained else [],
    )


def _status(result: Result, first: Ranked) -> Status:
    """The search knows whether the contrast was shown; the cause must be known as well to call it diagnosed."""
    if result.status in ("diagnosed", "suspected") and first.cause == "unknown":
        return "inconclusive"
    if result.status == "diagnosed" and first.grade != "confirmed":
        return "suspected"
    if result.status == "inconclusive" and result.reproduced and first.cause != "unknown":
        return "suspected"  # why is clearer than where
    return result.status


def _healthy(case: Case) -> list[Ranked]:
    """No death: `healthy` after n clean runs has (n + 1) / (n + 2), from even odds against a crash rate that could be anything."""
    if case.result.status not in ("healthy", "not_reproduced"):
        return [_open("unknown", 1.0, "suspected", "No run has answered yet whether it dies.")]
    clean = len(case.survivors)  # what was cut short is no clean run
    probability = round((clean + 1) / (clean + 2), 4)
    return [
        _open("healthy", probability, "supported", f"Nothing died in {clean} runs."),
        _open("unknown", round(1 - probability, 4), "suspected", "A crash that is too rare to have been seen."),
    ]


def _unreproduced(case: Case, earlier: Earlier) -> list[Ranked]:
    """Causes of a death that no run here repeated: what its log proves, else unknown; never healthy."""
    if earlier.ranking:
        return earlier.ranking
    summary = f"A death was observed before, and none of {len(case.observations)} runs here repeats it."
    return [_open("unknown", 1.0, "suspected", summary)]


def _unreproduced_text(case: Case, earlier: Earlier, ranked: Sequence[Ranked]) -> str:
    """Say that the observed death stands, what its log proves, and what differs."""
    first = ranked[0]
    known = [f"at step {min(earlier.steps)}"] if earlier.steps else []
    where = ", ".join([*known, *earlier.logs[:1]])
    death = f"A death was observed before ({where})" if where else "A death was observed before"
    proof = f" Its log speaks for {first.cause} ({first.grade})." if first.cause != "unknown" else ""
    differs = "; ".join(f"({number}) {each}" for number, each in enumerate(earlier.differences, 1))
    return f"{case.result.text} {death}, so nothing is called healthy.{proof} What differs or may differ: {differs}.{slow.advice(case)}"


def _open(name: str, probability: float, grade: Grade, summary: str) -> Ranked:
    entry = catalogue.ENTRIES[name]
    return Ranked(cause=name, probability=probability, grade=grade, summary=summary, title=entry.title, clause=entry.clause)


def _pattern(case: Case) -> CrashPattern | None:
    """Of deaths in the known-bad cell, and of those that people had before; what was too slow ended when our limit was over."""
    if case.signature == slow.SIGNATURE:
        return None
    deaths = [
        pattern.Death(
            step=o.progress.last_step, wall_s=o.wall_s, memory_bytes=o.memory.last_tree_rss_bytes if memory_form.rises(o) else None
        )
        for o in case.bad_deaths
        if o.progress.last_step is not None
    ]
    deaths += [pattern.Death(step=step) for step in case.observed_steps]
    if not deaths:
        return None
    unseen = [o for o in case.observations if not o.trial.watched and o.trial.cell == case.known_bad]
    deaths += [pattern.Death(step=o.progress.last_step, wall_s=o.wall_s) for o in unseen if _died_alike_at_a_step(case, o)]
    survived = [o.progress.last_step or 0 for o in case.survivors_of(case.known_bad)]
    found = pattern.find(deaths, periods=_periods(case), survived_steps=survived)
    return found if found.laws else dataclasses.replace(found, text=_too_few(case, len(deaths)))


def _died_alike_at_a_step(case: Case, run: Observation) -> bool:
    return case.outcomes[run.attempt].signature == case.signature is not None and run.progress.last_step is not None


def _too_few(case: Case, known: int) -> str:
    """Say how many of all deaths the pattern could be read from."""
    died = sum(outcome.kind == "died" for outcome in case.outcomes.values()) + len(case.observed_steps)
    count = f"{known} of {died} deaths" if died != known else f"{known} death{'s'[: known != 1]}"
    return f"{count} came in the known-bad cell at a known step: no pattern can be told from fewer than {pattern.FEW}."


def _periods(case: Case) -> dict[str, int]:
    """Whole numbers of the known-bad cell: one of them may be after how many steps something happens."""
    return {axis: value for axis, value in case.known_bad.items() if type(value) is int and value > 1}


def _fix(case: Case, cause: str, fix: Fix, narrow: Callable[[Cell], str | None]) -> Fix:
    """The search's fix with what the evidence says about it: a change that is shown to remove the fault cures."""
    if fix.kind == "hides":
        return fix
    if why := cures.hides(case, fix.cell):
        return dataclasses.replace(fix, kind="hides", why=why, advice=f"Do not rely on it: {why}.")
    kind = cures.kind(case, cause, fix.cell)
    advice = f"{fix.advice} {cures.ADVICE[cause]}" if kind == "cures" and cause in cures.ADVICE else fix.advice
    if left := cures.still_grows(case, cause, fix.cell):
        advice = f"{advice} It is no cure: {left}."
    short = [outcome for outcome in case.outcomes_of(fix.cell) if outcome.kind == "survived" and not outcome.whole]
    if short:
        ended = f"after {min(outcome.seconds for outcome in short):.0f} s or more, far longer than any death took"
        advice = f"{advice} {len(short)} of its clean runs were ended {ended}."
    if cause == samples.CORRUPT:
        advice = f"{advice} It is no cure: the record stays in the data, and another order or batch meets it later."
    if near := narrow(fix.cell):
        advice = f"{advice} It survives at the edge: {near}."
    return dataclasses.replace(fix, kind=kind, advice=advice)


def _failures(case: Case, ranked: list[Ranked], fix: Fix | None, others: list[Fix]) -> list[Failure]:
    """One entry per signature, the main one first."""
    died_of = _died_of(case)
    counts = Counter(died_of.values())
    ordered = sorted(counts, key=lambda signature: (signature != case.signature, -counts[signature]))
    found = []
    for number, signature in enumerate(ordered):
        main = signature == case.signature
        entries = ranked if main else _other_ranking(case, signature)
        found.append(
            Failure(
                id=_letters(number),
                signature=signature,
                main=main,
                ranking=entries,
                attempts=[attempt for attempt, of in died_of.items() if of == signature],
                fix=fix if main else None,
                other_fixes=others if main else [],
                crash_rate=case.result.crash_rate if main else None,
            )
        )
    return found


def _other_ranking(case: Case, signature: str) -> list[Ranked]:
    """Of a failure beside the main one: its own evidence, but no contrast, hence never confirmed and no culprit.

    Probes were runs of the known-bad cell, and about the main failure: what they changed says nothing of this one."""
    unproven = dataclasses.replace(case.result, confirmed=False, culprit={}, interactions=[])
    unprobed = [o for o in case.observations if not o.trial.probes]
    other = dataclasses.replace(case, signature=signature, result=unproven, observations=unprobed, no_probe={})
    return ranking.rank(other, ranking.collect(other))


def _died_of(case: Case) -> dict[str, str]:
    """The signature of every attempt that died, but for those without instruments: who began their death is not known, so theirs is no
    kind of failure."""
    unseen = {observation.attempt for observation in case.observations if not observation.trial.watched}
    return {attempt: outcome.signature for attempt, outcome in case.outcomes.items() if outcome.signature and attempt not in unseen}


def _letters(number: int) -> str:
    """A, B, ..., Z, AA, AB, ..."""
    text = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        text = chr(ord("A") + rest) + text
    return text


def _text(case: Case, status: Status, ranked: Sequence[Ranked], told: str = "") -> str:
    """One sentence: what is known, no more."""
    result, first = case.result, ranked[0]
    beside = (
        f" Beside it, {len(result.other_signatures)} other kind(s) of failure were seen: {', '.join(result.other_signatures)}."
        if result.other_signatures
        else ""
    )
    if status == "diagnosed":
        where = describe_cell({axis: "|".join(map(str, values)) for axis, values in first.culprit.items()}) or "every cell"
        return f"Diagnosed: {first.cause}, where {where}.{beside}"
    if status == "suspected" and told:
        return f"Suspected: {first.cause} ({first.grade}). {told}, so nothing here can confirm or cure it.{beside}"
    if status == "suspected":
        open_rival = next((rival.text for rival in first.rivals if not rival.told), "the evidence for the cause is not direct enough")
        reason = result.reasons[0] if result.reasons else open_rival
        return f"Suspected: {first.cause}; not confirmed, because {reason}.{beside}"
    if status in ("healthy", "not_reproduced"):
        return result.text + stalls.crowded(case) + slow.advice(case)
    if not result.reproduced:
        return f"Inconclusive: {result.text}{slow.advice(case)}{beside}"
    return f"Inconclusive: it died of {result.main_signature}, but the evidence does not say why.{beside}"
