"""Crashes that come now and then: what repeats and threads say of a race; made observations, one rule at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from matrix.diagnosis import judge, native
from matrix.diagnosis.case import Case
from matrix.diagnosis.native_causes import ARGUMENT, CORRUPTION, RACE
from matrix.diagnosis.native_threads import AS_THE_PROBE
from matrix.records import Frame, Library, Memory, Message, Observation, ProcessMemory, Progress, Trial
from matrix.search import Search
from tests.matrix.test_diagnosis import BAD, SPEC, died, lived

DAMAGED = [Message(kind="heap damaged", text="free(): double free detected in tcache 2", stream="stderr")]
GOOD = {**BAD, "a2": 2}
LIBRARIES = [Library(pid=7, path=path, family="other", inode=path, seen="core") for path in ("/x/libjob.so", "/x/libpool.so")]


def case_of(*answers: tuple[dict[str, Any], dict[str, Any]], culprit: Any = None) -> Case:
    """Of cells and what their runs showed."""
    base: dict[str, Any] = {"key": "k", "wall_s": 3.0, "started_unix_s": 0.0}
    runs = [
        Observation(**{**base, "attempt": f"{number:04d}-0", "trial": Trial(id=number, cell=cell), **facts})
        for number, (cell, facts) in enumerate(answers, 1)
    ]
    result = dataclasses.replace(Search(SPEC).result(), culprit=culprit or {})
    outcomes = {run.attempt: judge.outcome(run) for run in runs}
    return Case(known_bad=BAD, observations=runs, outcomes=outcomes, environments={}, result=result, signature="SIGABRT")


def crash(step: int, **facts: Any) -> dict[str, Any]:
    return died(messages=DAMAGED, progress=Progress(last_step=step), **facts)


def threads(count: int) -> Memory:
    return Memory(oom_kills=0, processes=[ProcessMemory(pid=7, role="main", threads=count), ProcessMemory(pid=8, role="worker", threads=9)])


def said(case: Case, cause: str, rule: str) -> float | None:
    return next((found.weight for found in native.findings(case) if (found.cause, found.rule) == (cause, rule)), None)


def test_a_crash_at_other_steps_of_a_cell_that_survives_too_is_more_of_a_race_than_one_that_always_comes() -> None:
    always = case_of((BAD, crash(4)), (BAD, crash(9)))
    sometimes = case_of((BAD, crash(4)), (BAD, crash(9)), (BAD, lived()))
    race, rather = said(always, RACE, "repeats"), said(sometimes, RACE, "repeats")
    assert race is not None and rather is not None and 0 < race < rather
    assert (said(sometimes, ARGUMENT, "repeats") or 0) < (said(always, ARGUMENT, "repeats") or 0) < 0


def test_a_crash_at_one_step_that_does_not_come_every_time_is_neither_for_what_it_is_given_nor_against_a_race() -> None:
    every = case_of((BAD, crash(4)), (BAD, crash(4)))
    assert (said(every, ARGUMENT, "repeats") or 0) > 0 > (said(every, RACE, "repeats") or 0)
    some = case_of((BAD, crash(4)), (BAD, crash(4)), (BAD, lived()))
    assert (said(some, ARGUMENT, "repeats"), said(some, RACE, "repeats")) == (None, None)


@pytest.mark.parametrize(
    ("here", "there", "culprit", "told"),
    [(4, 1, {"a2": [1]}, True), (4, 4, {"a2": [1]}, False), (1, 4, {"a2": [1]}, False), (4, 1, {}, False), (0, 1, {"a2": [1]}, False)],
    ids=["fewer", "as many", "more", "no culprit", "not seen"],
)
def test_a_change_that_takes_threads_away_and_with_them_a_crash_that_comes_now_and_then_speaks_for_a_race(
    here: int, there: int, culprit: Any, told: bool
) -> None:
    answers = [(BAD, crash(4)), (BAD, crash(9))]
    libraries = {"libraries": LIBRARIES}
    beside = {**BAD, "a1": "v"}  # another cell that dies and lives
    for cell in (BAD, beside):
        runs = [*answers, (cell, crash(4)), (cell, lived(memory=threads(here))), (GOOD, lived(memory=threads(there)))]
        case = case_of(*((where, {**facts, **libraries}) for where, facts in runs), culprit=culprit)
        assert (said(case, RACE, AS_THE_PROBE) is not None) is told
    assert said(case, CORRUPTION, AS_THE_PROBE) is None


def test_threads_that_are_gone_together_with_what_crashes_and_those_of_deaths_alone_say_nothing() -> None:
    dying = [(BAD, crash(4, memory=threads(6), libraries=LIBRARIES)), (BAD, crash(9, memory=threads(6), libraries=LIBRARIES))]
    also = (BAD, lived(memory=threads(4), libraries=LIBRARIES))
    without = case_of(*dying, also, (GOOD, lived(memory=threads(1), libraries=LIBRARIES[:1])), culprit={"a2": [1]})
    only = case_of(*dying, (GOOD, lived(memory=threads(1), libraries=LIBRARIES)), culprit={"a2": [1]})
    assert (said(without, RACE, AS_THE_PROBE), said(only, RACE, AS_THE_PROBE)) == (None, None)


def stack(*functions: tuple[str, str], python: bool) -> list[Frame]:
    frames = [Frame(function=name, library=library, kind="native", trust="symbol") for name, library in functions]
    return [*frames, Frame(function="work", place="job.py:9", kind="python", trust="interpreter")] if python else frames


STARTED = (("start_thread", "libc.so.6"), ("__clone3", "libc.so.6"))
WAITS = (("__futex_abstimed_wait_common64", "libc.so.6"), ("pthread_join", "libc.so.6"))


@pytest.mark.parametrize(
    ("crashed", "other", "alone"),
    [
        (
            stack(("abort", "libc.so.6"), ("free", "libc.so.6"), *STARTED, python=False),
            stack(*WAITS, ("score", "libjob.so"), python=True),
            False,
        ),
        (
            stack(("abort", "libc.so.6"), ("run", "libgomp.so.1"), *STARTED, python=False),
            stack(*WAITS, ("s", "libjob.so"), python=True),
            True,
        ),
        (
            stack(("abort", "libc.so.6"), *STARTED, python=False),
            stack(("futex", "libc.so.6"), ("take_gil", "libpython.so"), python=True),
            True,
        ),
        (stack(("abort", "libc.so.6"), ("score", "libjob.so"), python=True), stack(*WAITS, ("score", "libjob.so"), python=True), True),
    ],
    ids=["of a team", "of a pool", "nobody waits for it", "in a call"],
)
def test_a_thread_that_a_call_started_and_waits_for_may_have_had_others_beside_it(
    crashed: list[Frame], other: list[Frame], alone: bool
) -> None:
    case = case_of((BAD, crash(4, native_stack=crashed, other_stacks=[other])))
    told = said(case, RACE, "other thread")
    assert told is not None and (told < 0) is alone
    if not alone:
        unharmed = case_of((BAD, died(native_stack=crashed[:1] + crashed[-2:], other_stacks=[other])))
        assert said(unharmed, RACE, "other thread") is None  # where nothing says that it was the heap


def test_a_crash_of_cells_that_died_once_and_survived_too_is_no_wrong_argument_and_threads_beside_it_count() -> None:
    beside = {**BAD, "a1": "v"}
    runs = [(BAD, crash(4)), (BAD, lived(memory=threads(4))), (beside, crash(4)), (GOOD, lived(memory=threads(1)))]
    case = case_of(*((cell, {**facts, "libraries": LIBRARIES}) for cell, facts in runs), culprit={"a2": [1]})
    assert (said(case, RACE, "repeats") or 0) > 0 > (said(case, ARGUMENT, "repeats") or 0)
    assert said(case, RACE, AS_THE_PROBE) == 1.0
