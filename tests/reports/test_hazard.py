"""Bounds and intervals against figures that are known."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrix.records import Exit, Observation, Progress, Trial
from reports.cells import CellRow
from reports.ending import Ending
from reports.hazard import bins, poisson_interval, upper, upper_share
from reports.run_charts import hazard


@pytest.mark.parametrize(("count", "low", "high"), [(0, 0.0, 3.6889), (1, 0.0253, 5.5716), (3, 0.6187, 8.7673), (10, 4.7954, 18.3904)])
def test_the_poisson_interval_is_the_exact_one_of_the_tables(count: int, low: float, high: float) -> None:
    assert poisson_interval(count) == pytest.approx((low, high), abs=1e-4)


def test_without_a_death_the_bound_is_the_rule_of_three_and_its_exact_form_for_runs() -> None:
    assert upper(0) == pytest.approx(-math.log(0.05))
    assert upper_share(0, 3) == pytest.approx(1 - 0.05 ** (1 / 3))
    assert upper_share(1, 10) == pytest.approx(0.39416, abs=1e-5)
    assert upper_share(0, 0) == upper_share(2, 2) == 1.0


@given(st.lists(st.tuples(st.integers(0, 500).map(float), st.booleans()), max_size=40))
def test_the_parts_hold_every_death_and_every_step_once(runs: list[tuple[float, bool]]) -> None:
    found = bins(runs)
    deaths = sum(died for _, died in runs)
    assert (found == []) == (deaths < 3 or not any(far for far, _ in runs))
    if found:
        assert sum(part.deaths for part in found) == deaths
        assert sum(part.exposure for part in found) == pytest.approx(sum(far for far, _ in runs))
        assert all(part.low <= part.rate <= part.high for part in found)


def test_a_constant_hazard_lies_in_the_intervals_and_fewer_than_three_deaths_have_none() -> None:
    chance = random.Random(0)
    runs = [(min(2000.0, far := chance.expovariate(1 / 500)), far < 2000) for _ in range(400)]
    assert all(part.low < 1 / 500 < part.high for part in bins(runs))
    assert bins([(10, True), (20, True), (2000, False)]) == []


def test_a_death_that_nobody_watched_counts_where_its_steps_count() -> None:
    """Four deaths in 36 steps, one of them without instruments: 4/36, and never 3/36."""
    runs = []
    for number, failure in enumerate(("A", "A", "A", None), 1):
        trial = Trial(id=number, cell={"bs": 4}, watched=failure is not None)
        base = {"key": "", "trial": trial, "exit": Exit(returncode=-6), "wall_s": 1.0, "started_unix_s": 0.0}
        seen = Observation(attempt=str(number), progress=Progress(last_step=9), **base)  # type: ignore[arg-type]
        runs.append((seen, Ending(kind="died", how="SIGABRT", step=9, failure=failure)))
    found = hazard([CellRow(cell={"bs": 4}, probes={}, role="known bad", changed=frozenset(), runs=runs)], [])
    assert found is not None
    assert [(part.deaths, part.exposure) for part in found.parts] == [(4, 36.0)]
