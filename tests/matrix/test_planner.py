"""Search, probes and the control run share one budget."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from matrix.executors.local import LocalPool
from matrix.planner import Planner
from matrix.records import Attempt, Exit, Memory, Message, Observation, Outcome, Trial, Verdict
from matrix.runner.attempt import Job, Live
from matrix.spec import Spec

DIES = "kill -SEGV $$"
DIES_IN_A_CORNER = f'case "$*" in *"--bs 4 --mode a"*) {DIES};; esac'


class Silent:
    """Nobody watches; `on_end` hears of every attempt that ended."""

    def __init__(self, on_end: Callable[[Trial], None] = lambda trial: None) -> None:
        self._on_end = on_end

    def expects(self, runs: int) -> None: ...
    def started(self, attempt: Attempt) -> None: ...
    def refresh(self, running: dict[str, Live]) -> None: ...
    def note(self, text: str) -> None: ...
    def finished(self, attempt: str, trial: Trial, outcome: Outcome, learnt: str) -> None:
        self._on_end(trial)


def spec_of(program: str, max_runs: int) -> Spec:
    text: dict[str, Any] = {
        "name": "short",
        "run": {"command": ["sh", "-c", program, "job"]},
        "matrix": {"bs": [4, 8], "mode": ["a", "b"]},
        "search": {"max_runs": max_runs, "strategy": "one_at_a_time"},
    }
    return Spec.model_validate(text)


def adaptive(program: str) -> Spec:
    text: dict[str, Any] = {
        "name": "short",
        "run": {"command": ["sh", "-c", program, "job"]},
        "matrix": {"bs": [4, 8, 16], "mode": ["a", "b"], "n": [1, 2]},
        "known_bad": {"bs": 16, "mode": "b", "n": 2},
        "search": {"max_runs": 25},
        "evidence": {"control": False},
    }
    return Spec.model_validate(text)


def play(planner: Planner) -> Verdict:
    return planner.run(threading.Event())


def test_attempts_of_search_and_probes_together_are_at_most_max_runs(tmp_path: Path) -> None:
    with LocalPool(1) as pool:
        planner = Planner(spec_of(DIES, 6), tmp_path, pool, Silent())
        verdict = play(planner)
    assert any(one.trial.probes for one in planner.observations)
    assert verdict.complete and verdict.runs == len(list((tmp_path / "attempts").glob("*/observation.json"))) == 6


def test_a_search_that_goes_on_after_a_probe_has_only_the_runs_that_are_left(tmp_path: Path) -> None:
    """No change may be the fix until the first probe; then the advice is withdrawn, and the search wants to verify one.  When the probe
    comes depends on how long runs take here, so one run is left from then on."""
    probed: list[Trial] = []

    def hold_back(trial: Trial) -> None:
        if trial.probes and not probed:
            planner.spec = planner.search.spec = spec_of(DIES_IN_A_CORNER, len(planner.observations) + 1)
        probed.extend([trial] if trial.probes else [])
        if not probed:
            planner.search.veto("bs", 8, "it only hides it")
            planner.search.veto("mode", "b", "it only hides it")

    with LocalPool(1) as pool:
        planner = Planner(spec_of(DIES_IN_A_CORNER, 40), tmp_path, pool, Silent(hold_back))
        verdict = play(planner)
    most, purposes = planner.spec.search.max_runs, [one.trial.purpose for one in planner.observations]
    assert probed and purposes[-1] == "verify", "the search did not go on: this tests nothing"
    assert verdict.runs == most
    assert f"the search was ended: max_runs ({most}) are used up" in planner.search.result().reasons


class Side:
    """A pool in which two attempts are under way until somebody says how they ended."""

    jobs = free = 2

    def __init__(self) -> None:
        self.running: dict[str, Live] = {}

    def submit(self, job: Job) -> None:
        self.running[job.attempt.id] = Live(attempt=job.attempt, started_monotonic=0.0)
        self.free -= 1


def suspected(folder: Path, order: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the search is told of two deaths of one signature that speak for different causes, and end in this order."""
    text = {
        "name": "side",
        "run": {"command": ["job"]},
        "matrix": {"bs": [4, 8], "omp": {"choices": {"plain": {}, "both": {"env": {"KMP_DUPLICATE_LIB_OK": "TRUE"}}}}},
    }
    pool, told = Side(), dict[str, Any]()
    folder.mkdir()
    planner = Planner(Spec.model_validate(text), folder, cast(LocalPool, pool), Silent())
    monkeypatch.setattr(planner.search, "suspect_axes", lambda weights: told.update(weights=dict(weights)))
    monkeypatch.setattr(planner.search, "expect_every_time", lambda probability: told.update(every_time=probability))
    planner._fill()
    attempts = sorted((live.attempt for live in pool.running.values()), key=lambda attempt: attempt.id)
    assert [attempt.trial.cell for attempt in attempts] == [planner.spec.known_bad] * 2
    words = [
        Message(kind="openmp conflict", text="OMP: Error #15: Initializing libiomp5.so, but found libomp.so already", stream="stderr"),
        Message(kind="heap damaged", text="free(): invalid pointer", stream="stderr"),
    ]
    for which in order:
        attempt = pool.running.pop(attempts[which].id).attempt
        base: dict[str, Any] = {"key": "k", "wall_s": 1.0, "started_unix_s": 0.0, "memory": Memory(oom_kills=0)}
        ended = Exit(returncode=-6, signal="SIGABRT")
        planner._take(Observation(attempt=attempt.id, trial=attempt.trial, exit=ended, messages=[words[which]], **base))
    return told


def test_what_is_suspected_does_not_depend_on_which_of_two_attempts_side_by_side_ended_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = suspected(tmp_path / "first", (0, 1), monkeypatch)
    assert told["weights"]["omp"] and told["every_time"]
    assert suspected(tmp_path / "second", (1, 0), monkeypatch) == told


@pytest.mark.slow
@pytest.mark.parametrize(("dying", "living", "early"), [("", "sleep 1", True), ("sleep 1;", "", False)])
def test_a_probe_comes_before_the_search_is_done_only_where_a_death_takes_less_time(
    tmp_path: Path, dying: str, living: str, early: bool
) -> None:
    """It survives every third time, so that the search goes on for long with little to learn from a run."""
    count = f"n=$(cat {tmp_path}/n 2>/dev/null || echo 0); echo $((n + 1)) > {tmp_path}/n"
    sometimes = f"{count}; if [ $((n % 3)) -ne 2 ]; then {dying} {DIES}; fi"
    program = f'case "$*" in *"--bs 16 --mode b"*) {sometimes};; esac; {living}'
    (tmp_path / "run").mkdir()
    with LocalPool(1) as pool:
        planner = Planner(adaptive(program), tmp_path / "run", pool, Silent())
        play(planner)
    searched = [number for number, one in enumerate(planner.observations) if not one.trial.probes]
    probed = [number for number, one in enumerate(planner.observations) if one.trial.probes]
    assert any(number < searched[-1] for number in probed) is early
