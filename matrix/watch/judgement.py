"""What one run can prove: its outcome and the verdict of everything that is known about it.  Without a contrast nothing is confirmed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from matrix.diagnosis import judge
from matrix.diagnosis.case import Case
from matrix.diagnosis.clusters import Crashes
from matrix.diagnosis.verdict import build
from matrix.records import NotCollected, Observation, Outcome, Scheduler, SignalSent, Trial, Verdict
from matrix.runner.observe import Raw
from matrix.search import Search
from matrix.spec import Spec

WHY = "The run that was watched."
NOTHING_VARIED = "one run has no contrast: nothing was varied"
FORWARDED_S = 1.0


def trial(spec: Spec) -> Trial:
    return Trial(id=1, cell=dict(spec.known_bad), purpose="find", why=WHY)


def as_watched(observation: Observation, raw: Raw, *, oom_kills: int | None, unknown: str, scheduler: Scheduler | None) -> Observation:
    """The observation with what is different when nothing was imposed and, under --pid, nobody could wait for it.

    `oom_kills`: in the group that it was in, which other programs may share; `unknown`: why its end is not known."""
    memory, ending, missing = observation.memory, observation.exit, list(observation.not_collected)
    killed = ending.signal == "SIGKILL" or any(death.signal == "SIGKILL" for death in observation.deaths)
    counts = [count for count in (memory.oom_kills, oom_kills if killed or not oom_kills else 0) if count is not None]
    memory = dataclasses.replace(memory, isolation=raw.group.isolation if raw.group else "none", oom_kills=max(counts, default=None))
    if raw.child.ended and not raw.child.ended.maxrss_bytes:  # not our child: there is no account of it
        main = next((one for one in memory.processes if one.pid == raw.child.pid), None)
        memory = dataclasses.replace(memory, peak_main_rss_bytes=main.peak_rss_bytes if main else None)
        ending = dataclasses.replace(ending, cpu_s=None, involuntary_switches=None, voluntary_switches=None)
    if raw.child.ended is None:
        missing = [one for one in missing if one.what != "exit status"]
        if unknown:
            missing.append(NotCollected(what="exit status", why=unknown))
    signals = [_by_whom(one, raw) for one in observation.signals_sent]
    return dataclasses.replace(observation, memory=memory, exit=ending, signals_sent=signals, scheduler=scheduler, not_collected=missing)


def _by_whom(sent: SignalSent, raw: Raw) -> SignalSent:
    """A signal that we only handed on came from whoever sent it to us."""
    if not sent.by_tool or raw.signals is None:
        return sent
    at_s = raw.started_monotonic_s + sent.time_s
    to_us = [
        event
        for event in raw.signals.read()
        if event.to_pid in raw.tool_pids and event.signal == sent.signal and 0 <= at_s - event.monotonic_s < FORWARDED_S
    ]
    if not to_us:
        return sent
    return dataclasses.replace(sent, from_pid=to_us[-1].from_pid, from_name=to_us[-1].from_name, by_tool=False)


def outcome(observation: Observation, unknown: str) -> Outcome:
    found = judge.outcome(observation)
    if observation.exit.returncode is None and not observation.exit.start_error and observation.exit.ended_by in ("itself", "nobody"):
        return dataclasses.replace(found, kind="censored", reason=unknown, signature=None)
    if found.signature:
        return dataclasses.replace(found, signature=Crashes().name(found.signature, observation))
    return found


def verdict(spec: Spec, observation: Observation, found: Outcome, environment: Mapping[str, str]) -> Verdict:
    """`environment`: what the specification sets."""
    search = Search(spec, seed=spec.search.seed)
    search.tell(observation.trial, found)
    learnt = search.result()
    died = found.kind == "died"
    text = f"One run, watched: it died of {found.signature}." if died else _lived(found)
    result = dataclasses.replace(
        learnt,
        status="not_reproduced" if found.kind == "survived" else learnt.status,
        confirmed=False,
        culprit={},
        interactions=[],
        fix=None,
        other_fixes=[],
        crash_rate=None,  # people watch what they fear for: one such run says nothing about how often
        reasons=[NOTHING_VARIED],
        never_tested=[],
        text=text,
    )
    case = Case(
        known_bad=spec.known_bad,
        observations=[observation],
        outcomes={observation.attempt: found},
        environments={observation.attempt: dict(environment)},
        result=result,
        signature=result.main_signature,
    )
    return build(case, name=spec.name, complete=True, wall_s=observation.wall_s)


def _lived(found: Outcome) -> str:
    if found.kind == "survived":
        return "One run, watched: it ended well, which says little about the next one."
    return f"One run, watched: nothing is known about how it ends; {found.reason}."
