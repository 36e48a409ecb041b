"""No run is spent on what is clear, and what was verified stays so."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from matrix.records import Outcome, Purpose, Trial
from matrix.search import Search, claim, unseen
from matrix.search.grid import Grid
from matrix.search.ledger import Ledger
from matrix.search.posterior import LOST_IF_RARE, Belief
from matrix.search.space import Space
from matrix.search.stats import E_VALUE
from tests.matrix.simulated_programs import crashing, died, make_spec, play, survived

SMALL = {"bs": [8, 16, 32], "mining": ["off", "sync"]}
WORST = {"bs": 32, "mining": "sync"}


def test_a_second_death_at_another_step_spares_the_changes_that_were_seen_to_die_late():
    """It dies at any step, and the first death happens to be an early one."""

    def program(trial, rng):
        if trial.cell["mining"] != "sync":
            return survived(200)
        return died(steps=10 if trial.purpose == "calibrate" else rng.randint(60, 190))

    for seed in range(2):
        search = play(Search(make_spec(), seed=seed), program, seed=seed)
        whys = [trial.why for trial, _ in search.log]
        assert search.result().confirmed and sum("and late: does it alone?" in why for why in whys) <= 1


def test_of_changes_that_died_late_together_the_one_that_explains_it_is_tried_alone_and_the_others_are_spared():
    """What is kept grows with every step until the memory of a cell is full, at once with less of it."""
    axes = {"keep": [0, 1], "memory": [400, 3000], "bs": [8, 32, 64], "workers": [0, 2], "threads": [1, 2], "accum": [1, 4], "seed": [0, 1]}
    bad = {"keep": 1, "memory": 400, "bs": 32, "workers": 0, "threads": 2, "accum": 4, "seed": 0}

    def program(trial, rng):
        full = 3 * trial.cell["memory"] / trial.cell["bs"]
        return died(steps=int(full)) if trial.cell["keep"] and full < 1200 else survived(1200)

    for seed in range(4):
        search = play(Search(make_spec(axes, bad), seed=seed), program)
        assert search.result().culprit == {"keep": [1]} and search.result().confirmed
        assert sum("and late: does it alone?" in trial.why for trial, _ in search.log) <= 2


def test_a_crash_that_hardly_comes_is_waited_for_in_longer_runs_where_the_program_can_make_them():
    """One death in 8,000 steps; a run of 1,000 steps takes 20 seconds to start and 10 to run."""

    def program(trial, rng):
        length = trial.max_steps or 1000
        death = rng.expovariate(1 / 8_000) if trial.cell["mining"] == "sync" else float("inf")
        steps = int(min(death, length))
        ended = {"kind": "died", "signature": "SIGABRT"} if death < length else {"kind": "survived"}
        return Outcome(steps=steps, seconds=20 + steps / 100, **ended)

    spec = make_spec(run={"command": ["program"], "length": {"flag": "--steps"}}, search={"max_runs": 200})
    search = play(Search(spec), program)
    inside = [trial for trial, _ in search.log if trial.purpose == "verify" and trial.cell["mining"] == "sync" and trial.cell["bs"] != 64]
    assert search.result().culprit == {"mining": ["sync"]} and search.result().confirmed
    assert any(trial.max_steps and trial.max_steps > 1000 for trial in inside)


@pytest.mark.parametrize(("purpose", "frozen"), [("verify", True), ("find", False)])
def test_a_survival_that_may_be_luck_takes_back_no_fresh_run_while_the_same_answer_leads(purpose, frozen):
    told = [({}, died()), ({}, survived()), ({"mining": "off"}, survived()), ({"bs": 16}, survived())]
    belief = believed([(changes, outcome, purpose if number == 3 else "find") for number, (changes, outcome) in enumerate(told)])
    assert 0.3 < belief.mass < 0.5 and belief.frozen is frozen


def test_runs_that_put_another_answer_first_are_no_fresh_ones_for_it():
    """The first three say that it is bs; what was to verify that says that mining takes part."""
    found = [({}, died(), "find"), ({"bs": 8}, survived(), "find"), ({"mining": "off"}, died(), "find")]
    steady = believed([*found, ({"bs": 16}, died(), "verify")])
    turned = believed([*found, ({"bs": 8}, died(), "verify"), *[({"mining": "off"}, survived(), "verify")] * 3])
    assert turned.mass > LOST_IF_RARE and steady.frozen and not turned.frozen


def believed(told: list[tuple[dict[str, Any], Outcome, Purpose]]) -> Belief:
    ledger = Ledger(Grid(make_spec(SMALL, WORST)))
    for number, (changes, outcome, purpose) in enumerate(told, 1):
        ledger.tell(Trial(id=number, cell={**WORST, **changes}, purpose=purpose), outcome)
    return Belief(Space(ledger.grid, 0), ledger, 0.95)


def edge_of_a_limit(alone: bool):
    """bs=16 dies in its first run, and lives from then on; `alone`: nothing else lives."""
    runs = Counter[str]()

    def program(trial, rng):
        cell = trial.cell
        if cell["bs"] == 16 and (alone or cell["mining"] == "sync"):
            runs[str(cell)] += 1
            return died() if cell == {**WORST, "bs": 16} and runs[str(cell)] == 1 else survived()
        return died() if alone or (cell["mining"] == "sync" and cell["bs"] == 32) else survived()

    return program


def test_a_change_that_died_of_it_before_is_never_the_fix():
    """At the edge of a limit a value dies at times, and is the nearest one that survives."""
    for seed in range(4):
        result = play(Search(make_spec(SMALL, WORST), seed=seed), edge_of_a_limit(alone=False), seed=seed).result()
        assert result.fix and result.fix.set != {"bs": 16}
        alone = play(Search(make_spec(SMALL, WORST), seed=seed), edge_of_a_limit(alone=True), seed=seed).result()
        assert alone.fix is None or alone.fix.set != {"bs": 16}


def test_what_the_runs_did_not_suffice_to_decide_is_told_with_its_probability():
    """Two conditions and a crash in four of ten runs take more than 30 runs to prove."""
    right = 0
    for seed in range(6):
        spec = make_spec({"a": [0, 1], "b": [0, 1], "c": [1, 2], "d": [0, 1]}, {"a": 1, "b": 1, "c": 1, "d": 0}, search={"max_runs": 30})
        program = crashing(lambda cell: cell["a"] == 1 and cell["b"] == 1, 0.4)
        result = play(Search(spec, seed=seed), program, seed=seed).result()
        right += result.culprit == {"a": [1], "b": [1]}
        assert result.confirmed or (result.status == "suspected" and result.probability < 1)
        assert result.confirmed or result.fix is None or not result.fix.verified or result.reasons
    assert right >= 3


def test_runs_that_a_busy_machine_cut_short_take_back_no_way_out():
    """A few runs of each way out live, and all later ones are ended by the wall limit."""
    for seed in range(4):
        lived = Counter[str]()

        def program(trial, rng, lived=lived):
            if trial.cell["mining"] == "sync":
                return died() if rng.random() < 0.6 else survived()
            lived[str(trial.cell)] += 1
            cut = Outcome(kind="censored", steps=30, seconds=48.0, reason="our wall-clock limit")
            return survived() if lived[str(trial.cell)] <= 5 else cut

        result = play(Search(make_spec(SMALL, WORST, search={"max_runs": 60}), seed=seed), program, seed=seed).result()
        assert result.fix and result.fix.set == {"mining": "off"} and result.culprit == {"mining": ["sync"]}
        assert not result.fix.verified and "fresh clean runs" in result.reasons[0] and result.runs < 60


def test_a_change_that_helps_only_beside_the_known_bad_values_is_no_confirmed_answer():
    """One axis alone cures, and with another one changed as well it does not: dies with neither, or with both, of two changes."""
    axes = {"a": [0, 1], "b": [0, 1], "c": [0, 1], "d": [0, 1]}
    bad = dict.fromkeys(axes, 0)
    for seed in range(6):
        search = Search(make_spec(axes, bad), seed=seed)
        result = play(search, crashing(lambda cell: cell["a"] == cell["b"], 1.0), seed=seed).result()
        assert not result.confirmed
        sure = play(Search(make_spec(axes, bad), seed=seed), crashing(lambda cell: cell["a"] == 0, 1.0), seed=seed)
        lifted = [trial for trial, outcome in sure.log if trial.cell["a"] == 1 and outcome.kind == "survived"]
        assert sure.result().confirmed and any(sum(trial.cell.values()) > 1 for trial in lifted)


def test_with_one_axis_there_is_nothing_else_to_change():
    result = play(Search(make_spec({"bs": [1, 2, 4, 8]}, {"bs": 8})), crashing(lambda cell: cell["bs"] > 2, 1.0)).result()
    assert result.confirmed and result.culprit == {"bs": [4, 8]}


def test_only_cells_that_were_never_run_tell_a_rule_from_chance():
    """Any cells at all may be what dies: the same cell again says nothing about that, one that ends as foretold nearly doubles the odds."""
    told = [({}, died(), "find"), ({"bs": 16, "mining": "off"}, survived(), "find"), ({"bs": 16}, died(), "find")]
    before = believed(told).fits
    again = [
        believed([*told, ({"bs": 16}, died(), "find")]).fits,
        believed([*told, ({"bs": 16, "mining": "off"}, survived(), "find")]).fits,
    ]
    assert again == pytest.approx([before] * 2, rel=0.1)
    assert believed([*told, ({"mining": "off"}, survived(), "find")]).fits > 1.5 * before


@pytest.mark.parametrize(
    "where", [{"mining": ["sync"]}, {"bs": [64, 128], "workers": [2]}, {"threads": [2], "accum": [4, 16], "mining": ["sync"]}]
)
def test_what_is_confirmed_has_foretold_enough_cells_or_there_are_no_others(where):
    for seed in range(3):
        search = play(Search(make_spec(), seed=seed), crashing(lambda cell: claim.like(cell, where)), seed=seed)
        assert search.result().confirmed and search.result().culprit == where
        assert evidence(search).fits >= E_VALUE


def test_where_every_cell_was_run_nothing_is_left_to_foretell():
    axes, bad = {"a": [0, 1], "b": [0, 1]}, {"a": 0, "b": 0}
    for rate in (1.0, 0.5):
        search = play(Search(make_spec(axes, bad), seed=1), crashing(lambda cell: cell["a"] == 0, rate), seed=1)
        assert search.result().confirmed and evidence(search).fits < E_VALUE


def test_cells_that_are_run_at_once_are_no_more_than_could_be_enough():
    search = Search(make_spec(), seed=0)
    while "too few cells" not in " ".join(search.result().reasons):
        trial = search.ask()
        search.tell(trial, died() if trial.cell["mining"] == "sync" else survived())
    asked = search.ask(20)
    assert 1 <= sum("Never run" in trial.why for trial in asked) <= 5


@pytest.mark.parametrize(("purpose", "shown"), [("find", None), ("verify", True)])
def test_survivals_that_led_to_an_answer_do_not_bear_it_out_where_the_crash_comes_at_times(purpose, shown):
    """With both changes it may die again: the survivals that were needed to think of these two may all have been luck."""
    axes = {name: [0, 1] for name in "abcd"}
    search = Search(make_spec(axes, dict.fromkeys(axes, 0)))
    told = [({}, "dsdsd", "find"), ({"c": 1}, "sdd", "find"), ({"d": 1}, "dsd", "find"), ({"c": 1, "d": 1}, "sd", "find")]
    told += [({"a": 1}, "s" * 9, "find"), ({"b": 1}, "s" * 9, "find")]
    told += [({"a": 1, "b": 1, "c": c, "d": d}, "sss", purpose) for c in (0, 1) for d in (0, 1)]
    answers = [(changes, letter, of) for changes, letters, of in told for letter in letters]
    for number, (changes, letter, of) in enumerate(answers, 1):
        cell = {**dict.fromkeys(axes, 0), **changes}
        search.tell(Trial(id=number, cell=cell, purpose=of), died() if letter == "d" else survived())
    assert search.result().culprit == {"a": [0], "b": [0]}
    view = search._view()
    assert not view.sure and unseen.outside(view, claim.answered(view)) is shown


def evidence(search: Search) -> Belief:
    ledger = Ledger(Grid(search.spec))
    for trial, outcome in search.log:
        ledger.tell(trial, outcome)
    return Belief(Space(ledger.grid, search.seed), ledger, 0.95)


def test_where_a_known_mechanism_has_its_conditions_fewer_cells_show_the_rule():
    """The same crash, held to follow a rule by how it dies: nothing but cells that only show that there is one is left out."""
    runs = {}
    for known in (0.0, 1.0):
        search = Search(make_spec())
        search.expect_rule(known)
        result = play(search, crashing(lambda cell: cell["mining"] == "sync")).result()
        assert result.confirmed and result.culprit == {"mining": ["sync"]}
        runs[known] = result.runs
    assert runs[1.0] < runs[0.0]
    with pytest.raises(ValueError, match="no probability"):
        Search(make_spec()).expect_rule(1.5)
