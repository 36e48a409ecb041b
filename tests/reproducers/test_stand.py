"""What the stand makes of an ending.  How it gets there is tested by the suspects' own controls, in reproducers/."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from matrix.records import Exit, Load, MemoryCurve, Observation, Progress, PythonError, Slope, Trial
from reproducers.judging import Judgement, growth, judge, peak, runnable

NO_FAISS = PythonError(type="ModuleNotFoundError", message="No module named 'faiss'")


def observed(returncode: int, *, finished: bool = False, last_line: str = "", error: PythonError | None = None, **end: str) -> Observation:
    return Observation(
        attempt="0001-x",
        key="x",
        trial=Trial(id=1, cell={}),
        exit=Exit(returncode=returncode, **end),  # type: ignore[arg-type]
        wall_s=1.0,
        started_unix_s=0.0,
        progress=Progress(finished_line=finished, last_line=last_line, last_step=3),
        python_error=error,
    )


@pytest.mark.parametrize(
    ("observation", "kind", "reason"),
    [
        (observed(0, finished=True), "cleared", "finished, last step 3"),
        (observed(77, last_line="torch sees no mps device here"), "could not run", "torch sees no mps device here"),
        (observed(1, error=NO_FAISS), "could not run", "No module named 'faiss'"),
        (observed(-9, ended_by="interrupt"), "could not run", "interrupted"),
        (
            observed(-9, ended_by="starved"),
            "could not run",
            "it was ready to run and had no processor: this machine does too much else",
        ),
        (observed(0), "convicted", "exit status 0 before it had finished, last step 3"),
        (observed(1, error=PythonError(type="ImportError", message="undefined symbol: f")), "convicted", "exit status 1, last step 3"),
        (observed(-9, ended_by="idle"), "convicted", "it hung (idle: ) and was ended by us, last step 3"),
        (observed(-11, finished=True, signal="SIGSEGV"), "convicted", "SIGSEGV (status -11), last step 3"),  # in the teardown
    ],
)
def test_only_a_whole_run_clears_and_only_a_missing_need_excuses(observation: Observation, kind: Any, reason: str) -> None:
    assert judge(observation) == Judgement(kind=kind, reason=reason)


def used(*, slope: Slope | None = None, peak_bytes: int = 0, load: Load | None = None) -> dict[str, Any]:
    curve = MemoryCurve(
        shape="linear", series="private", samples=99, warmup_s=0.0, start_bytes=0, end_bytes=0,
        peak_bytes=peak_bytes, noise_bytes=0, per_step=slope,
    )  # fmt: skip
    return {"curve": curve, "load": load}


LOAD = Load(cpus=2, runnable_mean=9.0, runnable_most=12, looks=8)


@pytest.mark.parametrize(
    ("rule", "facts", "kind", "said"),
    [
        (growth(1000), used(slope=Slope(value=5e3, low=4e3, high=6e3)), "convicted", "grows by 5 kB a step (95 %: 4 kB to 6 kB), 1 kB"),
        (growth(1000), used(slope=Slope(value=1e3, low=-1e3, high=3e3)), "could not run", "1 kB a step (95 %: -1 kB to 3 kB), 1 kB are"),
        (growth(1000), used(slope=Slope(value=0.0, low=-1e2, high=1e2)), "cleared", "finished, last step 3; memory grows by 0 kB"),
        (growth(1000), used(), "could not run", "too few samples"),
        (growth(1000), {}, "could not run", "too few samples"),
        (peak(10**8), used(peak_bytes=2 * 10**8), "convicted", "200 MB at most, 100 MB are allowed"),
        (peak(10**8), used(peak_bytes=10**8), "cleared", "100 MB at most"),
        (peak(10**8), {}, "could not run", "no sample"),
        (runnable(2.0), {"load": LOAD}, "convicted", "9.0 threads want to run at a time on 2 processors, 2 for each are allowed"),
        (runnable(4.5), {"load": LOAD}, "cleared", "9.0 threads"),
        (runnable(2.0), {"load": Load(cpus=2, runnable_mean=9.0, runnable_most=9, looks=1)}, "could not run", "too short"),
        (runnable(2.0), {}, "could not run", "too short"),
    ],
)
def test_a_whole_run_is_held_against_its_rules(rule: Any, facts: dict[str, Any], kind: str, said: str) -> None:
    whole = Observation(**{**vars(observed(0, finished=True)), **facts})
    judgement = judge(whole, [rule])
    assert judgement.kind == kind
    assert said in judgement.reason


def test_a_run_that_died_is_judged_by_its_death_and_one_broken_rule_convicts() -> None:
    facts = used(slope=Slope(value=0.0, low=0.0, high=0.0), peak_bytes=2)
    died, whole = (Observation(**{**vars(observed(code, finished=True)), **facts}) for code in (-6, 0))
    assert judge(died, [peak(1)]).reason == "exit status -6, last step 3"
    assert judge(whole, [growth(1), runnable(1), peak(1)]) == Judgement(kind="convicted", reason="0 MB at most, 0 MB are allowed")


SUSPECTS = sorted((Path(__file__).parents[2] / "reproducers").glob("test_*.py"))


@pytest.mark.parametrize("path", SUSPECTS, ids=lambda path: path.stem)
def test_every_suspect_has_a_program_and_a_control_that_plants_the_fault(path: Path) -> None:
    tests = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    called = {name: {test.name for test in tests if f"stand.{name}(" in ast.unparse(test)} for name in ("clears", "convicts")}
    controls = {test.name for test in tests if "pytest.mark.control" in map(ast.unparse, test.decorator_list)}
    assert called["clears"]
    assert called["convicts"]
    assert called["convicts"] <= controls
    keywords = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.keyword) and node.arg == "program"]
    programs = [str(keyword.value.value) for keyword in keywords if isinstance(keyword.value, ast.Constant)]
    assert programs
    assert all((path.parent / "suspects" / f"{program}.py").exists() for program in programs)
