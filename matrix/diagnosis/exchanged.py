"""Whether one native library in another's place decides: what is called by a package that was built for the other one.

A layout that two packages do not agree on says nothing, neither when it is loaded nor when it crashes: it looks like a wrong pointer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import PurePath

from matrix.diagnosis import clusters
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import finding
from matrix.diagnosis.native import crash_signal
from matrix.diagnosis.native_causes import NATIVE_CRASH
from matrix.records import Finding, Observation

BINARY = "binary_incompatibility"
NATS = 3.5  # less than a confirmation needs: the one build may as well have a fault of its own
MOST = 2  # libraries in whose place others are: a change of many is another program


def findings(case: Case) -> Iterator[Finding]:
    """The crash is where one library calls another, and with one of these two exchanged, by a change of one axis, it survives."""
    for death in case.bad_deaths if case.result.culprit else ():
        for axis, survivor in case.beside if crash_signal(death) else ():
            if axis in case.result.culprit and (found := _exchanged(death, survivor)):
                mine, theirs, other = found
                fact = f"it crashed in {mine}, called by {other}; with another {axis} alone {theirs} is there in its place, and it survives"
                yield finding(BINARY, "exchanged", death, NATS, fact, "maps.txt")
                for cause in NATIVE_CRASH:  # how it crashed is the same whether a caller or a build gets the pointer wrong
                    yield finding(cause, "exchanged", death, -2.5, fact, "maps.txt")
                return


def _exchanged(death: Observation, survivor: Observation) -> tuple[str, str, str] | None:
    """The library that is mapped in the death alone, the one in its place, and the one on the other side of the call that crashed."""
    mine, theirs = set(map(_name, death.mapped)), set(map(_name, survivor.mapped))
    gone, came = sorted(mine - theirs), sorted(theirs - mine)
    if not mine or not theirs or not 0 < len(gone) <= MOST or not 0 < len(came) <= MOST:
        return None
    names = {PurePath(name).name: name for name in gone}
    calls = pairwise(_libraries(death))
    return next(((names[inner], came[0], outer) for inner, outer in calls if inner in names and outer not in names), None)


def _name(path: str) -> str:
    """With the folder that it is in, for two builds may have one name; what lies above is of this attempt alone, or of this machine."""
    return "/".join(PurePath(path).parts[-2:])


def _libraries(death: Observation) -> Sequence[str]:
    """Of the frames in which it crashed, the innermost first, without repeats."""
    named = [frame.library for frame in clusters.relevant(death.native_stack) if frame.kind == "native" and frame.library]
    return [library for number, library in enumerate(named) if number == 0 or named[number - 1] != library]
