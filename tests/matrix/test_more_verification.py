"""Where runs are quick, more fresh runs of the fix than the search needs; where they are slow, none."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from matrix import planner as planning
from matrix.executors.local import LocalPool
from matrix.planner import Planner
from matrix.spec import Spec
from tests.matrix.test_planner import Silent


def finished_planner(folder: Path, monkeypatch: pytest.MonkeyPatch, *, share: float) -> Planner:
    """Run the OpenMP-free native crash to its end: a child that asks for more descriptors than it may have."""
    monkeypatch.setattr(planning, "TIME_FOR_MORE", share)
    program = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--files', type=int)\np.add_argument('--bs', type=int)\n"
        "a = p.parse_args()\nprint('step 1', flush=True)\nkept = [open('/dev/null') for _ in range(a.files)]\nprint('step 2', flush=True)\n"
    )
    (folder / "job.py").write_text(program)
    text: dict[str, Any] = {
        "run": {"command": ["python", "job.py"], "cwd": str(folder)},
        "matrix": {"files": [4, 400], "bs": [4, 8]},
        "known_bad": {"files": 400, "bs": 8},
        "limits": {"nofile": 64, "wall": "60s"},
    }
    (folder / "run").mkdir()
    with LocalPool(1) as pool:
        planner = Planner(Spec.model_validate(text), folder / "run", pool, Silent())
        planner.run(threading.Event())
    return planner


def test_quick_runs_are_verified_more_and_slow_ones_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("quick", "slow"):
        (tmp_path / name).mkdir()
    more = finished_planner(tmp_path / "quick", monkeypatch, share=100.0)  # of the time until then: a busy machine is no slow program
    none = finished_planner(tmp_path / "slow", monkeypatch, share=0.0)
    extra = [run for run in more.observations if run.trial.why == planning.MORE_FRESH]
    first, second = (each._verdict for each in (more, none))
    assert first is not None and second is not None and first.status == second.status == "diagnosed"
    assert first.fix is not None and second.fix is not None
    assert 1 <= len(extra) <= planning.MOST_MORE and len(more.observations) <= planning.MOST_WITH_MORE + 1
    assert {run.trial.why for run in none.observations}.isdisjoint({planning.MORE_FRESH})
    assert first.fix.clean_runs > second.fix.clean_runs and first.fix.failure_rate_upper_95 is not None
    assert second.fix.failure_rate_upper_95 is not None
    assert first.fix.failure_rate_upper_95.value < second.fix.failure_rate_upper_95.value
