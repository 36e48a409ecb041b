"""The run without instruments: what it may say, what it costs, and that it is bare."""

from __future__ import annotations

import pytest

from matrix.observer_control import compare, result, trial
from matrix.records import Exit, Observation, Outcome, Trial

BAD = {"bs": 4}


def observation(number: int, *, watched: bool = True, cell: dict[str, int] | None = None) -> Observation:
    asked = Trial(id=number, cell=dict(cell or BAD), max_steps=50, watched=watched, purpose="find" if watched else "control")
    return Observation(attempt=str(number), key="k", trial=asked, exit=Exit(returncode=0), wall_s=1.0, started_unix_s=0.0)


DIED, SURVIVED = Outcome(kind="died", signature="SIGSEGV"), Outcome(kind="survived")


@pytest.mark.parametrize(
    ("bare", "deaths", "survivals", "changed"),
    [
        (DIED, 3, 0, False),
        (DIED, 1, 9, False),
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
    asked = trial(3, watched, BAD, max_runs=3)
    assert asked is not None and (asked.cell, asked.watched, asked.purpose, asked.max_steps) == (BAD, False, "control", 50)
    assert trial(3, watched, BAD, max_runs=2) is None
    assert trial(4, [*watched, observation(3, watched=False)], BAD, max_runs=9) is None
    assert trial(1, [], BAD, max_runs=9) is None


def test_what_was_not_tested_is_said_only_at_the_end_or_where_it_was_not_wanted() -> None:
    watched = [observation(1)]
    assert result(watched, {"1": DIED}, BAD, wanted=True, complete=False) is None
    for wanted, complete in ((True, True), (False, False)):
        found = result(watched, {"1": DIED}, BAD, wanted=wanted, complete=complete)
        assert found is not None and found.attempt is None and "not tested" in found.text


def test_the_bare_run_is_named() -> None:
    found = result([observation(1), observation(2, watched=False)], {"1": DIED, "2": DIED}, BAD, wanted=True, complete=False)
    assert found is not None and (found.attempt, found.changed) == ("2", False)
