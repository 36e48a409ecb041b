"""The run without instruments: what it may say, what it costs, and that it is bare."""

from __future__ import annotations

import dataclasses
import json
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from matrix.assembly import Assembly
from matrix.diagnosis import judge
from matrix.executors.local import LocalPool
from matrix.observer_control import bare, compare, result, told, trial
from matrix.planner import Planner
from matrix.records import Death, Exit, Memory, Observation, Outcome, Trial, Verdict
from matrix.spec import Spec, SpecError, load_spec
from tests.matrix.test_planner import Silent

BAD = {"bs": 4}


def observation(number: int, *, watched: bool = True, cell: dict[str, int] | None = None, steps: int | None = 50) -> Observation:
    asked = Trial(id=number, cell=dict(cell or BAD), max_steps=steps, watched=watched, purpose="find" if watched else "control")
    return Observation(attempt=str(number), key="k", trial=asked, exit=Exit(returncode=0), wall_s=1.0, started_unix_s=0.0)


DIED, SURVIVED = Outcome(kind="died", signature="SIGSEGV"), Outcome(kind="survived")


@pytest.mark.parametrize(
    ("bare", "deaths", "survivals", "changed"),
    [
        (DIED, 3, 0, False),
        (DIED, 3, 9, False),
        (DIED, 1, 9, None),
        (SURVIVED, 19, 1, None),
        (SURVIVED, 0, 4, False),
        (SURVIVED, 20, 0, True),
        (DIED, 0, 12, True),
        (SURVIVED, 3, 0, None),
        (SURVIVED, 5, 2, False),
        (Outcome(kind="censored", reason="our wall-clock limit"), 9, 0, None),
    ],
)
def test_one_bare_run_says_no_more_than_chance_allows(bare: Outcome, deaths: int, survivals: int, changed: bool | None) -> None:
    assert compare(bare, deaths=deaths, survivals=survivals)[0] == changed


def test_it_is_asked_for_once_and_within_the_budget() -> None:
    watched = [observation(1), observation(2, cell={"bs": 8})]
    lived = {str(number): SURVIVED for number in range(1, 4)}
    asked = trial(3, watched, lived, BAD, max_runs=3)
    assert asked is not None and (asked.cell, asked.watched, asked.purpose, asked.max_steps) == (BAD, False, "control", 50)
    assert trial(3, watched, lived, BAD, max_runs=2) is None
    assert trial(4, [*watched, observation(3, watched=False)], lived, BAD, max_runs=9) is None
    assert trial(1, [], {}, BAD, max_runs=9) is None


def test_what_was_not_tested_is_said_only_at_the_end_or_where_it_was_not_wanted() -> None:
    watched = [observation(1)]
    assert result(watched, {"1": DIED}, BAD, wanted=True, complete=False) is None
    for wanted, complete in ((True, True), (False, False)):
        found = result(watched, {"1": DIED}, BAD, wanted=wanted, complete=complete)
        assert found is not None and found.attempt is None and "not tested" in found.text


def test_the_bare_run_is_named() -> None:
    found = result([observation(1), observation(2, watched=False)], {"1": DIED, "2": DIED}, BAD, wanted=True, complete=False)
    assert found is not None and (found.attempt, found.changed) == ("2", False)


SPEC = {"name": "x", "run": {"command": ["true"]}, "matrix": {"bs": [4, 8]}}


@pytest.mark.parametrize(
    ("evidence", "expected"),
    [
        ({}, (True, True, True, True)),
        ("off", (False, False, False, False)),
        ({"hook": False}, (False, True, True, True)),
        ({"cores": False, "control": False}, (True, False, True, False)),
    ],
)
def test_evidence_is_switched_off_in_parts_or_as_a_whole(evidence: object, expected: tuple[bool, ...]) -> None:
    found = Spec.model_validate({**SPEC, "evidence": evidence}).evidence
    assert (found.hook, found.cores, found.watch, found.control) == expected


def test_an_unquoted_off_is_refused_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("name: x\nrun: {command: ['true']}\nmatrix: {bs: [4]}\nevidence: off\n")
    with pytest.raises(SpecError, match="off"):
        load_spec(tmp_path / "spec.yaml")


def test_the_control_is_started_bare_and_is_another_question_than_a_watched_run(tmp_path: Path) -> None:
    assembly = Assembly(Spec.model_validate(SPEC), tmp_path)
    jobs = []
    for watched in (True, False):
        attempt, holders = assembly.attempt(1, Trial(id=1, cell=dict(BAD), watched=watched), None)
        jobs.append(assembly.job(attempt, holders, stacks=False))
    assert [(job.hook, job.core, job.watch) for job in jobs] == [(True, True, True), (False, False, False)]
    assert jobs[0].attempt.key != jobs[1].attempt.key


def test_it_is_as_long_as_the_longest_watched_run_and_shorter_survivals_are_not_compared() -> None:
    watched = [observation(1, steps=200), *(observation(number, steps=2) for number in range(2, 14))]
    lived = {str(number): SURVIVED for number in range(1, 15)}
    asked = trial(20, watched, lived, BAD, max_runs=60)
    assert asked is not None and asked.max_steps == 200
    whole = trial(20, [*watched, observation(14, steps=None)], lived, BAD, max_runs=60)
    assert whole is not None and whole.max_steps is None
    outcomes = {one.attempt: SURVIVED for one in watched} | {"20": DIED}
    found = result([*watched, observation(20, watched=False, steps=200)], outcomes, BAD, wanted=True, complete=True)
    assert found is not None and found.changed is None and "1 watched run" in found.text


# ------------------------------------------------------------------ a fresh death that goes unwatched
def death(number: int, *, signal: str = "SIGSEGV", watched: bool = True) -> Observation:
    seen = observation(number, watched=watched)
    asked = dataclasses.replace(seen.trial, purpose="find" if watched else "verify", cell={"bs": 4 if watched else 8})
    return dataclasses.replace(seen, trial=asked, exit=Exit(returncode=-11, signal=signal))


def outcomes_of(*seen: Observation) -> dict[str, Outcome]:
    return {one.attempt: judge.outcome(one) for one in seen}


FRESH = Trial(id=9, cell={"bs": 8}, purpose="verify")


def test_a_fresh_death_goes_unwatched_where_its_end_alone_tells_it_from_others() -> None:
    watched = [death(1), death(2)]
    assert not bare(FRESH, watched, outcomes_of(*watched)).watched
    other = [*watched, death(3, signal="SIGABRT")]
    assert bare(FRESH, other, outcomes_of(*other)).watched, "there are two failures"
    assert bare(FRESH, [observation(1)], {"1": SURVIVED}).watched, "nothing has died"
    too_slow = {"1": DIED, "2": DIED}
    assert bare(FRESH, [observation(1), observation(2)], too_slow).watched, "only other runs show that these had died"


def of_memory(number: int, *, watched: bool, isolation: str = "cgroup-v1", oom_kills: int | None = 1) -> Observation:
    seen = death(number, signal="SIGKILL", watched=watched)
    memory = Memory(isolation=cast(Any, isolation), limit_bytes=1 << 30, oom_kills=oom_kills)
    return dataclasses.replace(seen, memory=memory)


def test_an_unwatched_death_counts_when_it_dies_of_what_all_that_were_watched_died_of_and_else_is_asked_for_again() -> None:
    watched = [death(1), death(2)]
    lived = dataclasses.replace(death(3, watched=False), exit=Exit(returncode=0))
    for seen, kind in ((death(3, watched=False), "died"), (death(3, signal="SIGBUS", watched=False), "censored"), (lived, "censored")):
        found = told(seen, [*watched, seen], outcomes_of(*watched, seen))
        assert found is not None and (found.kind, found.signature) == (kind, "SIGSEGV" if kind == "died" else None)
    refused = dataclasses.replace(lived, exit=Exit(returncode=None, start_error="no such file"))
    found = told(refused, [*watched, refused], outcomes_of(*watched, refused))
    assert found is not None and found.kind == "unavailable"
    control = observation(3, watched=False)
    assert told(control, [*watched, control], outcomes_of(*watched, control)) is None


def test_who_was_killed_for_memory_is_told_unwatched_by_a_group_with_a_limit_and_by_nothing_else() -> None:
    watched = [of_memory(1, watched=True), of_memory(2, watched=True)]
    assert not bare(FRESH, watched, outcomes_of(*watched)).watched
    alike, by_others = of_memory(3, watched=False), of_memory(3, watched=False, oom_kills=0)
    for seen, kind in ((alike, "died"), (by_others, "censored")):
        found = told(seen, [*watched, seen], outcomes_of(*watched, seen))
        assert found is not None and found.kind == kind
    unlimited = [dataclasses.replace(one, memory=dataclasses.replace(one.memory, limit_bytes=None)) for one in watched]
    assert bare(FRESH, unlimited, outcomes_of(*unlimited)).watched
    by_looks = [dataclasses.replace(one, exit=dataclasses.replace(one.exit, ended_by="memory_watchdog")) for one in watched]
    assert bare(FRESH, by_looks, outcomes_of(*by_looks)).watched


def test_a_death_whose_worker_only_instruments_see_does_not_go_unwatched() -> None:
    began = Death(pid=2, role="worker", signal="SIGSEGV", status=None, time_s=1.0, part="initiating")
    watched = [dataclasses.replace(death(number), exit=Exit(returncode=1), deaths=[began]) for number in (1, 2)]
    assert {outcome.signature for outcome in outcomes_of(*watched).values()} == {"SIGSEGV"}
    assert bare(FRESH, watched, outcomes_of(*watched)).watched


def test_an_unwatched_death_of_the_known_bad_cell_of_another_kind_tells_nothing() -> None:
    watched = [dataclasses.replace(death(number), trial=observation(number).trial) for number in (1, 2)]
    other = dataclasses.replace(death(3, signal="SIGABRT", watched=False), trial=observation(3, watched=False).trial)
    found = result([*watched, other], outcomes_of(*watched, other), BAD, wanted=True, complete=True)
    assert found is not None and found.changed is None and "SIGABRT" in found.text


def test_an_unwatched_death_in_another_cell_is_the_control_and_one_that_tells_nothing_is_none() -> None:
    watched = [observation(1, steps=None), death(2)]
    outcomes = outcomes_of(*watched) | {"1": DIED}
    watched[0] = dataclasses.replace(watched[0], exit=Exit(returncode=-11, signal="SIGSEGV"))
    alike, other = death(3, watched=False), death(3, signal="SIGBUS", watched=False)
    found = result([*watched, alike], outcomes | outcomes_of(alike), BAD, wanted=True, complete=True)
    assert found is not None and (found.attempt, found.changed) == ("3", False) and "bs=8" in found.text
    assert trial(4, [*watched, alike], outcomes | outcomes_of(alike), BAD, max_runs=9) is None
    assert trial(4, [*watched, other], outcomes | outcomes_of(other), BAD, max_runs=9) is not None, "the known-bad cell is still to be run"


def spec_of(program: str) -> Spec:
    return Spec.model_validate(
        {
            "name": "short",
            "run": {"command": ["sh", "-c", program, "job"]},
            "matrix": {"bs": [4, 8], "mode": ["a", "b"], "n": [1, 2]},
            "known_bad": {"bs": 8, "mode": "b", "n": 2},
            "search": {"max_runs": 30},
        }
    )


def played(folder: Path, program: str) -> tuple[list[Trial], Verdict]:
    """The unwatched runs that were asked for, and the verdict."""
    with LocalPool(1) as pool:
        planner = Planner(spec_of(program), folder, pool, Silent())
        verdict = planner.run(threading.Event())
    return [one.trial for one in planner.observations if not one.trial.watched], verdict


def test_what_dies_every_time_needs_no_run_of_its_own_for_the_control(tmp_path: Path) -> None:
    unwatched, verdict = played(tmp_path, 'case "$*" in *"--mode b"*) kill -SEGV $$;; esac')
    assert [trial.purpose for trial in unwatched] == ["verify"]
    assert verdict.observer is not None and verdict.observer.changed is False
    assert verdict.ranking[0].culprit == {"mode": ["b"]}
    again, same = played(tmp_path, 'case "$*" in *"--mode b"*) kill -SEGV $$;; esac')
    assert again == unwatched and (same.runs, same.status, same.observer) == (verdict.runs, verdict.status, verdict.observer), "adopted"


def test_where_watching_is_what_kills_the_fresh_death_is_asked_for_watched_and_the_known_bad_cell_unwatched(tmp_path: Path) -> None:
    unwatched, verdict = played(tmp_path, 'case "$*" in *"--mode b"*) [ -z "$PYTHONPATH" ] || kill -SEGV $$;; esac')
    assert [trial.purpose for trial in unwatched] == ["verify", "control"]
    assert verdict.observer is not None and verdict.observer.changed is not False
    assert verdict.ranking[0].culprit == {"mode": ["b"]}


def test_a_second_failure_takes_back_what_an_unwatched_run_said_before_it(tmp_path: Path) -> None:
    """Whatever order attempts end in, and after a resume, the search knows the same."""
    program = 'case "$*" in *"--mode b"*) kill -SEGV $$;; esac'
    unwatched, _ = played(tmp_path, program)
    assert [trial.purpose for trial in unwatched] == ["verify"]
    texts = [(path, json.loads(path.read_text())) for path in sorted(tmp_path.glob("attempts/*/observation.json"))]
    last, text = [each for each in texts if each[1]["trial"]["watched"] and not each[1]["trial"]["probes"]][-1]
    text["exit"] |= {"returncode": -6, "signal": "SIGABRT"}
    last.write_text(json.dumps(text))
    spec = spec_of(program)
    with LocalPool(1) as pool:
        told_of = {trial.id: outcome for trial, outcome in Planner(spec, tmp_path, pool, Silent()).search.log if not trial.watched}
    assert [outcome.kind for outcome in told_of.values()] == ["censored"]
