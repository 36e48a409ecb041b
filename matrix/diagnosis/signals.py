"""What the signal that began a death says about a sender: the program's own instructions, its own tree, the kernel, a stranger."""

from __future__ import annotations

from collections.abc import Iterator

from matrix.diagnosis import sigkill
from matrix.diagnosis.cause import finding
from matrix.diagnosis.judge import FAULTS
from matrix.diagnosis.limits import TIMERS
from matrix.diagnosis.native_causes import NATIVE_CRASH
from matrix.evidence.deaths import POLITE
from matrix.records import Death, Finding, Observation, Scheduler

EXTERNAL, EXIT, TIME = "external_signal", "library_exit", "watchdog_or_time_limit"
KILLED: dict[sigkill.Grade, float] = {
    "kernel, proven": -6.0,
    "kernel, by its counter": -4.0,
    "memory at its limit": -1.0,
    "our own limit": -4.0,
    "limit of processor time": -4.0,
    "a timer of its own": -4.0,
    "its own tree": -2.0,
    "another process": 3.0,
    "unknown": 1.0,
}  # nats for a signal from outside
ASKS = ("SIGTERM", "SIGINT")  # to end
NAMED = 4.0  # the sender was seen
SAID_BY_SCHEDULER = 5.0
OVER_S = 1.0  # a scheduler ends nothing before its time, but for clocks that differ
TIME_IS_UP = ("TimeLimit", "TIMEOUT", "DEADLINE", "JobDeadlineReached")


def findings(death: Observation, name: str) -> Iterator[Finding]:
    """`name`: the signal that began this death."""
    cause, why = by_scheduler(death.scheduler, death.started_unix_s + death.wall_s)
    if name in ("SIGKILL", "SIGTERM") and cause and not death.memory.oom_kills:
        yield finding(cause, "scheduler", death, SAID_BY_SCHEDULER, f"{name}: {why}")
        if cause == TIME:
            yield finding(EXTERNAL, "signal", death, -2.0, f"{name} came for a reason that is known: {why}")
    elif sigkill.by_timer(death, name):
        yield from _ran_out(death, name)
    elif name == "SIGKILL":
        yield from _kill(death)
    elif name in FAULTS or (name in TIMERS and sigkill.by_others(death, name)):
        yield from _fault(death, name)
    elif name not in TIMERS and name != "SIGXFSZ":
        yield from _asked_to_end(death, name)


def _ran_out(death: Observation, name: str) -> Iterator[Finding]:
    """Any signal may be that of a timer of timer_create; then nobody sent it, and no instruction raised it."""
    fact = f"{name} came from a timer that the program had set (timer_create): it ran out"
    yield finding(TIME, "signal", death, NAMED, fact)
    for cause in (EXTERNAL, EXIT, *NATIVE_CRASH):
        yield finding(cause, "timer", death, -4.0, fact)


def _kill(death: Observation) -> Iterator[Finding]:
    found = sigkill.attribute(death)
    if found is None:
        return
    fact = f"SIGKILL ({found.grade}): {found.text}"
    if found.grade in ("its own tree", "another process") and (asked := _asked_before(death)):
        yield finding(EXTERNAL, "signal", death, NAMED, f"{fact}; {asked}")
        yield finding(TIME, "sender", death, 1.0, f"{fact}; {asked}")
        return
    sender = sigkill.sender(death) if found.grade == "another process" else None
    yield finding(EXTERNAL, "signal", death, NAMED if sender else KILLED[found.grade], fact)
    if found.grade == "its own tree":
        yield finding(TIME, "sender", death, 3.0, fact)
    if found.grade == "limit of processor time":
        yield finding(TIME, "hard limit", death, 2.0, fact)


def _asked_before(death: Observation) -> str | None:
    """Say that who killed it had asked it to end before, as schedulers and operators do; None: it was killed at once.

    A helper of the program may stand for a scheduler there, as it may where it only asks."""
    by = sigkill.sender(death)
    asked = next((one for one in death.signals_sent if by and one.from_pid == by.from_pid and one.signal in ASKS and not one.by_tool), None)
    if by is None or asked is None or asked.time_s > by.time_s:
        return None
    return f"the same process had sent it {asked.signal} {by.time_s - asked.time_s:.1f} s before, and it went on"


def _fault(death: Observation, name: str) -> Iterator[Finding]:
    sent = sigkill.by_others(death, name)
    if sent is None:
        yield finding(EXTERNAL, "signal", death, -4.0, f"{name} is raised by the program's own instructions")
        return
    fact = f"{name} was sent by {sigkill.describe(sent)}"
    yield finding(EXTERNAL, "signal", death, -2.0 if sent.inside else 3.5, fact)
    if sent.inside:
        yield finding(TIME, "sender", death, 3.0, fact)
    for cause in NATIVE_CRASH:
        yield finding(cause, "sender", death, -4.0, fact)


def _asked_to_end(death: Observation, name: str) -> Iterator[Finding]:
    """A helper of the program that sends one may stand for a scheduler, so `inside` says nothing; the program itself is no stranger."""
    sent, all_sent = sigkill.by_others(death, name), sigkill.sent(death, name)
    if sent is None and all_sent and all_sent[0].from_pid:
        fact = f"{name} was sent by the program to itself, and by nobody else"
        yield finding(EXTERNAL, "signal", death, -2.0, fact)
        yield finding(EXIT, "signal", death, 2.5, fact)
        return
    if name == "SIGPIPE" and (gone := _crashed_before(death)):
        fact = f"SIGPIPE came, and {gone.role} {gone.pid} had been ended by {gone.signal} before: it may have been the reader"
        yield finding(EXTERNAL, "signal", death, 2.0, fact)
        return
    yield finding(EXTERNAL, "signal", death, 4.0, f"{name} is sent from outside the program's own instructions")
    if sent and not sent.inside:
        yield finding(EXTERNAL, "sender", death, 1.0, f"{name} was sent by {sigkill.describe(sent)}")


def _crashed_before(death: Observation) -> Death | None:
    """Another process of the tree that nobody had asked to end, so long before that nothing shows that it read what was written."""
    others = [other for other in death.deaths if other.role != "main" and other.signal and other.signal not in POLITE]
    return next((other for other in others if other.part != "teardown"), None)


def by_scheduler(job: Scheduler | None, at_unix_s: float) -> tuple[str, str]:
    """Which cause a scheduler's account speaks for when its job was ended at that time, and in a sentence why; ("", "") for none."""
    if job is None:
        return "", ""
    who = f"{job.name.capitalize()} ended job {job.job}"
    said = " ".join(filter(None, (job.state, job.reason)))
    if job.reason in TIME_IS_UP or job.state in TIME_IS_UP:
        return TIME, f"{who} because its time limit was reached (it says {said})"
    if not job.state and job.ends_unix_s is not None and at_unix_s >= job.ends_unix_s - OVER_S:
        return TIME, f"the time of {job.name.capitalize()} job {job.job} was over for {max(0.0, at_unix_s - job.ends_unix_s):.0f} s"
    if job.preempted:
        return EXTERNAL, f"{who} to make room for another job (preempted)"
    if job.requeued:
        return EXTERNAL, f"{who} and put it back into the queue: preempted by another job, or asked to by somebody"
    if job.state in ("COMPLETING", "CANCELLED"):
        return EXTERNAL, f"{who} before the program had ended: somebody cancelled it (it says {said})"
    return "", ""
