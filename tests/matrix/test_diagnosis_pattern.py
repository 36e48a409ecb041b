"""When it dies: a law is told only where the moments could not be chance, and none is told where they could."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import click
import pytest

from matrix.diagnosis import pattern
from matrix.diagnosis.pattern import Death
from matrix.diagnosis.verdict import build
from matrix.explain import batches
from matrix.records import CrashPattern, Law, Memory, MemoryCurve, Observation, Progress, Trial
from tests.matrix.test_diagnosis import died
from tests.matrix.test_diagnosis_cures import BAD, case_of, observation, searched
from tests.matrix.test_diagnosis_memory import FLAT, GROWING

STORY = (117, 464, 472, 927, 951)


def at(steps: Sequence[int], *, accum: int | None = None, epoch_steps: int | None = None, survived: Sequence[int] = ()) -> CrashPattern:
    return pattern.find([Death(step=step) for step in steps], accum=accum, epoch_steps=epoch_steps, survived_steps=survived)


def law(found: CrashPattern, name: str) -> Law:
    return next(law for law in found.laws if law.name == name)


def holding(found: CrashPattern) -> list[str]:
    return [law.name for law in found.laws if law.holds]


# ------------------------------------------------------------------ the optimizer step and the epoch
def test_the_deaths_of_the_story_have_nothing_to_do_with_the_optimizer_step_and_come_at_any_moment_alike() -> None:
    found = at(STORY, accum=16)
    assert holding(found) == []
    assert "No relation to the optimizer step" in found.text and "(phases 5, 0, 8, 15, 7; p = 0." in found.text
    assert "consistent with a constant hazard" in found.text


@pytest.mark.parametrize("offset", [0, 1, 7])
def test_deaths_at_the_edge_of_the_optimizer_step_are_found_wherever_counting_starts(offset: int) -> None:
    found = at([offset + step for step in (16, 160, 304, 704, 1600)], accum=16)
    assert law(found, "optimizer step").holds and found.text.startswith("Deaths gather at one phase of the optimizer step")


def test_edges_that_are_near_each_other_are_not_taken_for_the_same_step() -> None:
    found = at([960, 976, 992, 1008, 1024], accum=16)
    assert not law(found, "constant step").holds
    assert law(found, "optimizer step").holds and found.text.startswith("Deaths gather")


def test_deaths_at_the_edge_of_an_epoch_are_found() -> None:
    assert law(at([500, 1000, 1002, 2499, 3500], epoch_steps=500), "epoch edge").holds


def test_deaths_within_one_epoch_cannot_show_a_relation_to_its_edge() -> None:
    found = law(at([40, 47, 55, 61], epoch_steps=10_000), "epoch edge")
    assert (found.holds, found.p) == (False, None) and "cannot be told from 4 deaths within 22 batches" in found.text


def test_where_even_equal_phases_could_be_chance_it_says_that_it_cannot_be_told() -> None:
    found = at([2, 4, 6], accum=2)
    assert law(found, "optimizer step").p is None
    assert "A relation to the optimizer step (every 2 batches) cannot be told from 3 deaths" in found.text
    assert "no relation" not in found.text


def test_the_chance_of_equal_phases_is_exact_where_all_ways_can_be_counted() -> None:
    assert law(at([5, 10, 15, 20], accum=5), "optimizer step").p == pytest.approx(1 / 125)


# ------------------------------------------------------------------ whole numbers that a specification varies
def test_deaths_at_multiples_of_a_value_of_the_known_bad_cell_are_found_whatever_its_axis_is_called() -> None:
    steps = [16, 160, 304, 704, 1600]
    found = pattern.find([Death(step=step) for step in steps], periods={"a3": 16, "a4": 32})
    assert [law.name for law in found.laws if law.holds] == ["multiples of a3"]


def test_the_more_periods_are_tried_the_rarer_must_be_what_holds() -> None:
    deaths = [Death(step=step) for step in (5, 10, 15, 20)]  # equal phases of 5: p = 1/125
    tried = {name: pattern.find(deaths, periods=periods) for name, periods in (("one", {"n": 5}), ("two", {"n": 5, "m": 7}))}
    assert {name: law(found, "multiples of n").holds for name, found in tried.items()} == {"one": True, "two": False}


def test_deaths_that_people_had_before_are_held_against_the_numbers_of_the_known_bad_cell() -> None:
    search, seen = searched()
    case = dataclasses.replace(case_of(search, seen), known_bad={**BAD, "easy": 16}, observed_steps=STORY)
    found = build(case, name="made", complete=True, wall_s=1.0).pattern
    assert found is not None and found.text.startswith("No relation to multiples of easy=16")


# ------------------------------------------------------------------ one value that is always the same
@pytest.mark.parametrize("steps", [(412, 412, 412), (412, 411, 412, 411)])
def test_the_same_step_may_be_counted_from_0_or_from_1(steps: tuple[int, ...]) -> None:
    found = at(steps, accum=16)
    assert holding(found) == ["constant step"] and found.text.startswith("The step of death is always the same")
    assert [law.name for law in found.laws] == ["constant step"]  # one step says nothing about edges


def test_two_steps_apart_is_not_the_same_step() -> None:
    assert not law(at([410, 411, 412]), "constant step").holds


def test_the_same_time_at_different_steps_is_a_clock() -> None:
    found = pattern.find([Death(step=step, wall_s=60.0 + step / 1000) for step in (100, 310, 720, 1500)])
    assert "constant time" in holding(found) and found.text == "The time of death is always the same (60.1 to 61.5 s)."


def test_the_same_memory_at_different_steps_is_a_level() -> None:
    found = pattern.find([Death(step=step, wall_s=step / 10, memory_bytes=4 << 30) for step in (100, 310, 720, 1500)])
    assert holding(found) == ["constant memory"] and "4096 to 4096 MiB" in found.text


@pytest.mark.parametrize(("curve", "holds"), [(FLAT, False), (None, False), (GROWING, True)], ids=["flat", "unknown", "growing"])
def test_memory_that_never_rose_is_not_what_its_deaths_have_in_common(curve: MemoryCurve | None, holds: bool) -> None:
    def dead(number: int, step: int) -> Observation:
        memory = Memory(last_tree_rss_bytes=4 << 30)
        asked = Trial(id=number, cell=BAD)
        return dataclasses.replace(
            observation(asked, died(progress=Progress(last_step=step))), memory=memory, curve=curve, wall_s=step / 10
        )

    search, _ = searched()
    found = build(case_of(search, [dead(900 + step, step) for step in STORY]), name="made", complete=True, wall_s=1.0).pattern
    assert found is not None and ("constant memory" in holding(found)) == holds


# ------------------------------------------------------------------ hazard
def test_deaths_that_gather_far_from_the_start_are_wear_out() -> None:
    found = at([930, 980, 1010, 1040, 1005, 990])
    assert holding(found) == ["hazard"] and "grows with the steps" in found.text


def test_survivors_count_early_deaths_beside_long_survivals_are_no_constant_hazard() -> None:
    early = (5, 8, 12)
    assert holding(at(early)) == []
    found = at(early, survived=[1000, 1000, 1000])
    assert holding(found) == ["hazard"] and "falls with the steps" in found.text


def test_deaths_anywhere_in_runs_of_which_most_survive_are_a_constant_hazard() -> None:
    found = at([5, 50, 70], survived=[100] * 10)
    assert holding(found) == [] and "one death in about 375 steps" in found.text


# ------------------------------------------------------------------ too little, and wrong input
def test_fewer_than_three_deaths_have_no_pattern() -> None:
    found = at([117, 464], accum=16)
    assert found.laws == [] and found.text == "2 deaths with a known step: no pattern can be told from fewer than 3."


@pytest.mark.parametrize(
    ("more", "why"), [({"accum": 0}, "accum must be 1 or more, not 0"), ({"epoch_steps": -5}, "epoch_steps must be 1 or more, not -5")]
)
def test_a_period_below_one_is_refused(more: dict[str, int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        at(STORY, **more)  # type: ignore[arg-type]


def test_a_step_below_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="a step cannot be below 0"):
        at([3, -1, 5])


# ------------------------------------------------------------------ explain --batches
def test_explaining_batches_gives_the_sentence_and_then_every_law() -> None:
    lines = batches.words(batches.find("117, 464,472,927,951,", 16, None)).splitlines()
    assert lines[0].startswith("No relation to the optimizer step") and len(lines) == 4


@pytest.mark.parametrize("word", ["²", "-3", "1.5", "x", "9" * 5000])
def test_what_is_no_batch_number_is_named(word: str) -> None:
    with pytest.raises(click.UsageError, match="is no batch number; write them as 117,464,472"):
        batches.find(f"117,{word},3", None, None)
