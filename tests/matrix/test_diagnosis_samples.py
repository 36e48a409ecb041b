"""Crashes that follow one sample of the data, and what only looks so: deaths are made, one rule at a time."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from matrix.diagnosis import figures, judge, ranking, samples
from matrix.diagnosis.case import Case
from matrix.records import (
    Cell,
    Death,
    Exit,
    Fault,
    Memory,
    Message,
    MessageKind,
    Observation,
    Outcome,
    ProcessMemory,
    Progress,
    PythonError,
    Trend,
    Trial,
)
from matrix.search import Search
from matrix.spec import Spec

STEP_S = 0.1
SPEC = Spec.model_validate(
    {
        "name": "made",
        "run": {"command": ["job"]},
        "matrix": {"n": [4, 8, 32], "k": [1, 2, 4], "w": [0, 2], "o": [0, 1, 3, 10], "m": ["a", "b"], "s": [0, 1, 2]},
    }
)
VALUES = {axis.name: axis.values for axis in SPEC.axes}
BAD: Cell = {"n": 32, "k": 1, "w": 0, "o": 0, "m": "a", "s": 0}
FIRST, SECOND, THIRD, FOURTH = 317, 131, 1270, 480  # where the sample is in one order and in others
MOVES = 3.5  # nats of one that has a place of its own in each of two orders
CONFIRMS = 4.0  # nats: less confirms nothing by itself


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
    return samples.question(case_of(*deaths), SPEC.allowed, VALUES)


TWICE = (at(FIRST, per_step=32), at(FIRST, per_step=32))  # the known-bad cell
TWO_ORDERS = (
    *TWICE,
    at(FIRST, per_step=8, n=8, w=2),
    at(SECOND, per_step=32, o=1, k=4, m="b"),
    at(SECOND, per_step=8, n=8, o=1, k=2, w=2),
)
SEEDS = (  # o=0: as the data lies; o=1: in an order that s makes
    *TWO_ORDERS,
    at(FIRST, per_step=8, n=8, s=1, k=2),
    at(FIRST, per_step=8, n=8, s=2, m="b"),
    at(THIRD, per_step=32, o=1, s=1, w=2),
    at(FOURTH, per_step=8, n=8, o=1, s=2),
)
ONE_ORDER = (*TWICE, at(FIRST, per_step=8, n=8, o=1, k=2), at(FIRST, per_step=4, n=4, o=3, m="b"))
READ = Fault(source="core", tid=7, trap="segfault", address=0x7F2234567890, ip=0x7F1234567010, access="read", library="libjob.so")


def test_a_sample_that_stays_under_another_seed_and_moves_where_that_makes_the_order_is_told_whatever_the_other_axes_are() -> None:
    assert said(*SEEDS) == 5.0
    assert asked(*SEEDS) is None


def test_a_place_of_its_own_in_each_of_two_orders_confirms_no_sample_for_so_comes_a_number_that_is_drawn_at_random() -> None:
    assert said(*TWO_ORDERS) == MOVES < CONFIRMS
    drawn = [each for each in SEEDS if each.trial.cell["o"] == 1]  # with nothing that stays
    assert said(*(at(FIRST, per_step=32), at(FIRST, per_step=32), *drawn)) != 5.0
    moves_too = [at(700, per_step=8, n=8, s=1, k=2), at(700, per_step=32, s=1)]  # also where o is as it was
    assert (said(*TWO_ORDERS, *moves_too, *SEEDS[-2:]) or 0.0) < CONFIRMS
    stayed = [each for each in SEEDS if each.trial.cell["o"] == 0 and each.trial.cell["s"] != 2]  # so two draws are now and then the same
    assert (said(*stayed, *(each for each in SEEDS if each.trial.cell["o"] == 1)) or 0.0) < CONFIRMS
    assert (said(*SEEDS[:-1]) or 0.0) < CONFIRMS  # two seeds: that may be a number by which something is filled


@pytest.mark.parametrize(
    "places",
    [(131, 151, 140), (131, 180, 140), (900, 520, 131), (131, 520, 900), (640, 320, 160)],
    ids=["lots of random size", "of much differing size", "the faster the larger", "the slower the larger", "in proportion"],
)
def test_what_fills_up_does_not_move_far_to_and_fro_with_a_number_and_is_no_sample(places: tuple[int, int, int]) -> None:
    """With o=1 it takes up something that s says how much of: how many negatives, how long a text, which of them by chance."""
    plain = [death for death in SEEDS if death.trial.cell["o"] == 0]
    filled = [at(place, per_step=size, n=size, o=1, s=s) for s, place in enumerate(places) for size in (4, 8)]
    assert (said(*plain, *filled) or 0.0) < CONFIRMS


def test_a_place_in_the_first_batches_does_not_show_that_another_seed_left_it_there() -> None:
    early = at(FIRST, per_step=256, n=32, k=8, s=1)
    assert early.progress.last_step == 0
    assert said(*TWO_ORDERS, early, *SEEDS[-2:]) != 5.0


def test_a_run_that_went_past_the_sample_with_another_size_of_a_batch_shows_that_it_is_how_much_is_taken_at_one_time() -> None:
    def lived(step: int, **cell: int) -> Observation:
        made = death(step, **cell)
        return dataclasses.replace(made, exit=Exit(returncode=0), progress=dataclasses.replace(made.progress, finished_line=True))

    assert said(*SEEDS, lived(60, n=4)) == 5.0  # at 240 samples
    assert said(*SEEDS, lived(90, n=4)) is None
    assert said(*SEEDS, lived(40, n=4, o=1)) is None


def test_what_changes_the_order_is_asked_for_one_axis_at_a_time_until_a_record_is_told_from_what_is_drawn() -> None:
    """The program: o=1 has an order that s makes; w, k and m do nothing.  Whoever asks does not know."""

    def answer(cell: Cell) -> Observation:
        place = FIRST if cell["o"] == 0 else {0: SECOND, 1: THIRD, 2: 480}[int(cell["s"])]
        return at(place, per_step=int(cell["n"]), **cell)  # type: ignore[arg-type]

    deaths = [*TWICE, at(FIRST, per_step=8, n=8)]
    asked_for: list[Cell] = []
    while (cell := asked(*deaths)) is not None and len(asked_for) < 20:
        assert cell not in asked_for
        asked_for.append(cell)
        deaths.append(answer(cell))
    assert said(*deaths) == 5.0
    assert {cell["o"] for cell in asked_for} == {0, 1}


def test_an_axis_that_decides_whether_it_dies_is_not_asked_for_as_one_that_changes_the_order() -> None:
    made = death(60, m="b")
    lived = dataclasses.replace(made, exit=Exit(returncode=0), progress=dataclasses.replace(made.progress, finished_line=True))
    deaths = [*TWICE, at(FIRST, per_step=8, n=8), lived]
    while (cell := asked(*deaths)) is not None:
        assert cell["m"] == "a"
        deaths.append(at(FIRST, per_step=int(cell["n"]), **cell))  # type: ignore[arg-type]


def in_worker(place: int, *, per_step: int, behind: int, workers: int = 2, **cell: int | str) -> Observation:
    """The worker that loads its batch dies when so many batches are loaded that the main process has not used yet."""
    made = death(place // per_step - 1 - behind, **cell)  # type: ignore[arg-type]
    pool = [ProcessMemory(pid=20 + number, role="worker", first_s=0.5, last_s=9.0) for number in range(workers)]
    first = Death(pid=20, role="worker", signal="SIGFPE", status=None, time_s=9.0, part="initiating")
    return dataclasses.replace(made, exit=Exit(returncode=1), deaths=[first], memory=Memory(oom_kills=0, processes=pool))


def test_a_worker_that_loads_ahead_dies_up_to_its_batches_in_hand_before_the_step_of_the_sample() -> None:
    loaded = (
        in_worker(FIRST, per_step=32, behind=1),
        in_worker(FIRST, per_step=32, behind=4),
        in_worker(FIRST, per_step=8, behind=3, n=8),
        in_worker(FIRST, per_step=4, behind=0, n=4, m="b"),
    )
    assert said(*loaded) == 3.0
    beyond = in_worker(FIRST, per_step=4, behind=20, n=4, m="b")
    assert said(*loaded[:3], beyond) is None
    assert said(*(dataclasses.replace(each, deaths=[], exit=Exit(returncode=-8, signal="SIGFPE")) for each in loaded)) is None  # no lag


def test_where_a_count_may_lead_as_well_a_sample_is_told_with_less_certainty() -> None:
    """What checks itself may check how full something is; where a table ends is just behind something."""
    aborted = said(*(dataclasses.replace(each, exit=Exit(returncode=-6, signal="SIGABRT")) for each in SEEDS))
    assert aborted is not None and aborted < CONFIRMS

    def read(fault: Fault) -> float | None:
        return said(*(dataclasses.replace(each, exit=Exit(returncode=-11, signal="SIGSEGV"), faults=[fault]) for each in SEEDS))

    assert read(dataclasses.replace(READ, mapping="nothing", before="nothing")) == 5.0
    assert read(dataclasses.replace(READ, mapping="nothing", before="anonymous")) == aborted


def test_the_samples_of_a_step_may_be_two_axes_multiplied() -> None:
    deaths = (*TWICE, at(FIRST, per_step=64, k=2), at(FIRST, per_step=8, n=4, k=2), at(SECOND, per_step=128, k=4, o=1))
    missing = asked(*deaths)
    assert missing is not None and missing["o"] == 1
    assert samples.question(case_of(*deaths), lambda cell: cell != missing, VALUES) != missing
    per_step = int(missing["n"]) * int(missing["k"])
    again = at(SECOND, per_step=per_step, **{axis: value for axis, value in missing.items() if axis in ("n", "k", "o")})  # type: ignore[arg-type]
    assert said(*deaths, again) == MOVES
    elsewhere = death(again.progress.last_step or 0, n=missing["n"], k=missing["k"], o=1)  # type: ignore[arg-type]
    assert said(*deaths, dataclasses.replace(elsewhere, progress=Progress(last_step=45, first_step_s=1.0, last_step_s=9.0))) is None


def test_two_axes_may_always_make_the_order_together_as_how_it_is_shuffled_and_how_much_there_is_of_it() -> None:
    deaths = [*TWICE, at(FIRST, per_step=8, n=8, m="b"), at(FOURTH, per_step=32, w=2), at(FOURTH, per_step=8, n=8, w=2)]
    deaths += [at(SECOND, per_step=32, o=1), at(THIRD, per_step=32, o=1, w=2)]
    assert asked(*deaths) is None  # so few deaths are in nearly any two axes
    deaths.append(at(FIRST, per_step=4, n=4, k=2))
    assert said(*deaths) is None
    missing = asked(*deaths)
    assert missing is not None and missing["n"] != 32 and missing["o"] == 1
    place = SECOND if missing["w"] == 0 else THIRD
    last = at(place, per_step=int(missing["n"]), **missing)  # type: ignore[arg-type]
    weight = said(*deaths, last)
    assert weight is not None and 0 < weight < CONFIRMS / 2  # nothing shows that it stays where one of them changes no order
    assert asked(*deaths, last) is None


def test_where_one_of_two_axes_changes_no_order_they_make_it_together_and_without_seeds_that_confirms_nothing() -> None:
    third = 541
    others = [at(FIRST, per_step=32, w=2), at(FIRST, per_step=8, n=8, w=2), at(SECOND, per_step=32, o=1), at(SECOND, per_step=4, n=4, o=1)]
    deaths = [*TWICE, at(FIRST, per_step=8, n=8, m="b"), *others, at(third, per_step=32, o=1, w=2), at(third, per_step=8, n=8, o=1, w=2)]
    weight = said(*deaths)
    assert weight is not None and 0 < weight < CONFIRMS / 2
    assert asked(*deaths) is None


def test_deaths_that_differ_in_what_does_not_matter_repeat_each_other_as_those_of_one_cell_do() -> None:
    once = [at(FIRST, per_step=32), at(FIRST, per_step=32, k=4), at(FIRST, per_step=8, n=8, w=2)]
    other = [at(SECOND, per_step=32, o=1, m="b"), at(SECOND, per_step=8, n=8, o=1, k=2)]
    assert said(*once, *other) == MOVES
    assert asked(*once, *other) == BAD  # which is known best
    assert said(at(FIRST, per_step=32), death(3, k=4), *once[2:]) is None


def test_a_record_is_shown_only_where_a_cell_has_died_twice_itself() -> None:
    once = [at(FIRST, per_step=32, k=4), *SEEDS[1:]]
    assert (said(*once) or 0.0) < CONFIRMS
    assert asked(*once) == BAD
    assert said(*once, SEEDS[0]) == 5.0


def raised(deaths: tuple[Observation, ...], **facts: Any) -> list[Observation]:
    error = PythonError(type="KeyError", message="'label_17'")
    return [dataclasses.replace(each, **{"exit": Exit(returncode=1), "python_error": error, **facts}) for each in deaths]


def test_an_exception_at_one_sample_is_of_the_data_and_confirmed_only_by_words_about_it() -> None:
    found = {each.cause: each.weight for each in samples.findings(case_of(*raised(TWO_ORDERS)))}
    assert set(found) == {samples.CORRUPT, samples.EXCEPTION}
    assert 0 < found[samples.CORRUPT] < CONFIRMS and found[samples.EXCEPTION] < -2.0
    plain = said(*raised(ONE_ORDER))  # the end of the data comes at one place too
    assert plain is not None and 0 < plain < found[samples.CORRUPT]
    assert said(*raised(TWICE)) is None
    assert found[samples.CORRUPT] + figures.ORDINARY < CONFIRMS  # words that other errors have too do not tell it from what is drawn
    of_a_record = said(*raised(SEEDS))
    assert of_a_record is not None and of_a_record < CONFIRMS < of_a_record + figures.ORDINARY


@pytest.mark.parametrize("kind", ["out of memory", "cuda out of memory", "no space", "too many files", "no more processes"])
def test_an_exception_that_says_that_something_was_full_is_of_no_sample(kind: MessageKind) -> None:
    assert said(*raised(TWO_ORDERS, messages=[Message(kind=kind, text="no more", stream="stderr")])) is None


def test_an_exit_that_the_exception_did_not_make_is_of_no_sample() -> None:
    assert said(*raised(TWO_ORDERS, exit=Exit(returncode=1, left_by="native code"))) is None
    assert said(*raised(TWO_ORDERS, exit=Exit(returncode=-15, signal="SIGTERM"))) is None


def test_another_seed_is_asked_for_an_exception_only_where_its_words_are_about_what_it_read() -> None:
    refused = [Message(kind="corrupt input", text="KeyError: 'label_17'", stream="stderr")]
    assert asked(*raised(TWO_ORDERS)) is None
    assert asked(*raised(TWO_ORDERS, messages=refused)) is not None


def test_one_place_in_all_orders_is_said_with_care_because_something_that_is_full_comes_at_one_place_too() -> None:
    plain = said(*ONE_ORDER)
    read = said(*(dataclasses.replace(each, exit=Exit(returncode=-11, signal="SIGSEGV"), faults=[READ]) for each in ONE_ORDER))
    assert plain is not None and read is not None
    assert 0 < read < plain < CONFIRMS


def test_axes_that_changed_together_are_both_named_and_each_must_be_no_matter_of_how_fast_something_fills() -> None:
    together = [*TWICE, at(FIRST, per_step=8, n=8), at(SECOND, per_step=32, o=1, w=2), at(SECOND, per_step=8, n=8, o=1, w=2)]
    facts = [found.fact for found in samples.findings(case_of(*together))]
    assert all("that w or o makes" in fact for fact in facts) and facts
    half = [at(FIRST, per_step=32, k=2), at(FIRST, per_step=32, k=2), at(FIRST, per_step=8, n=8, k=2)]
    slower = [at(3 * SECOND, per_step=32, o=1, k=1), at(3 * SECOND, per_step=8, n=8, o=1, k=1)]
    assert said(*half, *slower) == MOVES  # 1.24 times later
    assert said(*half, *(at(FIRST * 2 + 5, per_step=size, n=size, o=1, k=1) for size in (32, 8))) != MOVES


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
    assert asked(*TWO_ORDERS[1:]) == BAD
    assert asked(*TWO_ORDERS[2:]) is None  # the known-bad cell died of something else


def test_places_in_a_simple_ratio_or_in_that_of_the_values_are_of_something_that_fills_up_faster() -> None:
    def places(second: int, value: int) -> float | None:
        other = [at(second, per_step=32, o=value), at(second, per_step=4, n=4, o=value)]
        return said(at(960, per_step=32, o=3), at(960, per_step=32, o=3), at(960, per_step=4, n=4, o=3), *other)

    assert places(700, 1) == MOVES
    assert places(480, 1) == MOVES / 2  # which confirms nothing
    assert places(288, 10) != MOVES  # 3 / 10


def test_what_wrote_on_into_what_is_not_its_own_or_stood_at_a_limit_was_full() -> None:
    wrote = dataclasses.replace(READ, access="write", index_bytes=4096)
    signal = Exit(returncode=-11, signal="SIGSEGV")
    assert said(*(dataclasses.replace(each, exit=signal, faults=[wrote]) for each in TWO_ORDERS)) is None
    far = dataclasses.replace(wrote, index_bytes=1 << 43)
    assert said(*(dataclasses.replace(each, exit=signal, faults=[far]) for each in TWO_ORDERS)) == MOVES
    trend = Trend(what="descriptors", pid=7, role="main", first=10, last=1024, most=1024, samples=50, limit=1024)
    assert said(*(dataclasses.replace(each, trends=[trend]) for each in TWO_ORDERS)) is None


@pytest.mark.parametrize(
    ("error", "first", "grades"),
    [
        ("struct.error: unpack requires a buffer of 260 bytes", "corrupt_input_data", {"confirmed", "supported"}),
        ("ValueError: could not convert string to float: '0.3a1'", "python_exception", {"supported"}),
        ("KeyError: 'label'", "python_exception", {"confirmed"}),
    ],
)
def test_an_exception_in_words_about_what_was_read_is_no_certain_fault_of_the_program(error: str, first: str, grades: set[str]) -> None:
    kind, _, text = error.partition(": ")
    said = [Message(kind="corrupt input", text=error, stream="stderr")] if kind != "KeyError" else []
    raised_by = PythonError(type=kind, message=text)
    deaths = [dataclasses.replace(death(step), exit=Exit(returncode=1), python_error=raised_by, messages=said) for step in (3, 9)]
    case = case_of(*deaths)
    case = dataclasses.replace(case, result=dataclasses.replace(case.result, confirmed=True))
    top = ranking.rank(case, ranking.collect(case))[0]
    assert (top.cause, top.grade in grades) == (first, True), (top.cause, top.grade)
