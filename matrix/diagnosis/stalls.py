"""Programs that do not die but stop: who waits for whom, and who is busy without getting anywhere."""

from __future__ import annotations

from collections.abc import Iterator

from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import Cause, finding, remedy
from matrix.diagnosis.fork import stuck_children, threaded_forks, was_watched
from matrix.diagnosis.hangs import HangClass, classes
from matrix.records import Finding, Observation

DEADLOCK, STALL = "deadlock", "cpu_bound_stall"
CROWDED = 3.0  # threads that want to run for every processor
WAITING: tuple[HangClass, ...] = ("lock", "pipe or queue", "child", "interpreter lock", "lock that no thread holds after fork")

CAUSES = (
    Cause(
        name=DEADLOCK,
        title="A deadlock",
        clause="threads or processes wait for each other for ever, without using the processor",
        remedies=(
            remedy("axis", "the setting under which one of the two does not take part"),
            remedy("code", "take locks in one order; empty queues before joining their writers; time limits on waits"),
        ),
        references=("Python documentation, multiprocessing: joining processes that use queues",),
        cures_it={"one_core": 0.2, "one_thread": 0.1, "slower_clock": 0.1},
    ),
    Cause(
        name=STALL,
        title="Busy, but no longer making progress",
        clause="a loop or a spinning lock uses the processor and makes no progress",
        remedies=(
            remedy("axis", "fewer threads, as many as there are processors"),
            remedy("environment", "OMP_WAIT_POLICY=passive, or no GOMP_SPINCOUNT", "latency of parallel regions"),
            remedy("limit", "more processors"),
        ),
        references=("OpenMP specification, OMP_WAIT_POLICY",),
        cures_it={"one_thread": 0.7, "one_core": 0.2},
    ),
)


def findings(case: Case) -> Iterator[Finding]:
    for death in case.deaths:
        if (case.outcomes[death.attempt].signature or "").startswith("hang"):
            yield from _hang(death)
        else:
            fact = "it ended; it did not hang"
            yield finding(DEADLOCK, "ending", death, -6.0, fact)
            yield finding(STALL, "ending", death, -6.0, fact)


def _hang(death: Observation) -> Iterator[Finding]:
    found = classes(death)
    if not death.processes:
        return
    where = "; ".join(
        f"{p.role} {p.pid}: {found[p.pid]} ({' '.join(filter(None, [p.state, p.wchan]))}, {p.cpu_delta_s:.1f} s CPU in {p.window_s:.0f} s)"
        for p in death.processes[:4]
    )
    busy = "spin" in found.values()
    fact = f"it {'spins' if busy else 'sleeps'}: {where}"
    yield finding(STALL, "states", death, 2.5 if busy else -4.0, fact)
    yield finding(DEADLOCK, "states", death, -3.0 if busy else 1.5, fact)
    if not busy and any(kind in WAITING for kind in found.values()):
        yield from _waits(death, found)
    if busy and death.load and death.load.runnable_mean > CROWDED * death.load.cpus:
        fact = f"{death.load.runnable_mean:.0f} threads wanted to run on {death.load.cpus} processors"
        yield finding(STALL, "load", death, 3.0, fact)


def _waits(death: Observation, found: dict[int, HangClass]) -> Iterator[Finding]:
    """A wait for a lock, a queue or a child; where a fork lost threads, that explains it as well."""
    process = next(p for p in death.processes if found[p.pid] in WAITING)
    named = next((frame for frame in process.stack if ":" in frame), "")
    fact = f"{process.role} {process.pid} waits for a {found[process.pid]}" + (f" at {named}" if named else "")
    forked = bool(stuck_children(death, threaded_forks(death)))
    yield finding(DEADLOCK, "waits", death, 0.5 if forked else 3.0 if was_watched(death) else 1.5, fact)
    if death.progress.finished_line:
        yield finding(DEADLOCK, "after the end", death, 1.0, "it had said that it was finished, and waits at its exit", "stdout.log")
