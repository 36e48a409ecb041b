"""The catalogue: every cause that the diagnosis knows, and the rules that look for it.

A cause and its rules live in the module of its family; a family is one entry in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Iterator

from matrix.diagnosis import endings, figures, fork, limits, memory, native, needs, openmp, probing, room, stalls, watchdogs
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import Cause
from matrix.records import Finding

FAMILIES = (openmp, fork, memory, limits, room, native, figures, endings, stalls, watchdogs)
CAUSES: dict[str, Cause] = {cause.name: cause for family in FAMILIES for cause in family.CAUSES}
OPEN = (  # what is no cause, and stands in a ranking beside them
    Cause(
        name="healthy",
        title="Nothing wrong was found",
        clause="the job did not fail in the runs that were made",
        remedies=(),
    ),
    Cause(
        name="unknown",
        title="A cause that is not in the catalogue",
        clause="the failure is real, but none of the known causes explains it",
        remedies=(),
    ),
)
ENTRIES: dict[str, Cause] = {**CAUSES, **{cause.name: cause for cause in OPEN}}


def causes_of(case: Case) -> dict[str, Cause]:
    """The causes, with what each predicts where the evidence of this case says more than the catalogue."""
    return {**CAUSES, **memory.causes_of(case), **limits.causes_of(case), **native.causes_of(case)}


def findings(case: Case) -> Iterator[Finding]:
    """Every judgement on every attempt, by all families and by the tool's own interventions."""
    for family in FAMILIES:
        yield from family.findings(case)
    yield from needs.findings(case)
    yield from probing.findings(case, causes_of(case))
