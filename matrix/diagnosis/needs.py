"""Roles that a cause cannot do without: a run that dies alike without the role speaks against the cause.

A cause that multiplies memory by workers needs workers; a race needs a second thread.  The search varies axes, and some values take
a role away.  Roles are read from what ran (processes, threads, forks), never from the name of an axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

from matrix.diagnosis import fork, memory_causes, native_causes
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import finding
from matrix.diagnosis.memory_holders import worker_count
from matrix.records import Finding, Observation, describe_cell

Presence = Literal["there", "absent", "unknown"]
AGAINST = -4.0  # nats: it died of the same without what the cause consists of
FEW_LOOKS = 5  # samples below which a process or a thread may have been missed


def several_workers(run: Observation) -> Presence:
    """Say whether two workers lived at one time."""
    if worker_count(run) > 1:
        return "there"
    return "absent" if run.memory.samples >= FEW_LOOKS and run.memory.processes else "unknown"


def forked_process(run: Observation) -> Presence:
    """Say whether the hook saw a process fork."""
    if run.forks:
        return "there"
    return "absent" if fork.was_watched(run) else "unknown"


def second_thread(run: Observation) -> Presence:
    """Say whether any process had a second thread."""
    counts = [process.threads for process in run.memory.processes if process.threads]
    if any(count > 1 for count in counts) or run.other_stacks or any(dump.threads > 1 for dump in run.crash_dumps):
        return "there"
    return "absent" if counts and run.memory.samples >= FEW_LOOKS else "unknown"


ROLES: dict[str, tuple[str, Callable[[Observation], Presence]]] = {  # cause -> what it needs, in words, and who looks for that
    memory_causes.WORKERS: ("two workers at one time", several_workers),
    fork.CAUSE: ("a forked process", forked_process),
    native_causes.RACE: ("a second thread", second_thread),
}


def findings(case: Case) -> Iterator[Finding]:
    """Yield one finding for each cause whose role was absent in a run that died alike."""
    first = next(iter(case.bad_deaths or case.deaths), None)
    for cause, (role, look) in ROLES.items() if first else ():
        without = [death for death in case.deaths if look(death) == "absent"]
        if first and without:
            changed = {axis: value for axis, value in without[0].trial.cell.items() if case.known_bad.get(axis) != value}
            how = f"with {describe_cell(changed)} " if changed else ""
            fact = f"{how}it died alike without {role} (attempt {without[0].attempt}), which this cause needs"
            yield finding(cause, "needs", first, AGAINST, fact, "memory.csv")
