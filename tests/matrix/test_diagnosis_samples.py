"""Crashes that follow one sample of the data, and what only looks so: deaths are made, one rule at a time."""

from __future__ import annotations

import dataclasses

from matrix.diagnosis import judge, samples
from matrix.diagnosis.case import Case
from matrix.records import Cell, Exit, Fault, Memory, Observation, Outcome, Progress, Trend, Trial
from matrix.search import Search
from matrix.spec import Spec

STEP_S = 0.1
SPEC = Spec.model_validate(
    {
        "name": "made",
        "run": {"command": ["job"]},
        "matrix": {"n": [4, 8, 32], "k": [1, 2, 4], "w": [0, 2], "o": [0, 1, 3, 10], "m": ["a", "b"]},
    }
)
BAD: Cell = {"n": 32, "k": 1, "w": 0, "o": 0, "m": "a"}
FIRST, SECOND = 317, 131  # where the sample is in one order and in another


def death(step: int, *, signal: str = "SIGFPE", step_s: float = STEP_S, fault: Fault | None = None, **cell: int | str) -> Observation:
    """Died after the line of `step`, counted from 0; every step takes as long."""
    return Observation(
        attempt="",
        key="k",
        trial=Trial(id=1, cell={**BAD, **cell}),
        exit=Exit(returncode=-8, signal=signal),
        wall_s=9.0,
        started_unix_s=0.0,
        memory=Memory(oom_kills=0),
        faults=[fault] if fault else [],
        progress=Progress(
            last_step=step if step >= 0 else None,
            first_step_s=1.0 if step >= 0 else None,
            last_step_s=1.0 + step * step_s if step >= 0 else None,
            longest_gap_s=step_s if step >= 0 else None,
        ),
    )


def at(place: int, *, per_step: int, **more: int | str) -> Observation:
    """Died at that sample, in steps of so many."""
    return death(place // per_step - 1, **more)  # type: ignore[arg-type]


def case_of(*deaths: Observation) -> Case:
    named = [dataclasses.replace(each, attempt=f"{number:04d}-0") for number, each in enumerate(deaths, 1)]
    outcomes: dict[str, Outcome] = {each.attempt: judge.outcome(each) for each in named}
    signature = next(outcome.signature for outcome in outcomes.values())
    return Case(known_bad=BAD, observations=named, outcomes=outcomes, environments={}, result=Search(SPEC).result(), signature=signature)


def said(*deaths: Observation) -> float | None:
    """What these deaths say of damaged data, in nats; None: nothing."""
    return next((found.weight for found in samples.findings(case_of(*deaths)) if found.cause == samples.CORRUPT), None)


def asked(*deaths: Observation) -> Cell | None:
    return samples.question(case_of(*deaths), SPEC.allowed)


TWICE = (at(FIRST, per_step=32), at(FIRST, per_step=32))  # the known-bad cell
TWO_ORDERS = (
    *TWICE,
    at(FIRST, per_step=8, n=8, w=2),
    at(SECOND, per_step=32, o=1, k=4, m="b"),
    at(SECOND, per_step=8, n=8, o=1, k=2, w=2),
)
ONE_ORDER = (*TWICE, at(FIRST, per_step=8, n=8, o=1, k=2), at(FIRST, per_step=4, n=4, o=3, m="b"))
READ = Fault(source="core", tid=7, trap="segfault", address=0x7F2234567890, ip=0x7F1234567010, access="read", library="libjob.so")


def test_a_sample_that_kills_at_its_own_place_in_each_of_two_orders_is_told_whatever_the_other_axes_are() -> None:
    assert said(*TWO_ORDERS) == 5.0
    assert asked(*TWO_ORDERS) is None


def test_where_a_count_may_lead_as_well_a_sample_is_told_with_less_certainty() -> None:
    """What checks itself may check how full something is; where a table ends is just behind something."""
    aborted = said(*(dataclasses.replace(each, exit=Exit(returncode=-6, signal="SIGABRT")) for each in TWO_ORDERS))
    assert aborted is not None and aborted < 4.0  # what a confirmation needs

    def read(fault: Fault) -> float | None:
        return said(*(dataclasses.replace(each, exit=Exit(returncode=-11, signal="SIGSEGV"), faults=[fault]) for each in TWO_ORDERS))

    assert read(dataclasses.replace(READ, mapping="nothing", before="nothing")) == 5.0
    assert read(dataclasses.replace(READ, mapping="nothing", before="anonymous")) == aborted


def test_the_samples_of_a_step_may_be_two_axes_multiplied() -> None:
    deaths = (*TWICE, at(FIRST, per_step=64, k=2), at(FIRST, per_step=8, n=4, k=2), at(SECOND, per_step=128, k=4, o=1))
    missing = asked(*deaths)
    assert missing is not None and missing["o"] == 1
    assert samples.question(case_of(*deaths), lambda cell: cell != missing) != missing
    per_step = int(missing["n"]) * int(missing["k"])
    again = at(SECOND, per_step=per_step, **{axis: value for axis, value in missing.items() if axis in ("n", "k", "o")})  # type: ignore[arg-type]
    assert said(*deaths, again) == 5.0
    elsewhere = death(again.progress.last_step or 0, n=missing["n"], k=missing["k"], o=1)  # type: ignore[arg-type]
    assert said(*deaths, dataclasses.replace(elsewhere, progress=Progress(last_step=45, first_step_s=1.0, last_step_s=9.0))) is None


def test_one_place_in_all_orders_is_said_with_care_because_something_that_is_full_comes_at_one_place_too() -> None:
    plain = said(*ONE_ORDER)
    read = said(*(dataclasses.replace(each, exit=Exit(returncode=-11, signal="SIGSEGV"), faults=[READ]) for each in ONE_ORDER))
    assert plain is not None and read is not None
    assert 0 < read < plain < 4.0
    assert asked(*ONE_ORDER) is None  # no axis changes the order


def test_axes_that_changed_together_are_both_named_and_each_must_be_no_matter_of_how_fast_something_fills() -> None:
    together = [*TWICE, at(FIRST, per_step=8, n=8), at(SECOND, per_step=32, o=1, w=2), at(SECOND, per_step=8, n=8, o=1, w=2)]
    facts = [found.fact for found in samples.findings(case_of(*together))]
    assert all("that w or o makes" in fact for fact in facts) and facts
    half = [at(FIRST, per_step=32, k=2), at(FIRST, per_step=32, k=2), at(FIRST, per_step=8, n=8, k=2)]
    slower = [at(3 * SECOND, per_step=32, o=1, k=1), at(3 * SECOND, per_step=8, n=8, o=1, k=1)]
    assert said(*half, *slower) == 5.0  # 1.24 times later
    assert said(*half, *(at(FIRST * 2 + 5, per_step=size, n=size, o=1, k=1) for size in (32, 8))) != 5.0


def test_a_crash_at_one_step_is_no_sample_and_no_run_is_asked_for_it() -> None:
    deaths = [death(8, **cell) for cell in ({}, {}, {"n": 8}, {"n": 4, "o": 1}, {"n": 8, "o": 1})]  # type: ignore[arg-type]
    assert said(*deaths) is None
    assert asked(*deaths) is None


def test_a_crash_after_one_time_is_no_sample_though_steps_of_more_samples_take_longer() -> None:
    slow = [dataclasses.replace(each, progress=timed(each, seconds=3.0)) for each in TWO_ORDERS]
    assert said(*slow) is None
    assert asked(*slow[:-1]) is None


def timed(each: Observation, *, seconds: float) -> Progress:
    return dataclasses.replace(each.progress, last_step_s=1.0 + seconds, longest_gap_s=0.2)


def test_a_cell_that_died_at_two_steps_shows_that_no_sample_decides() -> None:
    assert said(*TWO_ORDERS, death(3)) is None
    assert said(*TWO_ORDERS[1:]) is None  # none died twice: nobody knows


def test_places_in_a_simple_ratio_or_in_that_of_the_values_are_of_something_that_fills_up_faster() -> None:
    def places(second: int, value: int) -> float | None:
        other = [at(second, per_step=32, o=value), at(second, per_step=4, n=4, o=value)]
        return said(at(960, per_step=32, o=3), at(960, per_step=32, o=3), at(960, per_step=4, n=4, o=3), *other)

    assert places(700, 1) == 5.0
    assert places(480, 1) == 2.5  # which confirms nothing
    assert places(288, 10) != 5.0  # 3 / 10


def test_what_wrote_on_into_what_is_not_its_own_or_stood_at_a_limit_was_full() -> None:
    wrote = dataclasses.replace(READ, access="write", index_bytes=4096)
    signal = Exit(returncode=-11, signal="SIGSEGV")
    assert said(*(dataclasses.replace(each, exit=signal, faults=[wrote]) for each in TWO_ORDERS)) is None
    far = dataclasses.replace(wrote, index_bytes=1 << 43)
    assert said(*(dataclasses.replace(each, exit=signal, faults=[far]) for each in TWO_ORDERS)) == 5.0
    trend = Trend(what="descriptors", pid=7, role="main", first=10, last=1024, most=1024, samples=50, limit=1024)
    assert said(*(dataclasses.replace(each, trends=[trend]) for each in TWO_ORDERS)) is None
