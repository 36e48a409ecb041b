"""The posterior over crash sets: against enumeration by hand, and what it does with evidence that is none."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import numpy as np
import pytest

from matrix.records import Outcome, Trial
from matrix.search import Search
from matrix.search.grid import Grid
from matrix.search.ledger import Ledger
from matrix.search.posterior import BACKGROUND, LOG_BACKGROUND, OPEN, RATES, SHARES, Belief
from matrix.search.space import Space
from tests.matrix.simulated_programs import BAD, cells_run, crashing, died, make_spec, play, survived

SMALL = {"bs": [8, 16, 32], "mining": ["off", "sync"]}
WORST = {"bs": 32, "mining": "sync"}


def believed(told: list[tuple[dict, Outcome]], *, matrix=SMALL, bad=WORST, **sections) -> Belief:
    grid = Grid(make_spec(matrix, bad, **sections))
    ledger = Ledger(grid)
    for number, (cell, outcome) in enumerate(told, 1):
        ledger.tell(Trial(id=number, cell={**bad, **cell}), outcome)
    return Belief(Space(grid, 0), ledger, 0.95)


def test_the_posterior_is_the_sum_over_rates_written_out():
    told = [({}, died()), ({"bs": 8}, survived()), ({"bs": 16}, died()), ({"mining": "off"}, survived()), ({}, survived())]
    belief = believed(told)
    logs = []
    for hypothesis in range(len(belief.space.hypotheses)):
        total = 0.0
        for (p, log_p), (q, log_q) in itertools.product(
            zip(RATES, belief.log_rates, strict=True), zip(BACKGROUND, LOG_BACKGROUND, strict=True)
        ):
            chance = math.exp(log_p + log_q)
            for cell, outcome in told:
                rate = p if belief.space.column({**WORST, **cell})[hypothesis] else q
                chance *= rate if outcome.kind == "died" else 1 - rate
            total += chance
        logs.append(belief.space.log_prior[hypothesis] + math.log1p(-OPEN) + math.log(total))
    assert belief.weights / belief.weights.sum() == pytest.approx(np.exp(logs) / np.exp(logs).sum(), rel=1e-6)


def test_the_open_world_is_the_sum_over_rates_and_shares_written_out():
    told = [({}, died()), ({"bs": 8}, survived()), ({"bs": 16}, died())]
    belief, total = believed(told), 0.0
    for p, q, share in itertools.product(range(len(RATES)), range(len(BACKGROUND)), SHARES):
        chance = math.exp(belief.log_rates[p] + LOG_BACKGROUND[q]) / len(SHARES) * RATES[p]
        chance *= share * (1 - RATES[p]) + (1 - share) * (1 - BACKGROUND[q])
        total += chance * (share * RATES[p] + (1 - share) * BACKGROUND[q])
    hypotheses = belief.weights.sum()
    assert belief.open + hypotheses == pytest.approx(1.0)
    evidence = sum(math.exp(belief.space.log_prior[h]) * _evidence(belief, h, told) for h in range(len(belief.space.hypotheses)))
    assert belief.open / hypotheses == pytest.approx(OPEN * total / ((1 - OPEN) * evidence), rel=1e-6)


def _evidence(belief: Belief, hypothesis: int, told: list[tuple[dict, Outcome]]) -> float:
    inside = [(bool(belief.space.column({**WORST, **cell})[hypothesis]), outcome.kind == "died") for cell, outcome in told]
    within = [np.where(dead, RATES, 1 - RATES) for member, dead in inside if member]
    without = [np.where(dead, BACKGROUND, 1 - BACKGROUND) for member, dead in inside if not member]
    inner = (np.exp(belief.log_rates) * np.prod(within, axis=0)).sum()
    return float(inner * (np.exp(LOG_BACKGROUND) * np.prod([np.ones(len(BACKGROUND)), *without], axis=0)).sum())


def test_every_crash_set_contains_the_known_bad_cell_and_the_prior_sums_to_one():
    space = Space(Grid(make_spec()), 0)
    assert space.column(BAD).all()
    assert np.exp(space.log_prior).sum() == pytest.approx(1.0)
    described = [space.describe(space.hypotheses.parts(number)) for number in range(len(space.hypotheses))]
    assert len(set(described)) == len(described)
    assert {"every cell", "bs>=32", "mining=sync|thread", "bs=64 and threads=2", "threads=2, or mining=sync"} <= set(described)


def test_what_comes_every_time_needs_several_conditions_more_often():
    """The prior of a pair, and that of longer conjunctions, which are grown later."""
    grid = Grid(make_spec())

    def prior(space: Space, words: str) -> float:
        number = [space.describe(space.hypotheses.parts(number)) for number in range(len(space.hypotheses))].index(words)
        return float(space.log_prior[number])

    rare, always = Space(grid, 0), Space(grid, 0, every_time=1.0)
    assert prior(always, "bs=64 and threads=2") > prior(rare, "bs=64 and threads=2")
    assert prior(always, "threads=2") < prior(rare, "threads=2")
    assert sum(always.orders.values()) == pytest.approx(sum(rare.orders.values()), abs=0.02)


def test_other_deaths_say_nothing_and_a_run_that_was_cut_short_counts_for_what_it_has_stood():
    told = [({}, died(steps=10)), ({}, died(steps=20)), ({}, died(steps=30))]
    plain = believed(told).dies({**WORST, "bs": 8})
    assert believed([*told, ({"bs": 8}, died("SIGSEGV", steps=40))]).dies({**WORST, "bs": 8}) == pytest.approx(plain)
    early, late = (believed([*told, ({"bs": 8}, Outcome(kind="censored", steps=steps))]).dies({**WORST, "bs": 8}) for steps in (5, 25))
    whole = believed([*told, ({"bs": 8}, survived())]).dies({**WORST, "bs": 8})
    assert early == pytest.approx(plain, rel=0.1)  # nothing has died so early, but a constant rate might have
    assert whole < late < early


def test_a_death_that_people_saw_says_where_and_not_how_often():
    told = [({}, died())]
    seen = [{"cell": {"bs": 8}, "died": True, "step": 3}]
    plain, reported = believed(told), believed(told, observed=seen)
    assert reported.dies({**WORST, "bs": 8}) > 0.9 > plain.dies({**WORST, "bs": 8})
    assert reported.p.tolist() == plain.p.tolist()


def test_a_crash_set_that_is_none_of_the_hypotheses_is_left_to_the_single_changes():
    program = crashing(lambda c: c["bs"] >= 32 and c["threads"] == 2 and c["mining"] == "sync" and c["workers"] == 2)
    search = play(Search(make_spec()), program)
    assert search.result().culprit == {"bs": [32, 64, 128], "threads": [2], "mining": ["sync"], "workers": [2]}


def test_long_runs_of_survivals_make_the_search_ask_whether_the_crash_is_still_there():
    def program(trial, rng):
        return died() if trial.purpose == "calibrate" else survived()

    search = play(Search(make_spec(search={"max_runs": 40})), program)
    assert sum(trial.cell == BAD and trial.purpose != "calibrate" for trial, _ in search.log) >= 2
    assert not search.result().confirmed


def test_a_crash_that_is_cheaper_than_a_survival_is_asked_for_more_often():
    def share(died_s: float, survived_s: float) -> float:
        def program(trial, rng):
            if trial.cell["mining"] == "sync" and rng.random() < 0.5:
                return Outcome(kind="died", steps=5, seconds=died_s, signature="SIGABRT")
            return Outcome(kind="survived", steps=40, seconds=survived_s)

        logs = [play(Search(make_spec(), seed=seed), program, seed=seed).log for seed in range(6)]
        inside = [trial.cell["mining"] == "sync" for log in logs for trial, _ in log if trial.purpose == "find"]
        return sum(inside) / len(inside)

    assert share(1.0, 50.0) > share(50.0, 1.0)


@pytest.mark.parametrize("seed", [0, 4, 6])
def test_a_limit_that_was_only_reached_with_a_larger_batch_is_tried_alone(seed):
    """A leak: the death comes at the step at which it has filled the limit, in runs of 200 steps."""

    def program(trial, rng):
        step = 4 * trial.cell["mem"] // trial.cell["bs"]
        if trial.cell["cache"] and step <= 200:
            return Outcome(kind="died", steps=step, seconds=2.0, signature="SIGKILL:memory")
        return Outcome(kind="survived", steps=200, seconds=4.0)

    matrix = {"bs": [8, 16, 32, 64, 128], "accum": [1, 2, 4, 8], "workers": [0, 2], "threads": [1, 2], "mining": [0, 1], "shuffle": [0, 1]}
    bad = {"bs": 32, "accum": 1, "workers": 0, "threads": 2, "mining": 0, "shuffle": 0, "cache": 1, "mem": 400}
    spec = make_spec({**matrix, "cache": [0, 1], "mem": [400, 3000]}, bad, search={"max_runs": 40, "seed": seed})
    culprit = play(Search(spec, seed=seed), program, seed=seed).result().culprit
    assert (culprit["cache"], culprit["mem"]) == ([1], [400])


@pytest.mark.parametrize(
    ("seconds", "a_limit"),
    [
        (lambda steps: 60 + steps / 1000, False),
        (lambda steps: 1 + steps / 10, False),
        (lambda steps: 0.0, False),
        (lambda steps: 30.0, True),
    ],
    ids=["mostly starting up", "mostly steps", "no seconds told", "a limit on time"],
)
def test_deaths_at_any_step_are_taken_for_a_limit_on_time_only_where_steps_take_time(seconds, a_limit):
    """Else a crash that comes at times would be taken for one that comes every time, and its survivals for cures."""
    deaths = [
        ({}, Outcome(kind="died", steps=n, seconds=seconds(n), signature="SIGABRT")) for n in (500, 700, 850, 900, 950, 1100, 1210, 1300)
    ]
    alive = ({"bs": 8}, Outcome(kind="survived", steps=2000, seconds=seconds(2000)))
    fixed = believed([*deaths, alive]).hazard.weights["fixed time"]
    assert fixed > 0.9 if a_limit else fixed < 0.1


def test_however_quick_a_crash_is_no_configuration_is_asked_for_a_dozen_times():
    def program(trial, rng):
        if trial.cell["bs"] == 16 and trial.cell["mode"] == "b":
            return Outcome(kind="died", steps=None, seconds=0.1 if trial.purpose == "calibrate" else 0.03, signature="SIGSEGV")
        return Outcome(kind="survived", steps=None, seconds=3.05)

    spec = make_spec({"bs": [4, 8, 16], "mode": ["a", "b"], "n": [1, 2]}, {"bs": 16, "mode": "b", "n": 2}, search={"max_runs": 25})
    search = play(Search(spec), program)
    cells = Counter(tuple(trial.cell.values()) for trial, _ in search.log if trial.purpose == "find")
    assert search.result().confirmed and max(cells.values()) <= 4


@pytest.mark.parametrize("axes", [(3, 3, 2, 2), (3, 2, 2, 2), (3, 3, 3), (2, 2, 2, 2)])
def test_in_a_small_matrix_what_is_in_doubt_is_asked_and_not_what_is_known(axes):
    """With few cells, that each of them dies for itself is the rival of three conditions: only cells that were not run tell."""
    matrix = {f"a{number}": list(range(count)) for number, count in enumerate(axes)}
    bad = {name: values[-1] for name, values in matrix.items()}
    conditions = ("a0", "a1", "a2")
    search = play(Search(make_spec(matrix, bad)), crashing(lambda cell: all(cell[name] == bad[name] for name in conditions)))
    found = search.result()
    assert found.confirmed and {*found.culprit} == {*conditions}
    assert max(Counter(tuple(cell.values()) for cell in cells_run(search) if cell != bad).values()) <= 7


def test_outstanding_runs_are_not_asked_again_for_what_they_will_tell():
    search, rng = Search(make_spec()), random.Random(0)
    program = crashing(lambda c: c["mining"] == "sync")
    search.tell(search.ask(), program(Trial(id=1, cell=BAD), rng))
    batch = search.ask(4)
    assert len({tuple(trial.cell.values()) for trial in batch}) == 4


def test_a_suspected_axis_is_found_in_fewer_runs_and_a_wrong_suspicion_is_overruled():
    def played(weights):
        search = Search(make_spec())
        search.suspect_axes(weights)
        return play(search, crashing(lambda c: c["mining"] == "sync" and c["threads"] == 2)).result()

    plain, right, wrong = played({}), played({"mining": 10.0, "threads": 10.0}), played({"bs": 10.0, "shuffle": 10.0})
    assert plain.culprit == right.culprit == wrong.culprit == {"threads": [2], "mining": ["sync"]}
    assert right.find_runs < wrong.find_runs and right.runs == right.find_runs + right.verify_runs


def test_a_suspicion_of_an_axis_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"no axis 'miner' in the matrix; axes: bs, accum"):
        Search(make_spec()).suspect_axes({"miner": 2.0})


def test_a_crash_that_is_expected_every_time_is_verified_in_fewer_runs_and_a_wrong_expectation_is_overruled():
    def searched(probability, rate, seed):
        search = Search(make_spec(), seed=seed)
        search.expect_every_time(probability)
        where = {"mining": "sync", "threads": 2, "workers": 2}
        return play(search, crashing(lambda cell: all(cell[axis] == value for axis, value in where.items()), rate), seed=seed).result()

    runs = {probability: [searched(probability, 1.0, seed).runs for seed in range(4)] for probability in (0.1, 0.95)}
    assert sum(runs[0.95]) + 4 <= sum(runs[0.1])
    rare = [searched(0.95, 0.4, seed) for seed in range(6)]
    assert all(each.culprit == {"threads": [2], "mining": ["sync"], "workers": [2]} for each in rare if each.confirmed)
    assert sum(each.confirmed for each in rare) >= 5
    with pytest.raises(ValueError, match="no probability"):
        Search(make_spec()).expect_every_time(1.5)


def test_a_short_survival_does_not_acquit_a_leak_that_kills_late():
    told = [({}, died(steps=steps)) for steps in (2900, 2950, 2980, 3000, 3040, 3100)]
    short = Outcome(kind="censored", steps=500)
    plain, after = (believed(each).dies({**WORST, "bs": 8}) for each in (told, [*told, ({"bs": 8}, short)]))
    assert after == pytest.approx(plain, rel=0.02)


def test_a_rare_crash_is_met_with_longer_runs_where_they_can_be_asked_for():
    def program(trial, rng):
        length, death = trial.max_steps or 2000, rng.expovariate(0.1 / 2000)
        steps = int(min(length, death if trial.cell["mining"] == "sync" else length))
        ended = {"kind": "died", "signature": "SIGABRT"} if steps < length else {"kind": "survived"}
        return Outcome(steps=steps, seconds=20 + steps / 100, **ended)

    spec = make_spec(run={"command": ["program"], "length": {"flag": "--max-steps"}})
    search = play(Search(spec), program)
    assert search.result().culprit == {"mining": ["sync"]}
    assert max(trial.max_steps or 0 for trial, _ in search.log) > 2000 and search.log[0][0].max_steps is None


def test_a_crash_at_one_step_that_comes_half_of_the_time_convicts_no_axis_by_a_few_deaths_in_a_row():
    matrix = {"a": [1, 2, 4], "b": ["x", "y", "z"], "c": [1, 2], "d": ["x", "y"]}
    bad = {"a": 4, "b": "x", "c": 2, "d": "y"}
    wrong = 0
    for seed in (13, 14, 29, *range(9)):
        search = Search(make_spec(matrix, bad, search={"max_runs": 40}), seed)
        found = play(search, crashing(lambda cell: cell["a"] == 4 and cell["d"] == "y", rate=0.5), seed=seed).result()
        wrong += found.confirmed and {*found.culprit} != {"a", "d"}
    assert wrong <= 1
