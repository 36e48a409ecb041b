"""Sizes, times and placeholders."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrix.spec import placeholders, units
from matrix.spec.problems import Refused


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("0", 0),
        ("12B", 12),
        ("500MB", 500_000_000),
        ("500 mb", 500_000_000),
        ("1kB", 1000),
        ("6GiB", 6 * 1024**3),
        ("1.5GiB", 3 * 1024**3 // 2),
        ("2TiB", 2 * 1024**4),
        ("0.5TB", 500_000_000_000),
        (1e9, 10**9),
    ],
)
def test_sizes_are_bytes(written: object, size: int) -> None:
    assert units.size_bytes(written) == size


@pytest.mark.parametrize("written", ["6G", "6Gi", "GiB", "-1", "1,5GiB", "6 gigabytes", "", "٣GiB", -1, 1.5, float("nan"), True, None, [1]])
def test_a_size_that_cannot_be_read_names_the_units(written: object) -> None:
    with pytest.raises(Refused, match="B KB MB GB TB KiB MiB GiB TiB"):
        units.size_bytes(written)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90.0),
        (1.5, 1.5),
        ("90", 90.0),
        ("60s", 60.0),
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("1h 30m", 5400.0),
        ("2d", 172_800.0),
        ("1.5h", 5400.0),
        ("250ms", 0.25),
        ("1m500ms", 60.5),
    ],
)
def test_times_are_seconds(written: object, seconds: float) -> None:
    assert units.time_s(written) == seconds


@pytest.mark.parametrize("written", ["10 min", "m", "30m1h", "1h1h", "-5s", "", "1:30", "0s", 0, -1, float("inf"), False, None, [1]])
def test_a_time_that_cannot_be_read_names_the_units(written: object) -> None:
    with pytest.raises(Refused, match="d h m s ms"):
        units.time_s(written)


@settings(deadline=None)
@given(st.text(alphabet="0123456789.dhmskKMGiB b", max_size=8))
def test_the_patterns_for_editors_accept_what_loading_accepts(text: str) -> None:
    for read, pattern in ((units.size_bytes, units.SIZE_PATTERN), (units.time_s, units.TIME_PATTERN)):
        try:
            read(text)
            accepted = True
        except Refused as refused:
            accepted = "longer than 0" in str(refused)  # a pattern cannot tell 0s from 1s
        assert accepted == (re.search(pattern, text) is not None), (text, pattern)


@settings(deadline=None)
@given(st.integers(0, 30), st.integers(0, 23), st.integers(0, 59), st.integers(1, 59))
def test_parts_of_a_time_add_up(days: int, hours: int, minutes: int, seconds: int) -> None:
    assert units.time_s(f"{days}d{hours}h{minutes}m{seconds}s") == ((days * 24 + hours) * 60 + minutes) * 60 + seconds


TEXTS = st.text(alphabet="{}ab$ {", max_size=12) | st.sampled_from(placeholders.NAMES).map(lambda name: f"{{{name}}}")
VALUES = {name: f"<{name}>" for name in placeholders.NAMES}


@settings(deadline=None)
@given(st.text(alphabet="{}ab\n é\0"))
def test_an_escaped_text_comes_back_unchanged(text: str) -> None:
    assert placeholders.fill(placeholders.check(placeholders.escape(text)), {}) == text


@settings(deadline=None)
@given(st.lists(TEXTS, max_size=5).map("".join))
def test_a_text_that_passes_the_check_can_always_be_filled(text: str) -> None:
    try:
        placeholders.check(text)
    except Refused:
        return
    filled = placeholders.fill(text, VALUES)
    assert set(placeholders.used(text)) == {name for name in placeholders.NAMES if f"<{name}>" in filled}


@pytest.mark.parametrize("text", ["{", "}", "a}b", "{port", "port}", "{{port}", "{port}}", "}{"])
def test_an_unbalanced_brace_is_refused(text: str) -> None:
    with pytest.raises(Refused, match="unbalanced"):
        placeholders.check(text)


@pytest.mark.parametrize(
    ("text", "near"), [("{atempt_dir}", "attempt_dir"), ("{PORT}", "port"), ("{cpu-list}", "cpu_list"), ("{gpus}", "gpu")]
)
def test_an_unknown_placeholder_is_met_with_the_nearest(text: str, near: str) -> None:
    with pytest.raises(Refused, match=f"did you mean '{near}'"):
        placeholders.check(text)
