"""Roles that a cause cannot do without: a run that dies alike without the role speaks against the cause.

A cause that multiplies memory by workers needs workers; a race needs a second thread.  The search varies axes, and some values take
a role away.  Roles are read from what ran (processes, threads, forks), never from the name of an axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple

from matrix.diagnosis import fork, memory_causes, native_causes
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import finding
from matrix.diagnosis.memory_form import too_short
from matrix.diagnosis.memory_holders import worker_count
from matrix.records import Finding, Observation, describe_cell

Presence = Literal["there", "absent", "unknown"]
AGAINST = -4.0  # nats: it died of the same without what the cause consists of
PERHAPS = -2.5  # of what may have been there for a moment that nobody saw


def several_workers(run: Observation) -> Presence:
    """Say whether two workers lived at one time."""
    if worker_count(run) > 1:
        return "there"
    return "unknown" if too_short(run) or not run.memory.processes else "absent"


def forked_process(run: Observation) -> Presence:
    """Say whether the hook saw a process fork."""
    if run.forks:
        return "there"
    return "absent" if fork.was_watched(run) else "unknown"


def second_thread(run: Observation) -> Presence:
    """Say whether any process had a second thread; threads that come and go with a step are seen in a core only."""
    counts = [process.threads for process in run.memory.processes if process.threads]
    if any(count > 1 for count in counts) or run.other_stacks or any(dump.threads > 1 for dump in run.crash_dumps):
        return "there"
    return "absent" if counts and run.native_stack else "unknown"


class Role(NamedTuple):
    """What a cause needs, in words, who looks for that, and what a death without it says, in nats."""

    name: str
    look: Callable[[Observation], Presence]
    nats: float


ROLES = {
    memory_causes.WORKERS: Role("two workers at one time", several_workers, AGAINST),
    fork.CAUSE: Role("a forked process", forked_process, AGAINST),
    native_causes.RACE: Role("a second thread", second_thread, PERHAPS),
}


def findings(case: Case) -> Iterator[Finding]:
    """Yield one finding for each cause whose role was absent in a run that died alike."""
    first = next(iter(case.bad_deaths or case.deaths), None)
    for cause, role in ROLES.items() if first else ():
        without = [death for death in case.deaths if role.look(death) == "absent"]
        if first and without:
            changed = {axis: value for axis, value in without[0].trial.cell.items() if case.known_bad.get(axis) != value}
            how = f"with {describe_cell(changed)} " if changed else ""
            fact = f"{how}it died alike without {role.name} (attempt {without[0].attempt}), which this cause needs"
            yield finding(cause, "needs", first, role.nats, fact, "memory.csv")
