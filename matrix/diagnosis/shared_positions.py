"""A file that forked processes read by one position: who reads there gets what another one asked for.

A helper may hold a descriptor that it never uses.  So a run that lives without moving that position, or with each process reading by
its own, decides.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import finding
from matrix.diagnosis.native_causes import NATIVE_CRASH
from matrix.records import Finding, Observation

FEW = 3  # times as many runs must die with a position that moves as live with one
CAUSE, RULE = "fork_unsafe", "one position"
DIGITS = re.compile(r"\d+")  # of process ids and random names in a path: these differ from run to run
OTHERS = (*NATIVE_CRASH, "python_exception", "corrupt_input_data")  # what a wrong record looks like


class Contrast(NamedTuple):
    """A surviving run beside the deaths, and how much it says."""

    nats: float
    fact: str


def findings(case: Case) -> Iterator[Finding]:
    """Judge each death in which forked processes shared a position."""
    for death in case.deaths:
        shared = next((file for file in death.shared_files if not file.own), None)
        if shared is not None and death.forks:
            yield from _judged(case, death, shared.path, len(shared.pids))


def _judged(case: Case, death: Observation, path: str, processes: int) -> Iterator[Finding]:
    moved = _moves(case.deaths, path)
    fact = f"{processes} processes had {path} open by one description, which fork copied"
    fact += ", and the position in it moved" if moved else ""
    lived = [run for run in case.survivors if _moves([run], path)]  # a few may be lucky: readers may miss each other
    if FEW * len(lived) > len(case.deaths) or (not lived and _moves(case.survivors, path)):
        yield finding(CAUSE, RULE, death, -1.0, f"{fact}; so it was in a run that survived")
    elif contrast := _contrast(case, path, moved):
        yield finding(CAUSE, RULE, death, contrast.nats, f"{fact}; {contrast.fact}")
        for cause in OTHERS if contrast.nats > 2.0 else ():
            yield finding(cause, RULE, death, -2.5, f"{fact}; {contrast.fact}")
    elif moved:
        yield finding(CAUSE, RULE, death, 2.0, f"{fact}, as in no run that survived")


def _contrast(case: Case, path: str, moved: bool) -> Contrast | None:
    forked = [(f"{axis}={run.trial.cell[axis]}", run) for axis, run in case.beside if run.forks]
    for change, run in forked:
        if moved and _has(run, path, own=False) and not _has(run, path, own=True) and not _moves([run], path):
            return Contrast(4.0, f"with {change} alone nobody moves it, and it survives (attempt {run.attempt})")
    for change, run in forked:
        if not _moves([run], path) and (_has(run, path, own=True) or not _has(run, path, own=False)):
            fact = f"with {change} alone they do not share it, and it survives (attempt {run.attempt})"
            return Contrast(2.0 + 1.5 * (moved + _has(run, path, own=True)), fact)
    return None


def _moves(runs: Sequence[Observation], path: str) -> bool:
    """Return True if the position that processes share in that file changed in a run, or was another one in each of several runs."""
    same = _without_digits(path)
    shared = [file for run in runs for file in run.shared_files if not file.own and _without_digits(file.path) == same]
    return any(file.moved for file in shared) or len({file.position for file in shared}) > 1


def _has(run: Observation, path: str, *, own: bool) -> bool:
    """Return True if processes of a run had that file open, each by a description of its own (`own`) or all by one."""
    return any(file.own == own and _without_digits(file.path) == _without_digits(path) for file in run.shared_files)


def _without_digits(path: str) -> str:
    return DIGITS.sub("#", path)
