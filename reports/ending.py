"""How one attempt ended, in the words of the matrix table.

The verdict says what each attempt was judged to be; only where it does not (older files, no verdict yet) is the
exit status read here, by the plainest rule.
"""

from __future__ import annotations

import dataclasses

from matrix.records import Exit, Observation, OutcomeKind, Verdict

ENDED_BY_US = {
    "startup": "hang before the first step",
    "idle": "hang: no output, no progress",
    "stall": "stall: output, but no progress",
    "memory_watchdog": "our memory watchdog ended it",
    "starved": "it got no processor",
    "wall": "our time limit",
    "length": "our step limit",
    "interrupt": "interrupted",
    "nobody": "it still ran",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ending:
    kind: OutcomeKind
    how: str  # "SIGABRT", "exit 1 (KeyError)", "hang: ..."
    step: int | None  # None: no step was seen
    failure: str | None = None  # id of the failure it belongs to; None: not in the verdict


def ending(observation: Observation, verdict: Verdict | None) -> Ending:
    attempt, exit_ = observation.attempt, observation.exit
    judged = verdict.outcomes.get(attempt) if verdict else None
    failure = next((found.id for found in (verdict.failures if verdict else []) if attempt in found.attempts), None)
    kind: OutcomeKind = judged.kind if judged else "died" if failure else _kind(observation)
    step = judged.steps if judged and judged.steps is not None else observation.progress.last_step
    how = (judged.reason if judged and kind in {"censored", "unavailable"} else "") or how_it_ended(observation)
    if judged and kind == "died" and exit_.ended_by == "wall":  # our limit alone would not have been a death
        how = judged.signature or how
    return Ending(kind=kind, how=how or exit_.ended_by, step=step, failure=failure)


def _kind(observation: Observation) -> OutcomeKind:
    exit_ = observation.exit
    if exit_.start_error or (exit_.returncode is None and exit_.ended_by != "nobody"):
        return "unavailable"
    if exit_.ended_by in {"starved", "wall", "length", "interrupt", "nobody"}:
        return "censored"
    finished = exit_.ended_by == "itself" and exit_.returncode == 0 and observation.progress.finished_line is not False
    return "survived" if finished else "died"


def how_it_ended(observation: Observation) -> str:
    exit_ = observation.exit
    if exit_.start_error:
        return exit_.start_error
    if exit_.ended_by != "itself":
        return ENDED_BY_US[exit_.ended_by]
    return exit_.signal or _status(exit_, observation)


def _status(exit_: Exit, observation: Observation) -> str:
    if exit_.returncode == 0:
        return "exit 0 without its last line" if observation.progress.finished_line is False else "finished"
    if began := next((each for each in observation.deaths if each.part == "initiating" and each.role != "main" and each.signal), None):
        return f"{began.role} {began.pid} ended by {began.signal}, exit {exit_.returncode}"  # what a launcher raised only reports that
    raised = f" ({observation.python_error.type})" if observation.python_error else ""
    return f"exit {exit_.returncode}{raised}"
