"""A death that comes sooner is only worth something when it is the same death."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from matrix import shorten
from matrix.records import Exit, Frame, Memory, MemoryCurve, Observation, Progress, PythonError, Slope, Trial
from matrix.runner import cgroup
from tests.matrix.test_diagnosis import SPEC
from tests.matrix.test_diagnosis_memory import GROWING, MIB, killed

PROGRAM = Path(__file__).parents[1] / "children" / "runs_out_of_memory.py"


def observed(**facts: Any) -> Observation:
    base: dict[str, Any] = {
        "attempt": "0001-0",
        "key": "k",
        "trial": Trial(id=1, cell=dict(SPEC.known_bad)),
        "wall_s": 90.0,
        "started_unix_s": 0.0,
    }
    return Observation(**{**base, **facts})


def crashed(*functions: str, signal: str = "SIGSEGV", wall_s: float = 90.0) -> Observation:
    stack = [Frame(function=name, library="libjob.so", kind="native", trust="symbol") for name in functions]
    return observed(exit=Exit(returncode=-11, signal=signal), native_stack=stack, wall_s=wall_s, memory=Memory())


def test_the_same_signal_with_the_same_stack_is_the_same_death() -> None:
    assert shorten.same_death([crashed("gather", "mine")], crashed("gather", "mine"))[0]


@pytest.mark.parametrize(
    ("short", "why"),
    [
        (crashed("gather", "mine", signal="SIGBUS"), "SIGBUS"),
        (crashed("encode", "forward"), "crash stack is another one"),
        (observed(exit=Exit(returncode=0)), "it survived"),
    ],
    ids=["another signal", "another stack", "it lived"],
)
def test_another_end_is_not_the_same_death(short: Observation, why: str) -> None:
    same, said = shorten.same_death([crashed("gather", "mine")], short)
    assert not same
    assert why in said


def test_memory_that_grows_at_another_rate_is_another_death() -> None:
    faster = dataclasses.replace(GROWING, per_step=Slope(value=50 * MIB, low=40 * MIB, high=60 * MIB))
    same, said = shorten.same_death([observed(**killed(GROWING))], observed(**killed(faster)))
    assert not same
    assert "10.0 times as fast" in said


@pytest.mark.parametrize(
    ("long", "short", "which"),
    [
        (GROWING, None, "this run"),
        (GROWING, dataclasses.replace(GROWING, shape="unknown", per_step=None, per_s=None), "this run"),
        (None, GROWING, "the long run"),
    ],
    ids=["no curve", "no slope", "no curve of the long run"],
)
def test_memory_without_a_slope_cannot_be_compared_and_is_not_called_the_same(
    long: MemoryCurve | None, short: MemoryCurve | None, which: str
) -> None:
    same, said = shorten.same_death([observed(**killed(long))], observed(**killed(short)))
    assert not same
    assert f"the form of its memory is not comparable: {which}" in said


def raised(message: str, *frames: str, step: int | None = 40) -> Observation:
    error = PythonError(type="RuntimeError", message=message, frames=list(frames))
    return observed(exit=Exit(returncode=1), python_error=error, progress=Progress(last_step=step))


CUDA = "CUDA error: an illegal memory access was encountered at 0x7f3a in /home/a/run1/model.so, batch 117"
LOOP = "train.py:90 in train"


def test_an_exception_of_the_same_type_with_another_message_is_another_death() -> None:
    same, said = shorten.same_death([raised(CUDA, LOOP)], raised("Error(s) in loading state_dict for Tower", LOOP))
    assert not same
    assert "another RuntimeError: 'Error(s) in loading state_dict for Tower'" in said


def test_numbers_addresses_paths_and_names_in_the_message_of_an_exception_may_differ() -> None:
    other = "CUDA error: an illegal memory access was encountered at 0x55aa in /tmp/run22/model.so, batch 3"
    assert shorten.same_death([raised(CUDA, LOOP)], raised(other, "train.py:97 in train"))[0]
    assert shorten.skeleton("can't read 'a.npz': 12 of 13.5 left, hash deadbeef01") == "can't read #: # of # left, hash #"


def test_the_same_message_from_another_function_is_another_death() -> None:
    same, said = shorten.same_death([raised(CUDA, LOOP)], raised(CUDA, LOOP, "checkpoint.py:12 in load"))
    assert not same
    assert "in load, not in train" in said


@pytest.mark.parametrize("step", [None, 0])
def test_a_death_before_the_first_step_is_another_one_where_the_long_run_took_steps(step: int | None) -> None:
    same, said = shorten.same_death([raised(CUDA)], raised(CUDA, step=step))
    assert not same
    assert "before its first step" in said
    assert shorten.same_death([raised(CUDA, step=None)], raised(CUDA, step=step))[0]


def test_a_death_that_does_not_come_sooner_is_no_way_to_shorten() -> None:
    candidate = shorten.Candidate(what="with --x", spec=SPEC, keys={})
    long = [crashed("gather")]
    assert not shorten.judge_candidate(long, [crashed("gather", wall_s=95.0)], candidate).same
    assert shorten.judge_candidate(long, [crashed("gather", wall_s=9.0)], candidate).same


def test_without_a_death_to_compare_with_it_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "attempts").mkdir()
    with pytest.raises(shorten.CannotShorten, match="run it to its death once"):
        shorten.reference(tmp_path, SPEC)


def test_with_nothing_to_try_it_says_what_to_give() -> None:
    with pytest.raises(shorten.CannotShorten, match="--try"):
        shorten.candidates(SPEC, [crashed("gather")], [])


@pytest.mark.nightly
@pytest.mark.skipif(bool(cgroup.why_not()), reason=f"no memory cgroup here: {cgroup.why_not()}")
def test_a_real_leak_dies_alike_and_sooner_under_a_scaled_limit_and_the_specification_keeps_its_comments(tmp_path: Path) -> None:
    command = json.dumps([sys.executable, str(PROGRAM), "--max-steps", "400"])
    text = f"name: leak\nrun:\n  command: {command}  # the job\nmatrix:\n  leak: [0, 4]\nknown_bad: {{leak: 4}}\n"
    (tmp_path / "spec.yaml").write_text(text + "limits: {wall: 120s, memory: 400MiB}\nexecutor: {jobs: 1}\n")

    def matrix(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-m", "matrix", *words], cwd=tmp_path, capture_output=True, text=True, timeout=240)

    assert matrix("run", "spec.yaml", "--max-runs", "1").returncode == 0
    done = matrix("shorten", "spec.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same signature (SIGKILL:memory) in 2 of 2 runs" in done.stdout
    written = (tmp_path / "spec.short.yaml").read_text()
    assert "# the job" in written
    assert matrix("plan", "spec.short.yaml").returncode == 0
