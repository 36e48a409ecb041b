"""Ask and tell as a protocol: order, repetition, batches, replay, and an honest result after every answer."""

from __future__ import annotations

import random

import pytest

from matrix.records import Outcome, Trial
from matrix.search import Search
from tests.matrix.simulated_programs import AXES, BAD, crashing, died, make_spec, play, survived


def flaky_pair(trial, rng):
    return died() if trial.cell["bs"] > 16 and trial.cell["threads"] == 2 and rng.random() < 0.7 else survived()


def two_causes(trial, rng):
    if trial.cell["mining"] == "sync":
        return died("SIGABRT")
    return died("SIGSEGV") if trial.cell["bs"] > 32 else survived()


SPEC = make_spec(search={"max_runs": 30})  # a replay at every point costs the square of the runs


PROGRAMS = {
    "healthy": crashing(lambda c: False),
    "always": crashing(lambda c: True),
    "flaky pair": flaky_pair,
    "two causes": two_causes,
    "product": crashing(lambda c: c["bs"] * c["accum"] > 200),
    "cut short now and then": lambda trial, rng: Outcome(kind="censored") if rng.random() < 0.2 else flaky_pair(trial, rng),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_seed_and_same_answers_give_the_same_questions(name):
    first, second = (play(Search(SPEC, seed=3), PROGRAMS[name], seed=1) for _ in range(2))
    assert first.log == second.log and first.result() == second.result()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_search_rebuilt_from_its_log_asks_the_same_next_question_at_every_point(name):
    search, rng = Search(SPEC, seed=3), random.Random(1)
    while (trial := search.ask()) is not None:
        rebuilt = Search.replay(SPEC, 3, search.log)
        assert rebuilt.ask() == trial
        search.tell(trial, PROGRAMS[name](trial, rng))
    rebuilt = Search.replay(SPEC, 3, search.log)
    assert rebuilt.done and rebuilt.result() == search.result()


@pytest.mark.parametrize("name", PROGRAMS)
def test_answers_may_come_in_any_order_and_twice(name):
    straight = play(Search(SPEC, seed=3), PROGRAMS[name], seed=1)
    shuffled = random.Random(7).sample(straight.log, len(straight.log))
    again = Search.replay(SPEC, 3, shuffled + shuffled[::2])
    assert again.result() == straight.result() and again.log == straight.log


@pytest.mark.parametrize("name", PROGRAMS)
def test_batches_that_are_answered_out_of_order_end_at_the_same_culprit(name):
    search, rng = Search(make_spec(), seed=3), random.Random(1)
    waiting: list[Trial] = []
    while not search.done:
        waiting += search.ask(4 - len(waiting))
        assert 0 < len(waiting) <= 4
        trial = waiting.pop(rng.randrange(len(waiting)))
        search.tell(trial.id, PROGRAMS[name](trial, rng))
    assert len({trial.id for trial, _ in search.log}) == len(search.log)
    if name != "flaky pair" and not name.startswith("cut"):
        assert search.result().culprit == play(Search(make_spec(), seed=3), PROGRAMS[name], seed=1).result().culprit


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("budget", [1, 2, 9, 23, 37])
def test_the_result_is_honest_after_every_answer_and_at_the_end_of_every_budget(name, budget):
    search, rng = Search(make_spec(search={"max_runs": budget})), random.Random(5)
    seen: list[tuple[dict, str]] = []
    for _ in range(budget + 1):
        result = search.result()
        assert 0.0 <= result.probability <= 1.0 and result.runs == len(seen) and result.explain()
        assert result.confirmed == (result.reasons == [])
        bad_died = any(cell == BAD and kind == "died" for cell, kind in seen)
        assert result.reproduced == bad_died
        if not bad_died:
            assert (result.culprit, result.fix, result.other_fixes, result.confirmed) == ({}, None, [], False)
        for axis, values in result.culprit.items():
            assert any(kind == "survived" and cell[axis] not in values for cell, kind in seen)
        for fix in [result.fix, *result.other_fixes] if result.fix else []:
            clean = sum(cell == fix.cell and kind == "survived" for cell, kind in seen)
            assert fix.cell == {**BAD, **fix.set} and clean >= fix.clean_runs > 0
        trial = search.ask()
        if trial is None:
            break
        outcome = PROGRAMS[name](trial, rng)
        search.tell(trial, outcome)
        seen.append((trial.cell, outcome.kind))
    assert search.ask() is None and search.done and len(seen) <= budget


def test_little_budget_is_kept_for_the_verification_of_what_was_found():
    program = crashing(lambda c: c["threads"] == 2)
    result = play(Search(make_spec(search={"max_runs": 21})), program).result()
    assert result.fix is not None and result.fix.verified and result.fix.set == {"threads": 1}


def test_none_with_outstanding_trials_means_wait():
    search = Search(make_spec())
    trials = search.ask(2)
    assert search.ask() is None and not search.done and search.ask(5) == []
    search.tell(trials[0], survived())
    assert search.ask().purpose == "calibrate"
    search.tell(trials[1], died())
    assert search.ask().purpose == "find"


def test_the_first_answer_to_a_trial_counts():
    search = Search(make_spec())
    trial = search.ask()
    search.tell(trial, died())
    search.tell(trial, survived())
    assert search.log == [(trial, died())]


def test_asking_in_batches_never_exceeds_the_budget():
    search = Search(make_spec(search={"max_runs": 5}))
    for trial in search.ask(2):
        search.tell(trial, died())
    batch = search.ask(50)
    assert len(batch) == 3
    for trial in batch:
        search.tell(trial, survived())
    assert search.done and search.result().runs == 5


def test_stopping_asks_nothing_more_and_the_result_says_why():
    search = Search(make_spec())
    trial = search.ask()
    search.stop("the time of 30 minutes is up")
    assert search.ask() is None and not search.done
    search.tell(trial, died())
    assert search.done and search.result().reasons[-1] == "the search was ended: the time of 30 minutes is up"


def test_an_answer_to_a_trial_that_was_never_asked_is_refused_by_number_and_adopted_as_a_trial():
    search = Search(make_spec())
    with pytest.raises(ValueError, match=r"no trial 9 was asked \(outstanding: none\); pass a Trial"):
        search.tell(9, died())
    search.tell(Trial(id=9, cell=BAD, purpose="calibrate"), died())
    assert search.result().runs == 1 and search.ask().id == 10


def test_an_answer_for_another_cell_or_for_a_cell_outside_the_matrix_is_refused():
    search = Search(make_spec())
    trial = search.ask()
    with pytest.raises(ValueError, match=r"trial 1 was asked for bs=64 .* not for bs=8"):
        search.tell(Trial(id=trial.id, cell={**BAD, "bs": 8}), died())
    with pytest.raises(ValueError, match=r"bs=7 is not in the matrix; values of bs: 8, 16, 32, 64, 128"):
        search.tell(Trial(id=2, cell={**BAD, "bs": 7}), died())
    with pytest.raises(ValueError, match=r"has no axis 'bs'; a cell names every axis: bs, accum"):
        search.tell(Trial(id=2, cell={name: BAD[name] for name in list(AXES)[1:]}), died())


def test_cells_that_the_specification_includes_are_run():
    spec = make_spec(include=[{"accum": 64, "bs": 8}])
    search = play(Search(spec), crashing(lambda c: c["accum"] >= 16))
    cells = [trial.cell for trial, _ in search.log]
    assert {**BAD, "accum": 64, "bs": 8} in cells
    assert search.result().culprit == {"accum": [16, 64]} and search.result().confirmed


def test_a_program_that_shows_no_steps_is_counted_in_runs():
    result = play(Search(make_spec(search={"max_runs": 35})), lambda trial, rng: Outcome(kind="survived", seconds=3.0)).result()
    assert result.steps == 0
    assert result.text == "Not reproduced in 14 runs: the crash rate is below 0.19 per run with 95 % confidence."
