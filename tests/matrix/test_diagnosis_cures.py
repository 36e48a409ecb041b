"""What the diagnosis tells the search of the changes, and what a failure beside the main one is judged by."""

from __future__ import annotations

from typing import Any

from matrix.diagnosis import judge, openmp
from matrix.diagnosis.case import Case
from matrix.diagnosis.cures import advise
from matrix.diagnosis.verdict import build
from matrix.records import Cell, Exit, Observation, ProbeResult, Progress, Trial
from matrix.search import Search
from matrix.spec import Spec
from tests.matrix.test_diagnosis import both, died, lived

SPEC = Spec.model_validate(
    {"name": "made", "run": {"command": ["job"]}, "matrix": {"easy": [1, 2], "runtime": ["two", "one"], "check": ["on", "off"]}}
)
BAD: Cell = {"easy": 1, "runtime": "two", "check": "on"}


def observation(trial: Trial, facts: dict[str, Any]) -> Observation:
    base: dict[str, Any] = {
        "attempt": f"{trial.id:04d}-0",
        "key": "k",
        "wall_s": 3.0,
        "started_unix_s": 0.0,
        "progress": Progress(last_step=9),
    }
    return Observation(**{**base, "trial": trial, **facts})


def ends(cell: Cell) -> dict[str, Any]:
    """Two runtimes abort, unless the check is off (which hides it); `easy` avoids it."""
    if cell["runtime"] == "one":
        return lived(libraries=both()[:1])
    return died(libraries=both()) if cell["easy"] == 1 and cell["check"] == "on" else lived(libraries=both())


def searched() -> tuple[Search, list[Observation]]:
    search, seen = Search(SPEC), list[Observation]()
    while (trial := search.ask()) is not None:
        seen.append(observation(trial, ends(trial.cell)))
        search.tell(trial, judge.outcome(seen[-1]))
    return search, seen


def case_of(search: Search, seen: list[Observation], *more: Observation) -> Case:
    observations = [*seen, *more]
    environments = {one.attempt: {"KMP_DUPLICATE_LIB_OK": "1"} for one in observations if one.trial.cell["check"] == "off"}
    result = search.result()
    return Case(
        known_bad=BAD,
        observations=observations,
        outcomes={one.attempt: judge.outcome(one) for one in observations},
        environments=environments,
        result=result,
        signature=result.main_signature,
    )


def fix_and_hiding(search: Search) -> tuple[Cell | None, list[Cell]]:
    result = search.result()
    return result.fix.set if result.fix else None, [other.set for other in result.other_fixes if other.kind == "hides"]


def test_advice_is_the_same_however_often_it_is_given_and_is_withdrawn_when_another_cause_leads() -> None:
    search, seen = searched()
    case = case_of(search, seen)
    without = fix_and_hiding(search)
    assert without[0] != {"runtime": "one"}  # or the advice has nothing to change
    advise(search, case, openmp.CAUSE)
    first = fix_and_hiding(search)
    assert first == ({"runtime": "one"}, [{"check": "off"}])
    advise(search, case, openmp.CAUSE)
    assert fix_and_hiding(search) == first
    advise(search, case, "stack_overflow")
    assert fix_and_hiding(search) == (without[0], [{"check": "off"}])  # the check hides two runtimes, whatever leads


def test_a_failure_beside_the_main_one_is_not_judged_by_probes_of_the_known_bad_cell() -> None:
    search, seen = searched()
    beside = observation(Trial(id=800, cell={**BAD, "easy": 2}), {"exit": Exit(returncode=-11, signal="SIGSEGV")})
    held = ProbeResult(name="larger_stacks", setting="", held=True, how="made")
    probe = observation(Trial(id=900, cell=BAD, probes={"larger_stacks": ""}), lived(probes=[held]))

    def ranking(*more: Observation) -> dict[str, list[tuple[str, float]]]:
        found = build(case_of(search, seen, beside, *more), name="made", complete=True, wall_s=1.0)
        return {failure.signature: [(entry.cause, entry.probability) for entry in failure.ranking] for failure in found.failures}

    plain, probed = ranking(), ranking(probe)
    assert probed["SIGABRT"] != plain["SIGABRT"]  # the main failure is told apart by it
    assert probed["SIGSEGV"] == plain["SIGSEGV"]
