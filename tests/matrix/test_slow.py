"""A run that our own wall limit cut off is too slow only once another cell has shown what its steps can take."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import pytest

from matrix.diagnosis import judge, slow, stalls
from matrix.diagnosis.case import Case
from matrix.diagnosis.verdict import build
from matrix.evidence.progress import ProgressParser
from matrix.executors.local import LocalPool
from matrix.planner import Planner
from matrix.records import Exit, Load, Observation, Outcome, ProcessSeen, Progress, Trial, Verdict
from matrix.search import Search
from matrix.spec import Spec
from tests.matrix.test_planner import Silent

BAD = {"bs": 64, "mode": "a"}
GOOD = {"bs": 8, "mode": "a"}
MATRIX = {"bs": [8, 64], "mode": ["a", "b"]}
SPEC = Spec.model_validate({"name": "made", "run": {"command": ["job"]}, "matrix": MATRIX, "known_bad": BAD, "limits": {"wall": "30s"}})
BUSY = [ProcessSeen(pid=1, ppid=0, role="main", name="job", state="R", cpu_delta_s=1.0, window_s=1.0)]
ASLEEP = [dataclasses.replace(BUSY[0], state="S", wchan="hrtimer_nanosleep", cpu_delta_s=0.0)]


def cut(cell: Any = BAD, *, number: int = 1, steps: int = 40, **facts: Any) -> Observation:
    """Ended by limits.wall while it made steps."""
    base: dict[str, Any] = {
        "attempt": f"{number:04d}-0",
        "key": "k",
        "trial": Trial(id=number, cell=cell),
        "exit": Exit(returncode=-9, signal="SIGKILL", ended_by="wall"),
        "wall_s": 30.0,
        "started_unix_s": 0.0,
        "progress": Progress(last_step=steps, first_step_s=1.0, last_step_s=29.0),
        "processes": BUSY,
    }
    return Observation(**{**base, **facts})


def done(cell: Any = GOOD, *, number: int = 2, steps: int = 100, wall_s: float = 6.0, **facts: Any) -> Observation:
    """Came to its own end."""
    progress = Progress(last_step=steps, first_step_s=0.5, last_step_s=wall_s - 0.1)
    same = cut(cell, number=number)
    return dataclasses.replace(same, **{"exit": Exit(returncode=0), "wall_s": wall_s, "progress": progress, "processes": [], **facts})


def judged(*runs: Observation) -> dict[str, str]:
    """The kinds of outcome, by attempt."""
    kinds = {"wall": "censored", "itself": "survived"}
    outcomes = {run.attempt: Outcome(kind=kinds[run.exit.ended_by], steps=run.progress.last_step) for run in runs}  # type: ignore[arg-type]
    return {name: outcome.kind for name, outcome in {**outcomes, **slow.proven(list(runs), outcomes, BAD)}.items()}


# ------------------------------------------------------------------ what a contrast is
def test_a_run_that_was_cut_off_is_too_slow_once_another_cell_has_done_more_in_a_third_of_the_time() -> None:
    assert judged(cut(), done()) == {"0001-0": "died", "0002-0": "survived"}
    assert judged(done(), cut()) == {"0001-0": "died", "0002-0": "survived"}  # in whatever order


@pytest.mark.parametrize(
    "runs",
    [
        [cut()],
        [cut(), cut(GOOD, number=2, steps=4000)],
        [cut(), done(wall_s=12.0)],
        [cut(), done(steps=30)],
        [cut(steps=90), done()],
        [cut(), done(BAD)],
        [cut(), done(trial=Trial(id=2, cell=GOOD, probes={"one_thread": ""}))],
        [cut(starved_s=20.0), done()],
        [cut(progress=Progress(last_step=40, first_step_s=1.0, last_step_s=5.0)), done()],
        [cut(progress=Progress()), done()],
        [cut(progress=Progress(last_step=40, first_step_s=27.0, last_step_s=29.0)), done()],
        [cut(trial=Trial(id=1, cell=BAD, max_steps=1600)), done()],
    ],
    ids=[
        "alone",
        "nothing finishes",
        "the limit is short",
        "it did less",
        "it was nearly done",
        "the same cell",
        "an intervention made it quick",
        "others had the processor",
        "it may hang",
        "no steps",
        "only the start is slow",
        "it was asked to be longer",
    ],
)
def test_without_a_contrast_it_stays_censored(runs: list[Observation]) -> None:
    assert judged(*runs)["0001-0"] == "censored"


def test_other_cells_are_too_slow_only_where_the_known_bad_one_is() -> None:
    """Another failure is looked for otherwise, and its search must not change: a run that was cut off has stood it for so long."""
    other = cut({"bs": 64, "mode": "b"}, number=3)
    assert judged(done(), other)["0003-0"] == "censored"
    assert judged(done(), other, cut())["0003-0"] == "died"
    assert judged(cut(), done(), other)["0003-0"] == "died"


@pytest.mark.parametrize(
    "run",
    [cut(trial=Trial(id=1, cell=BAD, probes={"valgrind": ""})), cut(trial=Trial(id=1, cell=BAD, purpose="control", watched=False))],
    ids=["an intervention made it slow", "nobody watched it"],
)
def test_only_the_known_bad_cell_as_it_is_shows_that_being_slow_is_the_failure(run: Observation) -> None:
    """Else it would count as a death of another kind, which a probe of the heap takes for an answer."""
    other = cut({"bs": 64, "mode": "b"}, number=3)
    assert judged(run, done(), other) == {"0001-0": "censored", "0002-0": "survived", "0003-0": "censored"}
    known = cut(number=4)
    assert judged(run, done(), other, known)["0001-0"] == "died"


def test_steps_that_become_ever_slower_are_seen_and_even_ones_are_not() -> None:
    for when, least, most in ((lambda n: n * n / 100, 2.0, 3.0), (lambda n: n / 10, 0.9, 1.1)):
        parser = ProgressParser()
        for step in range(100):
            parser.feed("stdout", f"step {step}\n".encode(), when(step))
        times = slow.slower(cut(progress=parser.record()))
        assert times is not None and least <= times <= most


# ------------------------------------------------------------------ the search
def test_the_search_asks_what_the_same_takes_elsewhere_and_goes_on_once_it_is_told_what_it_means() -> None:
    search = Search(SPEC, seed=1)
    first = search.ask()
    assert first is not None and first.cell == BAD
    search.tell(first, Outcome(kind="censored", steps=40, seconds=30.0))
    other = search.ask()
    assert other is not None and other.cell == {"bs": 8, "mode": "b"}
    search.tell(other, Outcome(kind="survived", steps=100, seconds=6.0))
    assert not search.result().reproduced
    search.revise(first, Outcome(kind="died", steps=40, seconds=30.0, signature=slow.SIGNATURE))
    assert (search.result().reproduced, search.result().main_signature) == (True, slow.SIGNATURE)
    again = Search.replay(SPEC, 1, search.log)
    assert again.result() == search.result() and again.ask() == search.ask()


def test_where_every_cell_is_cut_off_the_search_ends_without_a_claim() -> None:
    search, cells = Search(SPEC, seed=0), list[Any]()
    while (trial := search.ask()) is not None:
        cells.append(trial.cell)
        search.tell(trial, Outcome(kind="censored", steps=40, seconds=30.0))
    result = search.result()
    assert (result.status, result.reproduced, result.fix, result.culprit) == ("inconclusive", False, None, {})
    assert BAD in cells and {"bs": 8, "mode": "b"} in cells and len(cells) <= 6


def test_only_an_answered_trial_can_be_revised() -> None:
    with pytest.raises(ValueError, match="no answer yet"):
        Search(SPEC).revise(Trial(id=7, cell=BAD), Outcome(kind="survived"))


# ------------------------------------------------------------------ the verdict
def verdict(slow_facts: dict[str, Any], quick_facts: dict[str, Any] | None = None, late: Any = None) -> Verdict:
    """Of a whole search in which every run with bs=64 is cut off, and those that agree with `late` take 20 s."""
    search, seen, outcomes = Search(SPEC), list[Observation](), dict[str, Outcome]()
    while (trial := search.ask()) is not None:
        bad = trial.cell["bs"] == 64
        wall_s = 20.0 if late and late.items() <= trial.cell.items() else 6.0
        quick = {"wall_s": wall_s, **(quick_facts or {})}
        run = cut(trial.cell, number=trial.id, **slow_facts) if bad else done(trial.cell, number=trial.id, **quick)
        seen.append(dataclasses.replace(run, trial=trial))
        outcomes[run.attempt] = Outcome(kind="censored" if bad else "survived", steps=run.progress.last_step, seconds=run.wall_s)
        search.tell(trial, outcomes[run.attempt])
        for name, outcome in slow.proven(seen, outcomes, BAD).items():
            outcomes[name] = outcome
            search.revise(next(each.trial for each in seen if each.attempt == name), outcome)
    result = search.result()
    case = Case(known_bad=BAD, observations=seen, outcomes=outcomes, environments={}, result=result, signature=result.main_signature)
    return build(case, name="made", complete=True, wall_s=1.0)


EVER_SLOWER = {"progress": Progress(last_step=40, first_step_s=1.0, last_step_s=29.0, halves=(29, 11))}
CROWDED = {"load": Load(cpus=2, runnable_mean=40.0, runnable_most=48, looks=50)}


def test_slow_runs_with_a_mechanism_are_a_stall_with_culprit_and_fix() -> None:
    found = verdict(CROWDED)
    assert (found.status, found.ranking[0].cause, found.ranking[0].grade) == ("diagnosed", "cpu_bound_stall", "confirmed")
    assert found.ranking[0].culprit == {"bs": [64]}
    assert any("100 steps were made in 6.0 s, each 13 times as quickly" in each.fact for each in found.ranking[0].supports)
    assert found.fix is not None and found.fix.set == {"bs": 8} and found.fix.verified


def test_steps_that_become_ever_slower_may_have_more_to_do_by_design_so_they_confirm_no_stall() -> None:
    found = verdict(EVER_SLOWER)
    assert (found.ranking[0].cause, found.ranking[0].grade) == ("cpu_bound_stall", "supported")
    assert found.fix is not None and found.fix.set == {"bs": 8} and found.fix.verified


@pytest.mark.parametrize("seen", ["quick runs do so too", "one long gap"])
def test_halves_that_differ_for_another_reason_are_no_stall(seen: str) -> None:
    slower = {"progress": Progress(last_step=100, first_step_s=0.5, last_step_s=5.9, halves=(75, 25))}
    gap = {"progress": dataclasses.replace(EVER_SLOWER["progress"], longest_gap_s=12.0)}  # of an evaluation
    found = verdict(EVER_SLOWER, slower) if seen == "quick runs do so too" else verdict(gap)
    assert found.ranking[0].grade == "suspected"


def test_steps_that_become_ever_slower_in_a_run_of_the_same_cell_that_completed_are_no_stall() -> None:
    whole = done(BAD, number=3, wall_s=28.0, progress=Progress(last_step=100, first_step_s=0.5, last_step_s=27.9, halves=(75, 25)))
    runs = [cut(BAD, number=1, **EVER_SLOWER), done({**BAD, "bs": 8}, number=2, wall_s=6.0)]

    def nats(*observations: Observation) -> float:
        outcomes = {run.attempt: judge.outcome(run) for run in observations} | {"0001-0": Outcome(kind="died", signature=slow.SIGNATURE)}
        result = Search(SPEC).result()
        case = Case(known_bad=BAD, observations=observations, outcomes=outcomes, environments={}, result=result, signature=slow.SIGNATURE)
        return sum(found.weight for found in stalls.findings(case) if found.cause == stalls.STALL)

    assert nats(*runs, whole) < nats(*runs)


def test_quick_runs_whose_output_was_read_at_once_do_not_tell_that_they_slow_down() -> None:
    at_once = {"progress": Progress(last_step=100, first_step_s=0.5, last_step_s=0.51, halves=(99, 1))}
    assert verdict(EVER_SLOWER, at_once).ranking[0].grade == "supported"


@pytest.mark.parametrize(("quick", "grade"), [(100, "confirmed"), (20_000, "suspected")])
def test_a_processor_that_is_given_away_explains_nothing_where_quick_runs_do_so_too(quick: int, grade: str) -> None:
    switches = {"involuntary_switches": 200_000, "voluntary_switches": 400}
    ended = Exit(returncode=-9, signal="SIGKILL", ended_by="wall", cpu_s=20.0, **switches)
    found = verdict({"exit": ended}, {"exit": Exit(returncode=0, cpu_s=4.0, involuntary_switches=quick)})
    assert found.ranking[0].grade == grade


@pytest.mark.parametrize("waited", [100_000, 400_000, None])
def test_who_is_interrupted_by_those_that_it_wakes_and_waits_for_does_not_spin(waited: int | None) -> None:
    """Measured: a loop that sends messages to workers through pipes has 24,000 and 11,000 of these in a second, one that yields 32,000
    and 65."""
    ended = Exit(returncode=-9, signal="SIGKILL", ended_by="wall", cpu_s=20.0, involuntary_switches=200_000, voluntary_switches=waited)
    assert verdict({"exit": ended}, {"exit": Exit(returncode=0, cpu_s=4.0, involuntary_switches=100)}).ranking[0].grade == "suspected"


def test_a_step_in_proportion_to_its_work_is_too_slow_but_no_stall() -> None:
    """100 steps of bs=8 take 5.4 s, and 72 of bs=64 take 29 s: a step takes 7.5 times as long with 8 times as much."""
    found = verdict({"progress": Progress(last_step=72, first_step_s=1.0, last_step_s=29.0, halves=(36, 36))})
    assert (found.status, found.ranking[0].cause) == ("inconclusive", "unknown")
    assert found.fix is not None and found.fix.set == {"bs": 8}


def test_a_step_far_beyond_proportion_speaks_for_a_stall_and_confirms_none() -> None:
    """20 steps of bs=64 take 29 s: 27 times as long with 8 times as much, as where each is compared with all."""
    even = {"progress": Progress(last_step=20, first_step_s=1.0, last_step_s=29.0, halves=(10, 10))}
    first = verdict(even).ranking[0]
    assert (first.cause, first.grade) == ("cpu_bound_stall", "supported")
    assert any("far more than in proportion" in each.fact for each in first.supports)


@pytest.mark.parametrize("steps", [8, 20, 72])
def test_a_step_is_as_long_in_time_that_it_had_a_processor_whether_it_was_cut_off_or_not(steps: int) -> None:
    """Without that, on a crowded machine, what is far beyond proportion looked as if it were in proportion."""
    free, crowded = cut(steps=steps), cut(steps=steps, wall_s=90.0, starved_s=60.0)
    quick, crowded_quick = done(wall_s=6.0), done(wall_s=18.0, starved_s=12.0)
    for alone, beside in ((free, crowded), (quick, crowded_quick)):
        mine, theirs = slow.step_s(alone), slow.step_s(beside)
        assert mine is not None and theirs == pytest.approx(mine, rel=0.1)


def test_a_slow_program_that_sleeps_is_no_stall_of_the_processor() -> None:
    assert verdict({"processes": ASLEEP}).ranking[0].cause == "unknown"


def test_crowding_that_quick_runs_have_too_explains_nothing() -> None:
    assert verdict(CROWDED, CROWDED).ranking[0].grade != "confirmed"


def test_a_limit_that_is_too_short_is_told_and_nobody_is_accused() -> None:
    found = verdict({}, {"wall_s": 12.0, "progress": Progress(last_step=100, first_step_s=0.5, last_step_s=12.0)})
    assert (found.status, found.ranking[0].cause, found.fix) == ("inconclusive", "unknown", None)
    assert "Raise limits.wall" in found.status_text and "needed 12 s" in found.status_text


def test_a_way_out_that_needs_most_of_the_limit_is_told_to_be_at_the_edge() -> None:
    """Whatever is quick shows that the limit is no short one; of the changes that survive the known one here is not quick."""
    found = verdict(EVER_SLOWER, late={"mode": "a"})
    assert found.fix is not None and "at the edge: it took 20 of the 30 s" in found.fix.advice


# ------------------------------------------------------------------ real processes
SLEEPS = 'n=0; while [ $n -lt 60 ]; do echo "step $n"; n=$((n+1)); case "$*" in *"--mode a"*) sleep 0.3;; esac; done'


def real(program: str) -> Spec:
    text: dict[str, Any] = {
        "name": "slow",
        "run": {"command": ["sh", "-c", program, "job"]},
        "matrix": {"bs": [4, 8], "mode": ["a", "b"]},
        "limits": {"wall": "6s"},
        "search": {"max_runs": 12},
        "evidence": {"control": False},
    }
    return Spec.model_validate(text)


@pytest.mark.slow
def test_a_real_program_that_is_cut_off_in_one_mode_is_told_with_its_culprit_and_resuming_judges_alike(tmp_path: Path) -> None:
    with LocalPool(1) as pool:
        planner = Planner(real(SLEEPS), tmp_path, pool, Silent())
        found = planner.run(threading.Event())
        again = Planner(real(SLEEPS), tmp_path, pool, Silent())
    assert (found.failures[0].signature, found.ranking[0].culprit) == (slow.SIGNATURE, {"mode": ["a"]})
    assert found.fix is not None and found.fix.set == {"mode": "b"} and found.fix.verified
    assert again.outcomes == planner.outcomes
    assert again.search.result() == planner.search.result()


@pytest.mark.slow
def test_a_real_program_that_is_slow_everywhere_is_not_accused(tmp_path: Path) -> None:
    with LocalPool(1) as pool:
        found = Planner(real(SLEEPS.replace("--mode a", "--mode")), tmp_path, pool, Silent()).run(threading.Event())
    assert (found.status, found.failures, found.fix) == ("inconclusive", [], None)
