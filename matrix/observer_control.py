"""Whether being watched changes the outcome: the known-bad cell once without hook, samples, cores or events of the kernel.

An observer can hide the very fault (an import that sets a variable, a sampler that shifts a race), or make one.  The run is
asked for last, counts against max_runs like any other, and is evidence for nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matrix.records import Cell, Observation, ObserverControl, Outcome, Trial

USUAL = 0.25  # share of the watched runs that must have ended like the unwatched one to call it the same
SURE = 0.1  # a difference that chance alone makes less often than this is called a change
WHY = "The same without being watched: does the observer change the outcome?"


def trial(number: int, observations: Sequence[Observation], known_bad: Cell, *, max_runs: int) -> Trial | None:
    """The control run; None when there is one, when nothing can be compared with it, or when the runs are used up."""
    watched = _watched(observations, known_bad)
    if not watched or _control(observations) or len(observations) >= max_runs:
        return None
    lengths = [one.trial.max_steps for one in watched]
    longest = None if None in lengths else max(length for length in lengths if length is not None)
    return Trial(id=number, cell=dict(known_bad), max_steps=longest, purpose="control", watched=False, why=WHY)


def result(
    observations: Sequence[Observation], outcomes: Mapping[str, Outcome], known_bad: Cell, *, wanted: bool, complete: bool
) -> ObserverControl | None:
    """What the control run showed, or why there is none; None: it may still come."""
    bare = _control(observations)
    if bare is None:
        why = "the runs or the time were used up" if wanted else "evidence.control is false"
        text = f"Whether being watched changes the outcome was not tested: {why}."
        return ObserverControl(attempt=None, changed=None, text=text) if complete or not wanted else None
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


def _control(observations: Sequence[Observation]) -> Observation | None:
    return next((one for one in observations if not one.trial.watched), None)


def _watched(observations: Sequence[Observation], known_bad: Cell) -> list[Observation]:
    return [one for one in observations if one.trial.watched and one.trial.cell == known_bad and not one.trial.probes]
