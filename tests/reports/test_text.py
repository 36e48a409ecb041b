"""Hostile text becomes harmless, figures have units and few digits."""

from __future__ import annotations

import dataclasses
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.records import Fix, Rate, RateInterval
from reports.text import clean, clean_runs, duration, interval, listed, one_line, percent, plural, rate, sentence, size, span_of


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;a title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("10%|#\r20%|##\r30%|###", "30%|###"),
        ("windows\r\nlines\r\n", "windows\nlines\n"),
        ("bar at the end\r", "bar at the end"),
        ("nul\0bell\a", "nul\ufffdbell\ufffd"),
        ("abc\u202edcba", "abc\ufffddcba"),
        ("\ud800", "\ufffd"),
        ("zero\u200bwidth", "zero\ufffdwidth"),
        ("tab\tstop", "tab stop"),
        ("a\u2028b", "a\ufffdb"),
        ("naïve 日本語 ███ 🙂", "naïve 日本語 ███ 🙂"),
    ],
)
def test_what_a_program_printed_is_shown_without_what_would_act_on_the_reader(hostile: str, shown: str) -> None:
    assert clean(hostile) == shown


@given(st.text())
def test_cleaned_text_holds_nothing_that_does_not_print_and_cleaning_again_changes_nothing(text: str) -> None:
    once = clean(text)
    assert [character for character in once if character != "\n" and unicodedata.category(character) in {"Cc", "Cf", "Cs"}] == []
    assert clean(once) == once
    assert "\n" not in one_line(text)
    once.encode("utf-8")


def test_a_line_of_megabytes_is_cut_and_says_so() -> None:
    shown = clean("x" * 10_000_000, 100)
    assert shown == "x" * 100 + " … (cut)"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (1, "100 %"),
        (0.9999, "> 99 %"),
        (0.973, "97 %"),
        (0.1, "10 %"),
        (0.012, "1 %"),
        (0.004, "0.4 %"),
        (0.00001, "< 0.01 %"),
        (1.5, "unknown"),
        (float("nan"), "unknown"),
        (-0.1, "unknown"),
    ],
)
def test_a_share_is_never_rounded_to_certainty(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [(0, "0 B"), (999, "999 B"), (310 * 2**20, "310 MiB"), (5.4 * 2**30, "5.4 GiB"), (128 * 2**30, "128 GiB"), (1.5 * 2**40, "1.5 TiB")],
)
def test_sizes_have_binary_units(amount: float, text: str) -> None:
    assert size(amount) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.42, "0.4 s"), (31.4, "31 s"), (212, "3 min 32 s"), (7500, "2 h 5 min"), (float("inf"), "unknown time"), (-1, "unknown time")],
)
def test_durations_have_the_unit_that_people_would_use(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_rates_per_step_are_told_as_steps_between_failures() -> None:
    assert rate(Rate(value=0.39)) == "in 39 % of the runs"
    assert rate(Rate(value=0.00025, per="step")) == "once in 4,000 steps"
    assert rate(Rate(value=0.0, per="step")) == "in 0 % of the steps"
    assert interval(RateInterval(low=0.2, median=0.35, high=0.55)) == "in 35 % of the runs (95 % interval 20 % to 55 %)"
    found = interval(RateInterval(low=0.0, median=0.001, high=0.00213, per="step"))
    assert found == "once in 1,000 steps (95 % interval 470 steps to never)"


def test_sentences_begin_with_a_capital_unless_they_begin_with_a_name() -> None:
    assert sentence("it died") == "It died."
    assert sentence("a failure!") == "A failure!"
    assert sentence("libiomp5.so was mapped twice") == "libiomp5.so was mapped twice."
    assert sentence("core_pattern pipes") == "core_pattern pipes."
    assert sentence("") == ""


def test_lists_and_numbers_are_short() -> None:
    assert [listed([]), listed(["a"]), listed(["a", "b"]), listed(list("abcdefgh"))] == ["", "a", "a and b", "a, b, c, d, e, f and 2 more"]
    assert span_of([951, 11, 11, 12]) == "11, 12, 951"
    assert span_of(list(range(11, 2000))) == "11 to 1,999"
    assert [plural(1, "run"), plural(2, "process"), plural(12000, "step")] == ["1 run", "2 processes", "12,000 steps"]


def test_runs_of_a_change_that_is_not_verified_are_not_called_fresh() -> None:
    fix = Fix(kind="avoids", set={"bs": 8}, cell={"bs": 8}, advice="use a batch of 8", clean_runs=9)
    assert [clean_runs(dataclasses.replace(fix, verified=verified)) for verified in (True, False)] == ["9 fresh runs", "9 runs"]
