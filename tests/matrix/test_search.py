"""The search against programs whose truth is known."""

from __future__ import annotations

import random

import pytest

from matrix.records import Interaction, Outcome, Trial
from matrix.search import Search
from tests.matrix.simulated_programs import AXES, BAD, cells_run, crashing, died, make_spec, play, survived

TRUTHS = {
    "one value": (lambda c: c["mining"] == "sync", {"mining": ["sync"]}, {"mining": "off"}),
    "a threshold": (lambda c: c["bs"] > 16, {"bs": [32, 64, 128]}, {"bs": 16}),
    "a threshold from below": (lambda c: c["bs"] < 128, {"bs": [8, 16, 32, 64]}, {"bs": 128}),
    "two conditions": (lambda c: c["bs"] >= 64 and c["threads"] == 2, {"bs": [64, 128], "threads": [2]}, {"bs": 32}),
    "three conditions": (
        lambda c: c["workers"] > 0 and c["mining"] != "off" and c["threads"] > 1,
        {"threads": [2], "mining": ["sync", "thread"], "workers": [2]},
        {"threads": 1},
    ),
}


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("strategy", ["adaptive", "one_at_a_time"])
def test_a_crash_that_comes_every_time_is_pinned_down_and_its_fix_verified(truth, strategy):
    dies, culprit, change = TRUTHS[truth]
    search = play(Search(make_spec(search={"strategy": strategy})), crashing(dies))
    result = search.result()
    assert (result.culprit, result.fix.cell) == (culprit, {**BAD, **result.fix.set})
    assert len(result.fix.set) == 1 and not dies(result.fix.cell)
    assert result.fix.set == change or len(culprit) > 1, "the nearest change; of several axes any"
    assert result.confirmed and result.status == "diagnosed" and result.reasons == []
    assert result.fix.verified and result.fix.clean_runs >= 1 and result.fix.clean_steps == 40 * result.fix.clean_runs
    assert result.probability >= 0.95
    assert result.runs <= 35
    assert result.main_signature == "SIGABRT" and result.other_signatures == {}


def test_the_fix_is_the_nearest_surviving_value_and_the_others_are_offered():
    result = play(Search(make_spec()), crashing(lambda c: c["bs"] > 16 and c["threads"] == 2)).result()
    assert result.fix.set == {"bs": 16}
    assert ("avoids", {"threads": 1}) in [(fix.kind, fix.set) for fix in result.other_fixes]
    assert all(fix.clean_runs for fix in result.other_fixes)  # only what was tried is offered
    assert not any(fix.verified for fix in result.other_fixes)


def test_a_full_matrix_runs_every_cell_and_finds_the_same():
    axes = {"bs": [8, 16], "mining": ["off", "sync"], "threads": [1, 2]}
    bad = {"bs": 16, "mining": "sync", "threads": 2}
    spec = make_spec(axes, bad, search={"strategy": "full", "max_runs": 60})
    search = play(Search(spec), crashing(lambda c: c["mining"] == "sync"))
    assert {tuple(cell.values()) for cell in cells_run(search)} == {tuple(cell.values()) for cell in spec.cells()}
    assert search.result().culprit == {"mining": ["sync"]} and search.notices == []


def test_a_full_matrix_that_is_larger_than_the_budget_says_so():
    search = Search(make_spec(search={"strategy": "full", "max_runs": 40}))
    assert search.notices == ["strategy full: the matrix has 360 cells and max_runs allows 40 runs; the rest is never tested"]
    assert play(search, crashing(lambda c: c["mining"] == "sync")).result().runs == 40


# ---------------------------------------------------------------- nothing survives alone
def test_two_independent_causes_are_found_as_an_interaction_whose_parts_are_both_needed():
    result = play(Search(make_spec()), crashing(lambda c: c["mining"] == "sync" or c["threads"] == 2)).result()
    assert result.culprit == {}
    assert [interaction.axes for interaction in result.interactions] == [["threads", "mining"]]
    assert set(result.fix.set) == {"threads", "mining"} and result.fix.set["threads"] == 1 and result.fix.verified


def test_a_second_cause_behind_the_first_is_found_although_it_dies_in_another_way():
    def program(trial, rng):
        if trial.cell["mining"] == "sync":
            return died("SIGABRT")
        return died("SIGSEGV") if trial.cell["threads"] == 2 else survived()

    result = play(Search(make_spec()), program).result()
    assert result.main_signature == "SIGABRT" and set(result.other_signatures) == {"SIGSEGV"}
    assert result.fix.set == {"threads": 1, "mining": "off"} or result.fix.set == {"threads": 1, "mining": "thread"}


def test_a_program_that_always_dies_gets_no_fix_and_no_culprit():
    result = play(Search(make_spec()), crashing(lambda c: True)).result()
    assert (result.culprit, result.fix, result.other_fixes, result.interactions) == ({}, None, [], [])
    assert result.status == "inconclusive" and not result.confirmed
    assert result.reasons == ["no contrast: nothing that may be a fix survives"]


def test_a_culprit_that_does_not_suffice_is_not_confirmed_and_the_interaction_is_named():
    # bs alone and steps alone still die at half their value, both halves together do not: a product, as of memory
    axes = {"bs": [16, 32, 64, 128], "steps": [50, 100, 200], "threads": [1, 2]}
    spec = make_spec(axes, {"bs": 128, "steps": 200, "threads": 2})
    result = play(Search(spec), crashing(lambda c: c["bs"] * c["steps"] > 6400)).result()
    assert result.culprit == {"bs": [64, 128], "steps": [100, 200]}
    assert not result.confirmed and result.status == "suspected" and result.fix.verified
    assert result.reasons[0] == "the culprit is not sufficient: a cell inside it survives (bs and steps interact)"
    assert result.reasons[1:] in ([], ["the answers fit no set of conditions that was considered"])
    text = "It survives with bs=64 and steps=100, but not when any one of these is taken back."
    assert result.interactions == [Interaction(axes=["bs", "steps"], text=text)]


def test_a_cell_that_is_known_to_be_good_is_used_to_find_what_is_needed():
    good = {"mining": "off", "threads": 1, "shuffle": "sequential"}
    search = play(Search(make_spec(known_good=good)), crashing(lambda c: c["mining"] == "sync" or c["threads"] == 2))
    assert {**BAD, **good} in cells_run(search)
    assert search.result().fix.set in ({"threads": 1, "mining": "off"}, {"threads": 1, "mining": "thread"})


# ---------------------------------------------------------------- not reproduced
def test_a_program_that_never_dies_is_healthy_with_a_bound_and_nobody_is_blamed():
    search = play(Search(make_spec(search={"max_runs": 35})), crashing(lambda c: False))
    result = search.result()
    assert result.status == "healthy" and not result.reproduced and result.runs == 14
    assert (result.culprit, result.fix, result.other_fixes, result.probability) == ({}, None, [], 0.0)
    assert result.crash_rate.low == 0.0 and result.crash_rate.high == pytest.approx(1 - 0.05 ** (1 / 14))
    assert result.text == (
        "Not reproduced in 14 runs and 560 steps: the crash rate is below 0.19 per run (0.0053 per step) with 95 % confidence."
    )
    assert result.never_tested == ["every cell but the known-bad one, because that one has not died"]


def test_a_death_that_people_saw_and_that_does_not_come_back_is_not_reproduced_rather_than_healthy():
    spec = make_spec(observed=[{"cell": {}, "died": True, "step": 117}])
    assert play(Search(spec), crashing(lambda c: False)).result().status == "not_reproduced"


def test_a_budget_too_small_to_call_it_healthy_ends_as_not_reproduced():
    result = play(Search(make_spec(search={"max_runs": 4})), crashing(lambda c: False)).result()
    assert result.status == "not_reproduced" and result.runs == 4
    assert "below 0.53 per run" in result.text
    assert result.reasons == ["the crash was not reproduced", "the search was ended: max_runs (4) are used up"]


def test_runs_that_are_all_cut_short_end_the_search_without_a_verdict():
    result = play(Search(make_spec()), lambda trial, rng: Outcome(kind="censored", seconds=60.0, reason="our limit")).result()
    assert result.status == "inconclusive" and result.runs == 6
    assert result.text == "The known-bad cell has given no answer in 6 runs."


# ---------------------------------------------------------------- what is no evidence
def test_censored_runs_and_other_deaths_count_neither_as_survival_nor_as_the_main_death():
    def program(trial, rng):
        if trial.cell["bs"] == 128:
            return died("SIGKILL:memory")
        if trial.cell["shuffle"] == "sequential":
            return Outcome(kind="censored", reason="pre-empted")
        return died() if trial.cell["mining"] == "sync" else survived()

    result = play(Search(make_spec()), program).result()
    assert result.culprit == {"mining": ["sync"]}
    assert set(result.other_signatures) == {"SIGKILL:memory"}
    assert not any(fix.set.get("bs") == 128 or fix.set.get("shuffle") for fix in [result.fix, *result.other_fixes])


def test_what_was_never_run_alone_and_what_gave_no_answer_is_said():
    def program(trial, rng):
        if trial.cell["bs"] == 128:
            return died("SIGKILL:memory")
        return died() if trial.cell["mining"] == "sync" else survived()

    result = play(Search(make_spec(search={"strategy": "one_at_a_time", "max_runs": 200})), program).result()
    assert result.never_tested == ["bs=128: no answer in 3 runs (3 died of something else, 0 were cut short), inferred from the other runs"]
    adaptive = play(Search(make_spec()), program).result()
    assert any(text.startswith("not run alone, inferred from the other runs: ") for text in adaptive.never_tested)


def test_one_unrelated_crash_in_ten_does_not_change_the_answer():
    right = 0
    for seed in range(12):

        def program(trial, rng):
            if rng.random() < 0.1:
                return died("SIGSEGV")
            return died() if trial.cell["threads"] == 2 else survived()

        right += play(Search(make_spec(), seed=seed), program, seed=seed).result().culprit == {"threads": [2]}
    assert right >= 11


def test_probed_runs_are_kept_in_the_log_but_say_nothing_about_their_cell():
    search = Search(make_spec())
    probe = Trial(id=search.new_id(), cell=BAD, probes={"one_core": "0"})
    search.tell(probe, survived())
    assert search.log == [(probe, survived())]
    assert search.result().runs == 0 and search.result().crash_rate is None
    assert search.ask().id == probe.id + 1


# ---------------------------------------------------------------- what cannot or must not run
def test_excluded_and_unavailable_values_are_never_run_and_are_reported():
    axes = {**AXES, "device": ["cpu", "mps"]}
    spec = make_spec(axes, {**BAD, "device": "cpu"}, exclude=[{"mining": "thread", "workers": 2}])
    if spec.unavailable("device", "mps") is None:
        pytest.skip("this machine has MPS")
    search = play(Search(spec), crashing(lambda c: c["threads"] == 2))
    assert all(cell["device"] == "cpu" and spec.allowed(cell) for cell in cells_run(search))
    never = search.result().never_tested
    assert never[0] == "mining=thread: the specification excludes it alone"
    assert never[1].startswith("device=mps: cannot run here: ")
    assert search.result().confirmed


def test_a_value_that_turns_out_to_be_unavailable_is_asked_once():
    def program(trial, rng):
        if trial.cell["mining"] == "thread":
            return Outcome(kind="unavailable", reason="no thread support")
        return died() if trial.cell["mining"] == "sync" else survived()

    search = play(Search(make_spec()), program)
    assert sum(cell["mining"] == "thread" for cell in cells_run(search)) <= 3  # with several new values at once, any may be to blame
    assert not any(fix.set.get("mining") == "thread" for fix in [search.result().fix, *search.result().other_fixes])
    assert search.result().culprit == {"mining": ["sync"]}


@pytest.mark.parametrize("answered", [1, 3, 5])
def test_a_machine_on_which_nothing_starts_any_more_ends_the_search(answered):
    def program(trial, rng):
        if trial.id > answered:
            return Outcome(kind="unavailable", reason="no such device")
        return died() if trial.cell["mining"] == "sync" else survived()

    search = play(Search(make_spec()), program, most=100)
    assert search.done and search.result().runs == answered and not search.result().confirmed


def test_a_known_bad_cell_that_cannot_run_here_ends_the_search_before_it_starts():
    spec = make_spec({"device": ["mps", "cpu"], "bs": [1, 2]}, {"device": "mps", "bs": 1})
    if spec.unavailable("device", "mps") is None:
        pytest.skip("this machine has MPS")
    search = Search(spec)
    assert search.ask() is None and search.done
    assert search.result().status == "inconclusive"
    assert "known-bad cell cannot run here" in search.result().explain()


OMP = {"choices": {"plain": {}, "duplicate_ok": {"env": {"KMP_DUPLICATE_LIB_OK": "TRUE"}, "hides": True}}}


def test_a_value_that_hides_the_fault_is_offered_as_hiding_and_never_as_the_fix():
    axes, bad = {"omp": OMP, **AXES}, {"omp": "plain", **BAD}
    search = play(Search(make_spec(axes, bad)), crashing(lambda c: c["omp"] == "plain" and c["mining"] == "sync"))
    result = search.result()
    assert result.culprit == {"omp": ["plain"], "mining": ["sync"]}
    assert result.fix.set == {"mining": "off"} and result.confirmed
    hiding = [fix for fix in result.other_fixes if fix.kind == "hides"]
    assert [fix.set for fix in hiding] == [{"omp": "duplicate_ok"}] and "hides the fault" in hiding[0].why


def test_when_only_the_hiding_value_survives_there_is_no_fix():
    axes, bad = {"omp": OMP, **AXES}, {"omp": "plain", **BAD}
    result = play(Search(make_spec(axes, bad)), crashing(lambda c: c["omp"] == "plain")).result()
    assert result.culprit == {"omp": ["plain"]} and result.fix is None and not result.confirmed
    assert [(fix.kind, fix.set) for fix in result.other_fixes] == [("hides", {"omp": "duplicate_ok"})]


def test_a_vetoed_survivor_is_passed_over_and_a_preferred_one_is_chosen():
    search = Search(make_spec())
    search.veto("mining", "off", "it only skips the crashing code")
    search.prefer_fix("threads", 1)
    play(search, crashing(lambda c: c["mining"] == "sync" and c["threads"] == 2 and c["bs"] > 8))
    result = search.result()
    assert result.fix.set == {"threads": 1} and result.confirmed
    assert [(fix.kind, fix.set) for fix in result.other_fixes] == [
        ("avoids", {"bs": 8}),
        ("avoids", {"mining": "thread"}),
        ("hides", {"mining": "off"}),
    ]
    assert result.other_fixes[-1].why == "it only skips the crashing code"


def test_a_veto_of_something_that_is_no_change_is_refused_with_what_is_allowed():
    with pytest.raises(ValueError, match=r"bs=64 is no change of the known-bad cell; allowed: bs=8, .*workers=0"):
        Search(make_spec()).veto("bs", 64, "why not")


# ---------------------------------------------------------------- verification
def test_a_fix_that_dies_in_verification_is_dropped_and_the_next_one_is_tried():
    runs = {"threads=1": 0}

    def program(trial, rng):
        bad = trial.cell["mining"] == "sync"
        if bad and trial.cell["threads"] == 1:
            runs["threads=1"] += 1
            return survived() if runs["threads=1"] <= 1 else died()
        return died() if bad else survived()

    result = play(Search(make_spec()), program).result()
    assert runs["threads=1"] > 1
    assert result.culprit == {"mining": ["sync"]} and result.fix.set == {"mining": "off"} and result.fix.verified


def test_a_fix_whose_fresh_runs_end_in_another_way_is_no_fix():
    def program(trial, rng):
        if trial.cell["threads"] == 1 and trial.purpose == "verify":
            return died("SIGSEGV")
        return died() if trial.cell["mining"] == "sync" and trial.cell["threads"] == 2 else survived()

    result = play(Search(make_spec()), program).result()
    assert result.fix.set == {"mining": "off"} and result.fix.verified
    assert {"threads": 1} not in [fix.set for fix in result.other_fixes]


@pytest.mark.parametrize("strategy", ["adaptive", "one_at_a_time"])
def test_a_crash_that_stays_away_in_fresh_runs_is_not_confirmed(strategy):
    def program(trial, rng):
        gone = trial.purpose == "verify"  # as if somebody had repaired the machine meanwhile
        return died() if trial.cell["mining"] == "sync" and not gone else survived()

    result = play(Search(make_spec(search={"strategy": strategy, "max_runs": 80})), program).result()
    reasons = ("no fresh run of the known-bad cell", "no contrast")
    assert not result.confirmed and any(reason.startswith(reasons) for reason in result.reasons)


def test_verification_uses_runs_that_were_not_used_to_find_and_every_run_goes_to_its_natural_end():
    search = play(Search(make_spec()), crashing(lambda c: c["bs"] > 16))
    fix = search.result().fix
    fresh = [t for t, o in search.log if t.purpose == "verify" and t.cell == fix.cell and o.kind == "survived"]
    assert len(fresh) == fix.clean_runs
    assert all(trial.max_steps is None for trial, _ in search.log if trial.purpose != "find")
    inside = [t.cell for t, _ in search.log if t.purpose == "verify" and t.cell not in (fix.cell, BAD)]
    ways_out = [cell for cell in inside if cell["bs"] <= 16]
    assert len(inside) - len(ways_out) >= 2


# ---------------------------------------------------------------- flaky crashes
def some_values(rng: random.Random, axis: str) -> set:
    """Values of an axis that die: of an ordered one all on one side, else any."""
    values, place = AXES[axis], AXES[axis].index(BAD[axis])
    if axis in ("bs", "accum", "threads", "workers"):
        return set(rng.choice([values[low:] for low in range(1, place + 1)] + [values[:high] for high in range(place + 1, len(values))]))
    return {BAD[axis], *rng.sample(values, len(values) - 2)}


def right_of(rate: float, seeds: int) -> tuple[int, int]:
    """How often the culprit is exactly right, and how often a confirmed answer is wrong, over programs of random truth."""
    right = wrong = 0
    for seed in range(seeds):
        rng = random.Random(seed)
        axes = rng.sample(list(AXES), rng.choice([1, 1, 2]))
        dying = {axis: some_values(rng, axis) for axis in axes}
        truth = {axis: [value for value in AXES[axis] if value in values] for axis, values in dying.items()}
        program = crashing(lambda cell, dying=dying: all(cell[axis] in values for axis, values in dying.items()), rate)
        result = play(Search(make_spec(), seed=seed), program, seed=seed).result()
        same = result.culprit == {axis: truth[axis] for axis in AXES if axis in truth and len(truth[axis]) < len(AXES[axis])}
        right += same
        wrong += result.confirmed and not same
    return right, wrong


def test_a_crash_that_comes_every_second_time_is_pinned_down_in_nine_of_ten_programs():
    right, wrong = right_of(0.5, seeds=30)
    assert right >= 27 and wrong <= 2


@pytest.mark.nightly
def test_a_crash_that_comes_every_second_time_is_pinned_down_in_nine_of_ten_of_many_programs():
    right, wrong = right_of(0.5, seeds=400)
    assert right >= 360 and wrong <= 20


def test_hazard_per_step_is_handled_as_a_rate_per_run():
    def program(trial, rng):
        if trial.cell["threads"] == 2:
            step = next((s for s in range(40) if rng.random() < 0.05), None)  # 87 % of runs die
            return died(steps=step) if step is not None else survived()
        return survived()

    right = sum(play(Search(make_spec(), seed=s), program, seed=s).result().culprit == {"threads": [2]} for s in range(12))
    assert right >= 11


def test_repeats_that_the_user_asked_for_are_kept_to():
    spec = make_spec(search={"strategy": "one_at_a_time", "repeats": 5, "max_runs": 200})
    search = play(Search(spec), crashing(lambda c: c["threads"] == 2))
    found = [t.cell for t, _ in search.log if t.purpose == "find"]
    assert found.count({**BAD, "threads": 1}) == 5 and found.count({**BAD, "bs": 8}) == 1  # a death needs no repeat


# ---------------------------------------------------------------- for people
def test_every_trial_says_in_one_sentence_why_it_is_run():
    search = play(Search(make_spec()), crashing(lambda c: c["mining"] == "sync" or c["threads"] == 2, 0.7))
    whys = [trial.why for trial, _ in search.log]
    assert all(why and why[0].isupper() and why[-1] in ".?" and "\n" not in why for why in whys)


def test_the_explanation_says_what_it_dies_with_and_what_survives():
    result = play(Search(make_spec()), crashing(lambda c: c["bs"] > 16)).result()
    assert result.explain().splitlines()[:2] == [
        f"The known-bad cell died in 1 of 1 run (SIGABRT). It dies with bs=32 or 64 or 128 (probability {result.probability:.3f}).",
        "Way out: bs=16 (verified in 1 clean run, fails in fewer than 95% of runs with 95 % confidence).",
    ]


def test_the_live_line_tells_what_has_been_learnt_so_far():
    search, lines = Search(make_spec()), list[str]()
    rng = random.Random(0)
    lines.append(search.leading())
    while (trial := search.ask()) is not None:
        search.tell(trial, crashing(lambda c: c["bs"] > 16)(trial, rng))
        lines.append(search.leading())
    assert lines[0] == "Nothing has been run yet."
    assert lines[1].startswith("Leading: ") and ", or " in lines[1]
    assert lines[-1].endswith(" bs=16 has 1 of 1 fresh clean runs.")


def test_the_plan_gets_an_estimate_of_the_runs():
    spec = make_spec(search={"max_runs": 200})
    sure, flaky = Search(spec).expected_runs(), Search(spec).expected_runs(crash_rate=0.5)
    assert abs(sure - play(Search(spec), crashing(lambda c: c["bs"] == 64)).result().runs) <= 4
    assert sure < flaky <= 200
    assert Search(make_spec(search={"max_runs": 7})).expected_runs() == 7


def test_axes_that_take_no_part_are_named_with_how_often_it_died_with_other_values() -> None:
    search = play(Search(make_spec()), crashing(lambda cell: cell["threads"] == 2 and cell["mining"] == "sync"))
    found = {each.axis: each for each in search.result().innocent}
    assert found and not set(found) & {"threads", "mining"}
    assert all(each.deaths >= 1 and each.probability >= 0.95 for each in found.values())
    trials = [trial for trial, outcome in search.log if outcome.kind == "died"]
    assert all(each.deaths == sum(trial.cell[axis] != BAD[axis] for trial in trials) for axis, each in found.items())


def test_before_an_axis_was_changed_it_is_not_called_innocent() -> None:
    search = Search(make_spec())
    trial = search.ask()
    assert trial is not None
    search.tell(trial, died())
    assert search.result().innocent == ()
