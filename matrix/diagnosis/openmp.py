"""Two OpenMP runtimes of the LLVM/Intel family in one process (cause `openmp_runtime_conflict`).

What counts is what was mapped, not what was printed: a program can print the runtime's words and be well, and the
words are lost when stderr is.  The runtime aborts at the first *use* of the second copy.  KMP_DUPLICATE_LIB_OK
silences the check; both copies stay loaded, so a survivor under it is not cured.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from matrix.diagnosis.case import Case, duplicate_runtimes
from matrix.diagnosis.cause import Cause, finding, remedy
from matrix.records import Cell, Finding, Library, Observation

CAUSE = "openmp_runtime_conflict"
OVERRIDE = "KMP_DUPLICATE_LIB_OK"
MESSAGE = "OMP: Error #15"
CAUSES = (
    Cause(
        name=CAUSE,
        title="Two OpenMP runtimes in one process",
        clause="two copies of an OpenMP runtime are loaded into one process, and the second one to be used aborts the process",
        every_time=0.95,
        remedies=(
            remedy("axis", "one copy of the runtime for everything in the process"),
            remedy("package", "all native packages from one source, so that they share one runtime"),
            remedy(
                "environment", "KMP_DUPLICATE_LIB_OK=TRUE", "hides it: both copies stay loaded, which may crash later or give wrong numbers"
            ),
        ),
        references=("LLVM OpenMP runtime, KMP_DUPLICATE_LIB_OK", "threadpoolctl documentation, multiple OpenMP runtimes"),
        cures_it={"runtime_override": 0.95, "one_thread": 0.05},
    ),
)


def findings(case: Case) -> Iterator[Finding]:
    for death in case.deaths:
        yield from _from_death(death)
    yield from _from_contrast(case)


def _from_death(death: Observation) -> Iterator[Finding]:
    groups = duplicate_runtimes(death)
    aborted = death.exit.signal == "SIGABRT"
    if groups:
        many = f"{len(groups[0])} OpenMP runtimes of the LLVM/Intel family"
        fact = f"{many} were mapped into pid {groups[0][0].pid} when it died: {_names(groups[0])}"
        yield finding(CAUSE, "mapped", death, 4.0 if aborted else 2.0, fact, "maps.txt")
    elif _at_death(death):
        yield finding(
            CAUSE,
            "mapped",
            death,
            -5.0,
            "the map of the process at death holds at most one OpenMP runtime of the LLVM/Intel family",
            "maps.txt",
        )
    elif not any(library.family == "openmp-llvm" for library in death.libraries):
        yield finding(
            CAUSE,
            "mapped",
            death,
            -1.5,
            "no OpenMP runtime of the LLVM/Intel family was seen in the process (it may have been loaded just before)",
            "maps.txt",
        )
    if aborted:
        for left in death.omp_registrations:
            yield finding(
                CAUSE,
                "registered",
                death,
                1.5,
                f"the OpenMP runtime {PurePath(left.library).name} was registered by pid {left.pid} and never signed off",
                "observation.json",
            )
    other = next((m for m in death.messages if m.kind in ("heap damaged", "assertion", "c++ exception")), None)
    if groups and other and not any(MESSAGE in line for line in death.output_tail):
        yield finding(CAUSE, "other words", death, -3.0, f"it aborted with other words: {other.text.strip()[:120]}", f"{other.stream}.log")
    if groups and any(MESSAGE in line for line in death.output_tail):
        yield finding(CAUSE, "message", death, 1.0, "the second runtime said so itself: OMP: Error #15", "stderr.log")
    if death.exit.signal not in ("SIGABRT", "SIGSEGV") and not groups:
        yield finding(CAUSE, "signal", death, -3.0, "it did not abort, which is how these runtimes end a process", "observation.json")


def _from_contrast(case: Case) -> Iterator[Finding]:
    if not any(duplicate_runtimes(death) for death in case.deaths):
        return
    for survivor in case.survivors:
        groups = duplicate_runtimes(survivor)
        if groups and not _overridden(case, survivor):
            yield finding(CAUSE, "harmless", survivor, -3.0, "it survives with both runtimes loaded and without the override", "maps.txt")
        elif groups:
            yield finding(
                CAUSE, "override", survivor, 2.0, f"with {OVERRIDE} set it survives although both runtimes are still loaded", "maps.txt"
            )
        elif not groups and any(library.family == "openmp-llvm" for library in survivor.libraries):
            yield finding(CAUSE, "one runtime", survivor, 2.0, "with one runtime of the family loaded it survives", "maps.txt")


def hides(case: Case, cell: Cell) -> str | None:
    """Why a surviving cell only hides the conflict; None: it does not."""
    for survivor in case.survivors_of(cell):
        if duplicate_runtimes(survivor) and _overridden(case, survivor):
            return (
                f"{OVERRIDE} only switches the check off: the two runtimes are still loaded side by side (attempt {survivor.attempt}), "
                "which their makers say may crash later or give wrong numbers"
            )
    return None


def is_gone(case: Case, cell: Cell) -> bool:
    """Whether the conflict itself is gone in the surviving attempts of `cell`, while everything else that was loaded still is."""
    survivors = case.survivors_of(cell)
    left = all(any(library.family == "openmp-llvm" for library in o.libraries) and not duplicate_runtimes(o) for o in survivors)
    return left and case.runs_as_much(cell, but="openmp-llvm")


def _at_death(death: Observation) -> bool:
    return any(library.seen == "core" for library in death.libraries)


def _overridden(case: Case, observation: Observation) -> bool:
    return (case.environment(observation, OVERRIDE) or "").strip().lower() in ("1", "true", "yes", "on", "t", "y", "enabled", ".true.")


def _names(group: list[Library]) -> str:
    return " and ".join(library.path for library in group)
