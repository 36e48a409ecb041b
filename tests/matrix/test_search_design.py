"""The strategies whose cells are fixed beforehand: which cells they run, and that their verdicts are honest."""

from __future__ import annotations

import itertools
import random

import pytest

from matrix.search import Search, design
from matrix.search.grid import Grid
from tests.matrix.simulated_programs import AXES, BAD, cells_run, crashing, died, make_spec, play, survived

STRATEGIES = ("one_at_a_time", "pairwise", "full")
SMALL = {"bs": [8, 16, 32], "mining": ["off", "sync", "thread"], "threads": [1, 2]}
SMALL_BAD = {"bs": 32, "mining": "sync", "threads": 2}


def pairs_of(cells) -> set:
    return {pair for cell in cells for pair in itertools.combinations(cell.items(), 2)}


def pairwise_cells(**sections) -> list:
    spec = make_spec(search={"strategy": "pairwise", "max_runs": 200}, **sections)
    return design.cells(Grid(spec), seed=0)


def test_a_pairwise_design_holds_every_pair_of_values_in_a_fraction_of_the_matrix():
    cells = pairwise_cells()
    assert pairs_of([*cells, BAD]) == pairs_of({**dict(zip(AXES, values, strict=True))} for values in itertools.product(*AXES.values()))
    assert len(cells) <= 20 and BAD not in cells  # of 360


RULES = [{"bs": 8, "mining": "thread"}, {"threads": 1, "workers": 2}, {"accum": 4, "shuffle": "sequential", "bs": 16}]


def test_where_rules_exclude_cells_every_pair_that_may_meet_still_meets():
    spec = make_spec(exclude=RULES)
    cells = pairwise_cells(exclude=RULES)
    assert all(spec.allowed(cell) for cell in cells)
    assert pairs_of([*cells, BAD]) == pairs_of(spec.cells())


def test_a_single_axis_has_no_pairs_and_every_value_is_run():
    spec = make_spec({"bs": [8, 16, 32]}, {"bs": 32}, search={"strategy": "pairwise"})
    assert design.cells(Grid(spec), seed=0) == [{"bs": 8}, {"bs": 16}]


def test_values_that_cannot_run_here_are_in_no_cell():
    spec = make_spec({**AXES, "device": ["cpu", "mps"]}, {**BAD, "device": "cpu"}, search={"strategy": "pairwise"})
    if spec.unavailable("device", "mps") is None:
        pytest.skip("this machine has MPS")
    assert {cell["device"] for cell in design.cells(Grid(spec), seed=0)} == {"cpu"}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_cells_that_the_specification_names_are_run_too(strategy):
    good = {"mining": "off", "threads": 1, "bs": 8}
    spec = make_spec(SMALL, SMALL_BAD, known_good=good, search={"strategy": strategy, "max_runs": 100})
    assert good in cells_run(play(Search(spec), crashing(lambda c: c["threads"] == 2)))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_cell_of_the_design_is_run_as_often_as_the_user_said_unless_it_dies(strategy):
    spec = make_spec(SMALL, SMALL_BAD, search={"strategy": strategy, "repeats": 3, "max_runs": 300})
    dies = crashing(lambda c: c["mining"] == "sync")
    found = [trial.cell for trial, _ in play(Search(spec), dies).log if trial.purpose == "find"]
    for cell in design.cells(Grid(spec), seed=0):
        assert cell == SMALL_BAD or found.count(cell) == (1 if cell["mining"] == "sync" else 3)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_crash_that_comes_every_time_is_pinned_down_by_every_strategy(strategy):
    spec = make_spec(SMALL, SMALL_BAD, search={"strategy": strategy, "max_runs": 100})
    result = play(Search(spec), crashing(lambda c: c["bs"] > 8)).result()
    assert result.culprit == {"bs": [16, 32]}
    assert result.confirmed and result.fix.verified and result.probability >= 0.95


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_answer_that_the_cells_do_not_settle_is_not_confirmed(strategy):
    spec = make_spec(SMALL, SMALL_BAD, search={"strategy": strategy, "max_runs": 100})
    result = play(Search(spec), crashing(lambda c: c["mining"] == "sync" and c["bs"] > 8)).result()
    assert result.confirmed == (result.culprit == {"bs": [16, 32], "mining": ["sync"]})
    assert result.confirmed or (strategy == "pairwise" and result.probability < 0.95)  # it holds each pair of values once


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_three_repeats_of_a_rare_crash_confirm_nothing_that_is_wrong(strategy):
    wrong = unsure = 0
    for seed in range(5):
        spec = make_spec(SMALL, SMALL_BAD, search={"strategy": strategy, "repeats": 3, "max_runs": 100})
        result = play(Search(spec, seed=seed), crashing(lambda c: c["threads"] == 2, 0.3), seed=seed).result()
        wrong += result.confirmed and result.culprit != {"threads": [2]}
        unsure += result.probability < 0.95
    assert wrong == 0 and unsure >= 1  # a vote of three would be sure each time


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_max_runs_leaves_out_is_said(strategy):
    search = Search(make_spec(search={"strategy": strategy, "max_runs": 5}))
    assert len(search.notices) == 1 and search.notices[0].startswith(f"strategy {strategy}: ")
    assert search.notices[0].endswith("cells and max_runs allows 5 runs; the rest is never tested")
    assert Search(make_spec(search={"strategy": "adaptive", "max_runs": 5})).notices == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_batches_answered_out_of_order_run_the_same_cells(strategy):
    spec = make_spec(SMALL, SMALL_BAD, search={"strategy": strategy, "repeats": 2, "max_runs": 100})
    search, rng = Search(spec), random.Random(1)
    waiting = []
    while not search.done:
        waiting += search.ask(3 - len(waiting))
        trial = waiting.pop(rng.randrange(len(waiting)))
        search.tell(trial.id, died() if trial.cell["threads"] == 2 else survived())
    assert search.result().culprit == {"threads": [2]} and search.result().confirmed
