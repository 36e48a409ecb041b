"""A launcher that ends what it started: for its time, as a watchdog does, or to clear up after something else."""

from __future__ import annotations

from collections.abc import Iterator

from matrix.diagnosis.cause import finding
from matrix.diagnosis.signals import EXIT, TIME
from matrix.evidence.deaths import initiating
from matrix.records import Death, Finding, Observation, SignalSent

SILENT_S, SILENT = 1.0, 3.0  # seconds, and times the longest gap between steps, without a step
TIMED_OUT = 124  # the status of timeout(1)


def findings(death: Observation) -> Iterator[Finding]:
    """A launcher that ends its job for its time says so by its status only; one that has another reason may clear up the same way."""
    sent = _ended_by_its_own(death)
    if sent is None:
        return
    fact = f"pid {sent.to_pid} was ended by {sent.signal} of pid {sent.from_pid} of its own tree, and the main process left after that"
    statuses = {one.status for one in death.deaths if one.pid == sent.from_pid} | {death.exit.returncode}
    if TIMED_OUT in statuses:
        yield finding(TIME, "sender", death, 4.5, f"{fact} with status {TIMED_OUT}, which timeout(1) and its like end with")
        yield finding(EXIT, "handed on", death, -3.0, fact)
    else:
        yield finding(TIME, "sender", death, 1.5, fact)


def handed_on(death: Observation) -> Death | None:
    """A helper whose bad status the main process took over, or after whose end it left at once: what that called is not its own doing."""
    if death.exit.returncode in (None, 0):
        return None
    main = next((one for one in death.deaths if one.role == "main"), None)
    end_s = death.wall_s if main is None or main.time_s is None else main.time_s
    ended = [one for one in death.deaths if one.role != "main" and one.status and one.time_s is not None and one.time_s <= end_s]
    last = max(ended, key=lambda one: one.time_s or 0.0, default=None)
    if last is None or (last.status != death.exit.returncode and end_s - (last.time_s or 0.0) > SILENT_S):
        return None
    return last


def after_silence(death: Observation, time_s: float | None) -> bool:
    """Whether no step had come for much longer than one takes, and nothing had been raised: so ends a watchdog what it watches."""
    last_s, gap_s = death.progress.last_step_s, death.progress.longest_gap_s
    if time_s is None or last_s is None or death.python_error:
        return False
    return time_s - last_s > max(SILENT_S, SILENT * (gap_s or 0.0))


def _ended_by_its_own(death: Observation) -> SignalSent | None:
    """The signal with which one process of the tree ended another one, none of which had failed, before the main one left."""
    if death.python_error or initiating(death.deaths) not in (None, *(one for one in death.deaths if one.role == "main")):
        return None
    left_s = min((call.time_s for call in death.exit_calls), default=death.wall_s)
    ended = {(one.pid, one.signal) for one in death.deaths if one.signal and one.role not in ("main", "worker")}
    sent = (one for one in death.signals_sent if one.inside and not one.by_tool and one.from_pid != one.to_pid)
    return next((one for one in sent if (one.to_pid, one.signal) in ended and one.time_s <= left_s), None)
