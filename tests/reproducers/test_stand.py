"""What the stand makes of an ending.  How it gets there is tested by the suspects' own controls, in reproducers/."""

from __future__ import annotations

from typing import Any

import pytest

from matrix.records import Exit, Observation, Progress, PythonError, Trial
from reproducers.stand import Judgement, judge

NO_FAISS = PythonError(type="ModuleNotFoundError", message="No module named 'faiss'")

def observed(returncode: int, *, finished: bool = False, last_line: str = "", error: PythonError | None = None, **end: str) -> Observation:
    return Observation(
        attempt="0001-x",
        key="x",
        trial=Trial(id=1, cell={}),
        exit=Exit(returncode=returncode, **end),  # type: ignore[arg-type]
        wall_s=1.0,
        started_unix_s=0.0,
        progress=Progress(finished_line=finished, last_line=last_line),
        python_error=error,
    )


@pytest.mark.parametrize(
    ("observation", "kind", "reason"),
    [
        (observed(0, finished=True), "cleared", ""),
        (observed(77, last_line="torch sees no mps device here"), "could not run", "torch sees no mps device here"),
        (observed(1, error=NO_FAISS), "could not run", "No module named 'faiss'"),
        (observed(-9, ended_by="interrupt"), "could not run", "interrupted"),
        (observed(0), "convicted", ""),  # exit 0 half way is no success
        (observed(1, error=PythonError(type="ImportError", message="undefined symbol: f")), "convicted", ""),
        (observed(-9, ended_by="idle"), "convicted", ""),
        (observed(-11, finished=True), "convicted", ""),  # a crash in the teardown is a crash
    ],
)
def test_only_a_whole_run_clears_and_only_a_missing_need_excuses(observation: Observation, kind: Any, reason: str) -> None:
    assert judge(observation) == Judgement(kind=kind, reason=reason)
