"""No run is spent on what is clear, and what was verified stays so."""

from __future__ import annotations

import pytest

from matrix.records import Outcome, Trial
from matrix.search import Search
from matrix.search.grid import Grid
from matrix.search.ledger import Ledger
from matrix.search.posterior import Belief
from matrix.search.space import Space
from tests.matrix.simulated_programs import died, make_spec, play, survived

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
    inside = [trial for trial, _ in search.log if "drawn at random" in trial.why]
    assert search.result().culprit == {"mining": ["sync"]} and search.result().confirmed
    assert inside and all(trial.max_steps and trial.max_steps > 1000 for trial in inside)


@pytest.mark.parametrize(("purpose", "frozen"), [("verify", True), ("find", False)])
def test_a_survival_that_may_be_luck_takes_back_no_fresh_run_while_the_same_answer_leads(purpose, frozen):
    told = [({}, died()), ({}, survived()), ({"bs": 8}, died()), ({"mining": "off"}, survived()), ({"bs": 16}, survived())]
    ledger = Ledger(Grid(make_spec(SMALL, WORST)))
    for number, (changes, outcome) in enumerate(told, 1):
        ledger.tell(Trial(id=number, cell={**WORST, **changes}, purpose=purpose if number == len(told) else "find"), outcome)
    belief = Belief(Space(ledger.grid, 0), ledger, 0.95)
    assert 0.5 < belief.mass < 0.9 and belief.frozen is frozen
