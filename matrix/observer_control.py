"""Whether being watched changes the outcome: one run without hook, samples, cores or events of the kernel.

An observer can hide the very fault (an import that sets a variable, a sampler that shifts a race), or make one.  Where every run dies
and its end alone tells it from others, a fresh death that the search asks for anyway does for both; else the known-bad cell is run
once more at last, which is evidence for nothing else.  Either counts against max_runs like any other run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from matrix.diagnosis import judge
from matrix.records import Cell, Observation, ObserverControl, Outcome, Trial, describe_cell

USUAL = 0.25  # share of the watched runs that must have ended like the unwatched one to call it the same
SURE = 0.1  # a difference that chance alone makes less often than this is called a change
WHY = "The same without being watched: does the observer change the outcome?"


def trial(
    number: int, observations: Sequence[Observation], outcomes: Mapping[str, Outcome], known_bad: Cell, *, max_runs: int
) -> Trial | None:
    """The control run; None when there is one, when nothing can be compared with it, or when the runs are used up."""
    watched = _watched(observations, known_bad)
    if not watched or _control(observations, outcomes, known_bad) or len(observations) >= max_runs:
        return None
    lengths = [one.trial.max_steps for one in watched]
    longest = None if None in lengths else max(length for length in lengths if length is not None)
    return Trial(id=number, cell=dict(known_bad), max_steps=longest, purpose="control", watched=False, why=WHY)


def bare(asked: Trial, observations: Sequence[Observation], outcomes: Mapping[str, Outcome]) -> Trial:
    """A fresh run that is to die, without being watched; as it was asked for where its end alone would not tell how it died."""
    if _signature(observations, outcomes) is None:
        return asked
    return dataclasses.replace(asked, watched=False, why=f"{asked.why}  Unwatched, to see whether watching changes the outcome.")


def told(seen: Observation, observations: Sequence[Observation], outcomes: Mapping[str, Outcome]) -> Outcome | None:
    """What an unwatched run says of its cell: a death when it died of all that watched ones died of, and else only that it lived so
    long, so that it is asked for again.  None: it was no answer to a question about its cell."""
    if seen.trial.purpose == "control":
        return None
    outcome = outcomes[seen.attempt]
    if outcome.kind in ("unavailable", "censored") or _alike(seen, observations, outcomes):
        return outcome
    return Outcome(kind="censored", steps=outcome.steps, seconds=outcome.seconds, reason="unwatched it did not end as the watched runs")


def _alike(seen: Observation, observations: Sequence[Observation], outcomes: Mapping[str, Outcome]) -> bool:
    """Whether an unwatched run died of what all watched deaths are of."""
    outcome = outcomes[seen.attempt]
    return outcome.kind == "died" and outcome.signature == _signature(observations, outcomes) is not None


def _signature(observations: Sequence[Observation], outcomes: Mapping[str, Outcome]) -> str | None:
    """The one of all watched deaths, where it is told without instruments too; None: there are several, or only what instruments or
    other runs show tells it, or the limit that killed is guarded by the tool's own looks."""
    deaths = [one for one in observations if one.trial.watched and not one.trial.probes and outcomes[one.attempt].kind == "died"]
    signatures = {outcomes[one.attempt].signature for one in deaths}
    shown = all(
        one.exit.ended_by != "memory_watchdog" and judge.outcome(one).kind == "died" and judge.from_outside(one) in signatures
        for one in deaths
    )
    return signatures.pop() if len(signatures) == 1 and shown else None


def result(
    observations: Sequence[Observation], outcomes: Mapping[str, Outcome], known_bad: Cell, *, wanted: bool, complete: bool
) -> ObserverControl | None:
    """What the control run showed, or why there is none; None: it may still come."""
    bare = _control(observations, outcomes, known_bad)
    if bare is None:
        why = "the runs or the time were used up" if wanted else "evidence.control is false"
        text = f"Whether being watched changes the outcome was not tested: {why}."
        return ObserverControl(attempt=None, changed=None, text=text) if complete or not wanted else None
    if bare.trial.cell != known_bad:
        changes = describe_cell({axis: value for axis, value in bare.trial.cell.items() if known_bad[axis] != value})
        text = f"Unwatched it died too, and alike, where it was to die with {changes}: watching does not make the difference."
        return ObserverControl(attempt=bare.attempt, changed=False, text=text)
    if outcomes[bare.attempt].kind == "died" and not _ends_alike(bare, observations, outcomes, known_bad):
        text = f"Unwatched it died of {outcomes[bare.attempt].signature}, of which no watched run died: one run cannot tell why."
        return ObserverControl(attempt=bare.attempt, changed=None, text=text)
    kinds = [
        kind
        for one in _watched(observations, known_bad)
        if (kind := outcomes[one.attempt].kind) == "died" or one.trial.max_steps == bare.trial.max_steps  # a short run survives more
    ]
    changed, text = compare(outcomes[bare.attempt], deaths=kinds.count("died"), survivals=kinds.count("survived"))
    return ObserverControl(attempt=bare.attempt, changed=changed, text=text)


def compare(bare: Outcome, *, deaths: int, survivals: int) -> tuple[bool | None, str]:
    """Whether the unwatched outcome is another one than the watched runs of the same cell had, in a sentence.

    A cell that dies now and then may survive once by chance: by the posterior mean of its rate from a uniform prior."""
    runs = deaths + survivals
    if bare.kind not in ("died", "survived") or not runs:
        return None, f"One run without being watched tells nothing: {bare.reason or 'it did not come to an end of its own'}."
    died = bare.kind == "died"
    same, seen = (deaths, f"{deaths} of {runs}") if died else (survivals, f"{survivals} of {runs}")
    word = "died" if died else "survived"
    if same and same / runs < USUAL:
        return None, f"Unwatched it {word}, as {seen} watched runs did: one run cannot tell whether watching makes the difference."
    if same:
        return False, f"Unwatched it {word} too, as {seen} watched runs did: watching does not make the difference."
    by_chance = 1 / (runs + 2)
    if by_chance < SURE:
        other = "survived" if died else "died"
        return True, f"Unwatched it {word}, and all {runs} watched runs {other}: watching changes the outcome."
    return None, f"Unwatched it {word}, which no watched run did, but {runs} watched run(s) are too few to tell that from chance."


def _ends_alike(bare: Observation, observations: Sequence[Observation], outcomes: Mapping[str, Outcome], known_bad: Cell) -> bool:
    """Whether a watched run of the known-bad cell died as this one did, by what can be seen of either without instruments, or none did."""
    deaths = [one for one in _watched(observations, known_bad) if outcomes[one.attempt].kind == "died"]
    return not deaths or judge.from_outside(bare) in {judge.from_outside(one) for one in deaths}


def _control(observations: Sequence[Observation], outcomes: Mapping[str, Outcome], known_bad: Cell) -> Observation | None:
    """The unwatched run that has an answer: of the known-bad cell any, of another one a death like those that were watched."""
    unwatched = [one for one in observations if not one.trial.watched]
    alike = (one for one in unwatched if _alike(one, observations, outcomes))
    return next((one for one in unwatched if one.trial.cell == known_bad), None) or next(alike, None)


def _watched(observations: Sequence[Observation], known_bad: Cell) -> list[Observation]:
    return [one for one in observations if one.trial.watched and one.trial.cell == known_bad and not one.trial.probes]
