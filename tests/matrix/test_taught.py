"""What the first runs teach of the next ones: how steps look, how long a start takes, when a run has outlived the deaths."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrix.diagnosis import judge
from matrix.executors.local import LocalPool
from matrix.planner import Planner
from matrix.records import Exit, Observation, Outcome, ProcessSeen, Progress, Trial, Verdict
from matrix.runner.attempt import Job
from matrix.runner.patience import Limits, Patience
from matrix.spec import Spec
from matrix.taught import LEAST_LONGER_S, NOTHING_TAUGHT, OUTLIVES, taught_by, with_length
from tests.matrix.command_line import matrix, only_run, specification, verdict
from tests.matrix.test_planner import Silent

LIMITS = {"idle_s": 60.0, "startup_s": 300.0, "longest_gap_s": 0.0}
BAD, GOOD = {"bs": 8}, {"bs": 4}


def run_of(number: int, cell: dict[str, Any], wall_s: float, **facts: Any) -> Observation:
    purpose = facts.pop("purpose", "find")
    facts.setdefault("exit", Exit(returncode=0))
    trial = Trial(id=number, cell=cell, purpose=purpose)
    return Observation(attempt=f"{number:04d}-0", key="", trial=trial, wall_s=wall_s, started_unix_s=0.0, **facts)


def died(number: int, wall_s: float, step: int | None = None) -> tuple[Observation, Outcome]:
    progress = Progress(last_step=step)
    return run_of(number, BAD, wall_s, progress=progress), Outcome(kind="died", seconds=wall_s, steps=step, signature="SIGABRT")


def lived(number: int, wall_s: float, **facts: Any) -> tuple[Observation, Outcome]:
    whole = facts.pop("whole", True)
    return run_of(number, GOOD, wall_s, **facts), Outcome(kind="survived", seconds=wall_s, whole=whole)


def told(*runs: tuple[Observation, Outcome]) -> tuple[list[Observation], dict[str, Outcome]]:
    return [run for run, _ in runs], {run.attempt: outcome for run, outcome in runs}


# ------------------------------------------------------------------ how long a run goes on
def length(purpose: Any, fix: dict[str, Any] | None, *runs: tuple[Observation, Outcome], cell: dict[str, Any] = GOOD) -> float | None:
    return with_length(NOTHING_TAUGHT, Trial(id=9, cell=cell, purpose=purpose), fix, *told(*runs)).stop_after_s


def test_a_run_is_ended_when_it_has_outlived_the_latest_death_by_the_stated_factor() -> None:
    assert length("find", None, died(1, 10), died(2, 15)) == OUTLIVES * 15
    assert length("find", None, died(1, 0.1)) == 0.1 + LEAST_LONGER_S, "what is quick anyway is not shortened"


def test_runs_that_measure_and_the_first_that_verifies_go_to_their_natural_end() -> None:
    assert length("calibrate", None, died(1, 10)) is None and length("control", None, died(1, 10)) is None
    assert length("find", None) is None and length("verify", None, died(1, 10)) is None
    assert length("verify", GOOD, died(1, 10), lived(2, 90, whole=False)) is None, "the fix has not run to its end yet"
    assert length("verify", GOOD, died(1, 10), lived(2, 900)) == OUTLIVES * 10


def test_a_program_that_shows_steps_must_also_have_come_as_far() -> None:
    taught = with_length(NOTHING_TAUGHT, Trial(id=9, cell=GOOD), None, *told(died(1, 10, step=7)))
    assert (taught.stop_after_s, taught.stop_beyond_step) == (OUTLIVES * 10, OUTLIVES * 7)


@pytest.mark.parametrize(
    ("says", "beyond", "ended_by"),
    [("''", 0, "length"), ("'step 3'", 0, "length"), ("'step 3'", 10**6, "itself"), ("'step 30'", 10, "length")],
)
def test_the_runner_ends_it_then(observe: Callable[..., Observation], says: str, beyond: int, ended_by: str) -> None:
    program = f"import time\nprint({says}, flush=True)\ntime.sleep({1 if ended_by == 'itself' else 600})\n"
    seen = observe(program, stop_after_s=0.3, stop_beyond_step=beyond)
    assert seen.exit.ended_by == ended_by


def test_a_survival_that_was_ended_is_told_as_one_up_to_then(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deaths come at once, and whatever lives goes on for ever: without an end each survival would take all of limits.wall."""
    monkeypatch.setattr("matrix.taught.LEAST_LONGER_S", 2.0)
    program = 'case "$*" in *"--bs 8"*) kill -SEGV $$;; esac; if [ ! -e whole ]; then touch whole; exit 0; fi; exec sleep 600'
    text: dict[str, Any] = {
        "run": {"command": ["sh", "-c", program, "job"], "cwd": str(tmp_path)},
        "matrix": {"bs": [8, 4], "n": [1, 2]},
        "evidence": {"control": False},
        "search": {"max_runs": 12},
    }
    (tmp_path / "run").mkdir()
    with LocalPool(1) as pool:
        planner = Planner(Spec.model_validate(text), tmp_path / "run", pool, Silent())
        found = planner.run(threading.Event())
    ended = [outcome for outcome in planner.outcomes.values() if outcome.kind == "survived" and not outcome.whole]
    assert ended and all("far longer than any death took" in outcome.reason for outcome in ended)
    assert found.ranking[0].culprit == {"bs": [8]} and found.fix is not None and found.fix.set == {"bs": 4}


# ------------------------------------------------------------------ how long to wait for a first step
def hung(cpu_s: float, busy_s: float) -> tuple[Observation, Outcome]:
    seen = ProcessSeen(pid=1, ppid=0, role="main", name="python", state="S", cpu_s=cpu_s, cpu_delta_s=busy_s, window_s=1.0)
    run = run_of(1, BAD, 301.0, exit=Exit(returncode=-9, signal="SIGKILL", ended_by="startup"), processes=[seen])
    return run, Outcome(kind="died", seconds=301.0, signature="hang")


def test_a_first_run_that_did_nothing_until_its_time_was_over_teaches_that_nothing_comes_after_silence() -> None:
    observations, outcomes = told(hung(cpu_s=4.0, busy_s=0.0))
    assert taught_by(observations, outcomes, **LIMITS).quiet_startup_s == 60.0
    observations, outcomes = told(hung(cpu_s=40.0, busy_s=0.0))
    assert taught_by(observations, outcomes, **LIMITS).quiet_startup_s == 120.0, "a slow start is given more"
    observations, outcomes = told(hung(cpu_s=300.0, busy_s=1.0))
    assert taught_by(observations, outcomes, **LIMITS).quiet_startup_s is None, "it was busy, and not silent"


def test_survivors_teach_how_long_a_start_takes() -> None:
    quick = lived(2, 30.0, progress=Progress(last_step=9, first_step_s=2.0))
    slow = lived(3, 30.0, progress=Progress(last_step=9, first_step_s=20.0))
    assert taught_by(*told(quick), **LIMITS).startup_s == 60.0
    assert taught_by(*told(quick, slow), **LIMITS).startup_s == 200.0
    assert taught_by(*told(lived(4, 400.0, progress=Progress(last_step=9, first_step_s=290.0))), **LIMITS).startup_s == 300.0


def test_silence_before_the_first_step_ends_a_run_and_work_does_not() -> None:
    for cpu_s, expected in ((0.0, "startup"), (0.5, None)):
        patience = Patience(Limits(startup_s=300.0, quiet_startup_s=10.0), expects_steps=False)
        for half in range(1, 60):
            patience.saw_activity(half / 2, cpu_s, on_disk=False, runnable=False)
        assert patience.overdue(30.0) == expected


# ------------------------------------------------------------------ steps
OWN = "for n in range(30): print('round %d | cost 0.%d' % (n, n), flush=True)\n"


def run_and_read(folder: Path, program: str, **more: Any) -> tuple[Verdict, str]:
    (folder / "job.py").write_text(program)
    spec = {"run": {"command": ["python", "job.py"], **more}, "matrix": {"bs": [4, 8]}, "search": {"max_runs": 2}}
    done = matrix("run", str(specification(folder, spec)), "--jobs", "1", cwd=folder)
    assert done.returncode == 0, done.stderr
    return verdict(only_run(folder)), done.stdout


def test_steps_of_a_form_of_its_own_are_counted_and_the_pattern_is_told(tmp_path: Path) -> None:
    found, output = run_and_read(tmp_path, OWN)
    assert {outcome.steps for outcome in found.outcomes.values()} == {29}
    assert output.count("learnt from the output: ^round") == 2, "once while it runs, once at the end"


def test_where_no_steps_are_recognised_that_is_said_once_with_how_to_name_them(tmp_path: Path) -> None:
    found, output = run_and_read(tmp_path, "print('a line without figures')\n")
    assert {outcome.steps for outcome in found.outcomes.values()} == {None}
    assert output.count("run.progress: 'round (?P<step>") == 2


def test_the_next_attempt_is_given_the_pattern(tmp_path: Path) -> None:
    """A run that dies at its second line has come to a step that only the run before it could teach."""
    jobs: list[Job] = []

    class Side:
        jobs, free, running = 1, 1, dict[str, Any]()

        def submit(self, job: Job) -> None:
            jobs.append(job)

    spec = Spec.model_validate({"run": {"command": ["job"]}, "matrix": {"bs": [4, 8]}})
    planner = Planner(spec, tmp_path, Side(), Silent())  # type: ignore[arg-type]
    taught = run_of(1, {"bs": 4}, 1.0, progress=Progress(last_step=9, learnt=r"^round\s*(?P<step>\d+)"))
    planner.observations.append(taught)
    planner.outcomes[taught.attempt] = Outcome(kind="survived")
    attempt, holders = planner._assembly.attempt(2, Trial(id=2, cell={"bs": 4}), None)
    planner._submit(attempt, holders)
    assert jobs[0].learnt == taught.progress.learnt


# ------------------------------------------------------------------ probes that slow a run down
@pytest.mark.parametrize(("signature", "kind"), [("SIGSEGV", "censored"), ("hang", "died")])
def test_silence_under_a_probe_is_no_second_failure_unless_the_failure_is_a_hang(signature: str, kind: str) -> None:
    ended = Exit(returncode=-9, signal="SIGKILL", ended_by="idle")
    probed = dataclasses.replace(run_of(2, BAD, 60.0, exit=ended), trial=Trial(id=2, cell=BAD, probes={"valgrind": ""}))
    found = judge.under_probe(probed, judge.outcome(probed), {signature, None})
    assert (found.kind, found.signature) == (kind, "hang" if kind == "died" else None)
    bare = run_of(2, BAD, 60.0, exit=ended)
    assert judge.under_probe(bare, judge.outcome(bare), {signature}).kind == "died"
