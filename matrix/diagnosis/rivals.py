"""Causes that look alike, and the questions that tell them apart: a cause is confirmed only when its nearest rivals were asked about.

A question is answered by a fact (a rule that spoke) or by an intervention of the tool's own that took hold and gave an answer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from matrix.diagnosis import exchanged, fork, limits, memory_causes, native_causes, probing
from matrix.diagnosis.case import Case
from matrix.records import RivalTold

LEAST = 0.25  # nats of a rule that spoke
HEAP = ("poisoned_heap", "checked_heap", "valgrind")
DEADLOCK, EXIT, EXCEPTION = "deadlock", "library_exit", "python_exception"
Said = Mapping[str, Mapping[str, float]]  # cause -> rule -> nats


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rival:
    """Two causes that look alike.  `speaks_for`: rules of the cause; `speaks_against`: rules of its rival; any of them tells."""

    cause: str
    rival: str
    question: str  # what must be known, in words
    speaks_for: tuple[str, ...] = ()
    speaks_against: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()
    cures: bool = False  # a death that goes away under one of the probes is the rival's
    arises: Callable[[Case], bool] = lambda case: True  # False: the rival cannot be meant in this case


def _meets_a_limit(case: Case) -> bool:
    return bool(limits.met_limits(case))


def _reads_by_one_position(case: Case) -> bool:
    """Return True if forked processes read a file by one position in the deaths."""
    return any(death.forks and any(file.moved and not file.own for file in death.shared_files) for death in case.bad_deaths)


def _names_clash(case: Case) -> bool:
    """Return True if a library of the crash gets a name from another one although it defines that name itself."""
    return any(binding.own for death in case.bad_deaths for binding in death.bindings or ())


RIVALS = (
    Rival(
        cause=DEADLOCK,
        rival=fork.CAUSE,
        question="whether it hangs as well where no process is forked with threads alive",
        speaks_against=("fork", "needs"),
        probes=("start_spawn", "start_forkserver"),
        cures=True,
    ),
    Rival(
        cause=native_causes.ARGUMENT,
        rival=native_causes.CORRUPTION,
        question="whether the memory that it used was its own and had been set",
        speaks_for=("assertion", "trap", "signal"),
        probes=HEAP,
    ),
    Rival(
        cause=native_causes.ARGUMENT,
        rival=exchanged.BINARY,
        question="whether it crashes as well where the names that several libraries define are bound otherwise",
        arises=_names_clash,
    ),
    Rival(
        cause=native_causes.CORRUPTION,
        rival=native_causes.RACE,
        question="whether another thread takes part",
        speaks_for=("given back", "references", "stack smashed"),
        speaks_against=("other thread", "repeats", "needs"),
        probes=("one_core", "one_thread"),
    ),
    Rival(
        cause=EXCEPTION,
        rival=fork.CAUSE,
        question="whether it is raised as well where no process is forked with the file open",
        probes=("start_spawn", "start_forkserver"),
        cures=True,
        arises=_reads_by_one_position,
    ),
    Rival(
        cause=EXIT,
        rival=limits.RESOURCE,
        question="whether it ends as well with the limit raised that it had nearly used up",
        probes=tuple(dict.fromkeys(probe for probe in limits.RAISED.values() if probe != "raised_cpu_time")),
        cures=True,
        arises=_meets_a_limit,
    ),
    Rival(
        cause=memory_causes.WORKERS,
        rival=memory_causes.WORKING_SET,
        question="whether fewer workers need less memory",
        speaks_for=("scaling",),
    ),
)


def told_apart(case: Case, said: Said, cause: str) -> list[RivalTold]:
    """Return for each rival of a cause how the two were told apart, or which question is open."""
    return [_told(case, said, rival) for rival in RIVALS if rival.cause == cause and rival.arises(case)]


def open_question(case: Case, said: Said, cause: str) -> str | None:
    """Return the first question about a rival that nothing has answered; None: all were answered."""
    return next((told.text for told in told_apart(case, said, cause) if not told.told), None)


def _told(case: Case, said: Said, rival: Rival) -> RivalTold:
    mine, theirs = said.get(rival.cause, {}), said.get(rival.rival, {})
    by = [rule for rule in rival.speaks_for if mine.get(rule, 0.0) >= LEAST]
    by += [rule for rule in rival.speaks_against if theirs.get(rule, 0.0) <= -LEAST]
    asked = {probe: cured for probe in rival.probes if (cured := probing.cured(case, probe)) is not None}
    if rival.cures and (shown := next((probe for probe, cured in asked.items() if cured), None)):
        text = f"it survives under the probe {shown}, as it would if it were {rival.rival}"
        return RivalTold(cause=rival.rival, told=False, text=text)
    by += [probe.replace("_", " ") for probe in asked]
    if by:
        return RivalTold(cause=rival.rival, told=True, text=f"told from {rival.rival} by: {', '.join(by)}")
    text = f"{rival.rival} looks alike, and nothing told {rival.question}"
    return RivalTold(cause=rival.rival, told=False, text=text, probes=_probes(case, rival))


def _probes(case: Case, rival: Rival) -> list[str]:
    """Return the interventions that would tell; of those that raise a limit, the ones for limits that were met."""
    if rival.rival != limits.RESOURCE:
        return list(rival.probes)
    met = {limits.RAISED[name] for name in limits.met_limits(case)}
    return [probe for probe in rival.probes if probe in met]
