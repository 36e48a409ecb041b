"""What the runs so far have taught about how to follow this program: its steps, and how long to wait for it.

Waiting is what a matrix pays most for.  The first run that hangs before its first step, or that dies within seconds while others
go on for minutes, says how long the next ones need.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from matrix.records import Cell, Observation, Outcome, Trial

STARTUPS = 10  # times the longest start of a surviving run
LEAST_STARTUP_S = 60.0
QUIET = 3  # times the processor time of a start that then did nothing
BUSY_SHARE = 0.05  # of one processor, at the end of the wait: less is nothing
OUTLIVES = 8  # times the time of the latest death; as many as the search asks for in steps
LEAST_LONGER_S = 20.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Taught:
    """Seconds; None: the specification's own."""

    longest_gap_s: float = 0.0  # between two steps of any surviving run
    steps: str = ""  # pattern of a step, see `Progress.learnt`
    startup_s: float | None = None
    quiet_startup_s: float | None = None  # without output, and with processes that do nothing
    stop_after_s: float | None = None  # a run has outlived the deaths then
    stop_beyond_step: int = 0  # and has come so far, where it shows steps


NOTHING_TAUGHT = Taught()


def taught_by(
    observations: Sequence[Observation], outcomes: Mapping[str, Outcome], *, idle_s: float, startup_s: float, longest_gap_s: float
) -> Taught:
    """Return what these runs teach for any further run; `idle_s`, `startup_s`: the limits of the specification."""
    return Taught(
        longest_gap_s=longest_gap_s,
        steps=next((run.progress.learnt for run in reversed(observations) if run.progress.learnt), ""),
        startup_s=_startup_s(observations, outcomes, startup_s),
        quiet_startup_s=_quiet_startup_s(observations, idle_s),
    )


def _startup_s(observations: Sequence[Observation], outcomes: Mapping[str, Outcome], limit_s: float) -> float | None:
    """Return how long a first step may take, by the runs that survived; None while no run survived."""
    starts = [run.progress.first_step_s for run in observations if outcomes[run.attempt].kind == "survived"]
    known = [start_s for start_s in starts if start_s is not None]
    return min(limit_s, max(LEAST_STARTUP_S, STARTUPS * max(known))) if known else None


def _quiet_startup_s(observations: Sequence[Observation], idle_s: float) -> float | None:
    """Return how long to wait for a first sign once a run did nothing at all until its time to start was over."""
    hung = [run for run in observations if run.exit.ended_by == "startup" and run.processes]
    quiet = [run for run in hung if all(one.cpu_delta_s <= BUSY_SHARE * one.window_s for one in run.processes)]
    if not quiet:
        return None
    return max(idle_s, QUIET * max(sum(one.cpu_s for one in run.processes) for run in quiet))


def with_length(
    taught: Taught, trial: Trial, fix: Cell | None, observations: Sequence[Observation], outcomes: Mapping[str, Outcome]
) -> Taught:
    """Return the same with the time after which this trial has outlived the deaths, where it may be ended then.

    The first run that verifies, and one run of the fix, go to their natural end: a program may die in its last moments."""
    deaths = [run for run in observations if outcomes[run.attempt].kind == "died" and not run.trial.probes]
    whole = [run.trial.cell for run in observations if outcomes[run.attempt].kind == "survived" and outcomes[run.attempt].whole]
    natural = (trial.purpose == "verify" and not whole) or (trial.cell == fix and fix not in whole)
    if not deaths or natural or trial.purpose in ("calibrate", "control") or trial.max_steps is not None:
        return taught
    latest_s, steps = max(run.wall_s for run in deaths), [run.progress.last_step or 0 for run in deaths]
    stop_after_s = max(OUTLIVES * latest_s, latest_s + LEAST_LONGER_S)
    return dataclasses.replace(taught, stop_after_s=stop_after_s, stop_beyond_step=OUTLIVES * max(steps))
