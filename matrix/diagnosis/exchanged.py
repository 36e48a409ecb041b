"""Libraries that do not fit together: one stands in another's place, or takes a name that another defines as well.

A layout that two packages do not agree on says nothing, neither when it is loaded nor when it crashes: it looks like a wrong pointer.
What tells is how the crashing libraries are bound (`Observation.bindings`), and a change of one axis that binds them otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePath
from typing import NamedTuple

from matrix.diagnosis import clusters
from matrix.diagnosis.addresses import the_fault
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import finding
from matrix.diagnosis.native import crash_signal
from matrix.diagnosis.native_causes import NATIVE_CRASH
from matrix.records import Finding, Observation

BINARY = "binary_incompatibility"
IN_CALLEE = 3.5  # nats; less than a confirmation needs: the one build may as well have a fault of its own
IN_CALLER = 4.5  # the caller reads what it got by the layout that it was built for
OTHER_ORDER = 4.5
ADDED = 4.0
INTERPOSED = 1.5  # without a contrast: names are shared in many programs that are well
AGAINST = -2.5  # of how it crashed: that is the same whether a caller or a build gets the pointer wrong
MOST_ADDED = 4  # libraries: one that is added brings those that it needs itself
MOST = 2  # libraries in whose place others are: a change of many is another program


class Contrast(NamedTuple):
    """What a change of one axis exchanges, and how much that says."""

    nats: float
    fact: str


def findings(case: Case) -> Iterator[Finding]:
    """Judge crashes in libraries that a change of one axis binds otherwise, after which the program lives."""
    crashed = [death for death in case.bad_deaths if crash_signal(death)]
    crashed = [death for death in crashed if death.bindings is not None] or crashed
    for death in crashed if case.result.culprit else ():
        for axis, survivor in case.beside:
            if axis in case.result.culprit and (found := _contrast(death, survivor, axis)):
                yield finding(BINARY, "exchanged", death, found.nats, found.fact, "maps.txt")
                for cause in NATIVE_CRASH:
                    yield finding(cause, "exchanged", death, AGAINST, found.fact, "maps.txt")
                return
    for death in crashed:
        if taken := next((binding for binding in death.bindings or () if binding.own), None):
            fact = f"{_file(taken.user)} defines {taken.symbol} itself, and its calls of that name go to {_file(taken.to)}"
            yield finding(BINARY, "interposed", death, INTERPOSED, fact, "maps.txt")


def _contrast(death: Observation, survivor: Observation, axis: str) -> Contrast | None:
    mine, theirs = _names(death), _names(survivor)
    if not mine or not theirs:
        return None
    gone, came = sorted(set(mine) - set(theirs)), sorted(set(theirs) - set(mine))
    if 0 < len(gone) <= MOST and 0 < len(came) <= MOST:
        return _exchanged(death, gone, came, axis)
    if 0 < len(gone) <= MOST_ADDED and not came:
        return _added(death, gone, axis)
    return _other_order(death, mine, theirs, axis) if not gone and not came else None


def _exchanged(death: Observation, gone: list[str], came: list[str], axis: str) -> Contrast | None:
    """Judge a library that is mapped in the death alone, with another one in its place in the survivor."""
    lives = f"with another {axis} alone {came[0]} is there in its place, and it survives"
    tie = next((b for b in death.bindings or () if _name(b.to) in gone and _name(b.user) not in gone), None)
    if tie and _is_where_it_crashed(death, tie.user):
        fact = f"it crashed in {_file(tie.user)}, which uses {tie.symbol} of {_name(tie.to)}; {lives}"
        return Contrast(IN_CALLER, fact)
    if death.bindings is not None and tie is None:
        return None  # nothing is bound to it: it was chosen by the program, as backends are
    names = {PurePath(name).name: name for name in gone}
    calls = pairwise(_libraries(death))
    found = next(((names[inner], outer) for inner, outer in calls if inner in names and outer not in names), None)
    return Contrast(IN_CALLEE, f"it crashed in {found[0]}, called by {found[1]}; {lives}") if found else None


def _added(death: Observation, gone: list[str], axis: str) -> Contrast | None:
    """Judge a library that takes over names of others, as a preloaded allocator does, and is there in the death alone."""
    files = {PurePath(name).name for name in gone}
    there = [binding for binding in death.bindings or () if _name(binding.user) not in gone]  # else the caller itself was switched off
    for binding in there:
        definers = [_file(binding.to), *binding.others, *([_file(binding.user)] if binding.own else [])]
        added = next((name for name in definers if name in files), None)
        other = next((name for name in definers if name not in files), None)
        if added and other:
            fact = f"{_file(binding.user)} gets {binding.symbol} from {_file(binding.to)}, and both {added} and {other} define that name"
            return Contrast(ADDED, f"{fact}; with another {axis} alone {added} is not loaded, and it survives")
    return None


def _other_order(death: Observation, mine: list[str], theirs: list[str], axis: str) -> Contrast | None:
    """Judge a name that two libraries define: the first one that is loaded has it, and addresses follow the order of loading."""
    for binding in death.bindings or ():
        to, others = _name(binding.to), [_name(binding.user)] if binding.own else _paths(death, binding.others)
        for other in others:
            if other in mine and to in mine and (mine.index(to) < mine.index(other)) != (theirs.index(to) < theirs.index(other)):
                fact = f"{_file(binding.user)} gets {binding.symbol} from {_file(to)}, and {_file(other)} defines that name as well"
                fact += f"; with another {axis} alone the same libraries are loaded in another order, and it survives"
                return Contrast(OTHER_ORDER, fact)
    return None


def _is_where_it_crashed(death: Observation, path: str) -> bool:
    fault = the_fault(death)
    innermost = next(iter(_libraries(death)), "")
    return _file(path) in (fault.library if fault else "", innermost)


def _paths(death: Observation, names: Sequence[str]) -> list[str]:
    return [_name(path) for path in death.mapped if _file(path) in names]


def _names(run: Observation) -> list[str]:
    return list(map(_name, run.mapped))


def _name(path: str) -> str:
    """Return the file with its folder, for two builds may have one name; what lies above is of this attempt alone, or of this machine."""
    return "/".join(PurePath(path).parts[-2:])


def _file(path: str) -> str:
    return PurePath(path).name


def _libraries(death: Observation) -> Sequence[str]:
    """Return those of the frames in which it crashed, the innermost first, without repeats."""
    named = [frame.library for frame in clusters.relevant(death.native_stack) if frame.kind == "native" and frame.library]
    return [library for number, library in enumerate(named) if number == 0 or named[number - 1] != library]
