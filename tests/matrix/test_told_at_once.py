"""An exception that comes whatever the axes are is told after two runs; one that an axis decides is searched for as ever."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from matrix.diagnosis.told_at_once import is_same_exception
from matrix.executors.local import LocalPool
from matrix.planner import Planner
from matrix.records import PythonError, Verdict
from matrix.spec import Spec
from tests.matrix.test_planner import Silent

PROGRAM = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--bs", type=int)
p.add_argument("--workers", type=int)
a = p.parse_args()
def load(n):
    if {when}:
        raise {error}
for n in range(1, 6):
    print("step", n, flush=True)
    load(n)
"""


def run(folder: Path, when: str, error: str = "ValueError(f'record {n} has no label')", **matrix: Any) -> Verdict:
    (folder / "job.py").write_text(PROGRAM.format(when=when, error=error))
    text: dict[str, Any] = {
        "run": {"command": ["python", "job.py"], "cwd": str(folder)},
        "matrix": {"bs": [4, 8, 16], "workers": [0, 2], **matrix},
        "known_bad": {"bs": 16, "workers": 2},
        "search": {"max_runs": 20},
    }
    (folder / "run").mkdir()
    with LocalPool(1) as pool:
        return Planner(Spec.model_validate(text), folder / "run", pool, Silent()).run(threading.Event())


def test_the_same_exception_with_everything_changed_is_told_after_two_runs(tmp_path: Path) -> None:
    found = run(tmp_path, "n == 3")
    first = found.ranking[0]
    assert (found.status, first.cause, first.grade, found.runs) == ("suspected", "python_exception", "supported", 2)
    assert "ValueError at" in found.status_text and "no axis of this matrix takes part" in found.status_text
    assert first.culprit == {} and found.fix is None


def test_each_value_that_may_matter_is_tried_before_axes_are_cleared(tmp_path: Path) -> None:
    kinds = {"kind": {"choices": {"a": {}, "b": {"env": {"KIND": "b"}}, "c": {"env": {"KIND": "c"}}}}}
    found = run(tmp_path, "n == 3", **kinds)
    assert found.runs == 3 and "takes part" in found.status_text


@pytest.mark.parametrize(
    ("when", "culprit"),
    [("n == 3 and a.bs >= 8", {"bs": [8, 16]}), ("n == 3 and a.workers", {"workers": [2]}), ("n == 3 and a.bs == 16", {"bs": [16]})],
)
def test_an_exception_that_an_axis_decides_is_searched_for(tmp_path: Path, when: str, culprit: dict[str, Any]) -> None:
    found = run(tmp_path, when)
    assert found.ranking[0].culprit == culprit and found.fix is not None
    assert "takes part" not in found.status_text


def test_another_exception_with_everything_changed_is_no_proof(tmp_path: Path) -> None:
    found = run(tmp_path, "n == 3", "(ValueError if a.bs == 16 else KeyError)('x')")
    assert "takes part" not in found.status_text and found.runs > 2


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (PythonError(type="OSError", message="truncated (17 bytes)", frames=["a.py:1 in f", "b.py:9 in g"]), True),
        (PythonError(type="OSError", message="Caught it in worker 3.\ntruncated (4 bytes)", frames=["reraise.py:1 in r"]), True),
        (PythonError(type="OSError", message="no such file", frames=["c.py:4 in h"]), False),
        (PythonError(type="ValueError", message="truncated (17 bytes)", frames=["b.py:9 in g"]), False),
        (PythonError(type="OSError", message=""), False),
    ],
)
def test_one_exception_is_told_from_another_by_type_and_line_or_words(other: PythonError, same: bool) -> None:
    one = PythonError(type="OSError", message="truncated (122 bytes)", frames=["x.py:3 in z", "b.py:9 in g"])
    assert is_same_exception(one, other) is same
