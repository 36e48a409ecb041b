"""Why memory ran out: made observations for each rule, then the deaths of real programs through the whole tool."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from matrix.diagnosis import judge, memory, memory_causes, probing
from matrix.diagnosis.case import Case
from matrix.records import (
    Death,
    Exit,
    Forecast,
    Memory,
    MemoryCurve,
    Observation,
    ProcessMemory,
    ProcessSeen,
    Progress,
    SignalSent,
    Slope,
    Trial,
    Verdict,
)
from matrix.runner import cgroup
from matrix.search import Search
from tests.matrix.command_line import PATIENCE_S, matrix
from tests.matrix.test_diagnosis import GIB, SPEC, verdict

MIB = 1 << 20
LIMIT = Memory(isolation="cgroup-v1", limit_bytes=GIB, peak_group_bytes=GIB, peak_tree_rss_bytes=GIB, oom_kills=1)
MAIN = ProcessMemory(pid=7, role="main", last_s=3.0, peak_rss_bytes=100 * MIB, anon_bytes=100 * MIB, uss_bytes=100 * MIB)
FLAT = MemoryCurve(
    shape="flat",
    series="group",
    samples=300,
    warmup_s=0.5,
    start_bytes=900 * MIB,
    end_bytes=900 * MIB,
    peak_bytes=1000 * MIB,
    noise_bytes=MIB,
)
GROWING = dataclasses.replace(FLAT, shape="linear", start_bytes=200 * MIB, per_step=Slope(value=5 * MIB, low=4 * MIB, high=6 * MIB))


def killed(curve: MemoryCurve | None = None, *processes: ProcessMemory, **facts: Any) -> dict[str, Any]:
    held = dataclasses.replace(LIMIT, processes=[MAIN, *processes])
    return {"exit": Exit(returncode=-9, signal="SIGKILL"), "memory": held, "curve": curve, "progress": Progress(last_step=40), **facts}


def lived(peak: int, *processes: ProcessMemory, curve: MemoryCurve | None = None) -> dict[str, Any]:
    held = dataclasses.replace(LIMIT, oom_kills=0, peak_tree_pss_bytes=peak, processes=[MAIN, *processes])
    return {"exit": Exit(returncode=0), "memory": held, "progress": Progress(last_step=40), "curve": curve}


def test_memory_that_stands_still_at_its_limit_is_judged_as_one_that_the_kernel_killed_for_it() -> None:
    """Version 1 with memory.oom_control: the kernel lets it wait, in state D, until somebody makes room."""
    waits = ProcessSeen(pid=7, ppid=1, role="main", name="python", state="D", wchan="mem_cgroup_oom_synchronize", window_s=1.0)
    stopped = Exit(returncode=-9, signal="SIGKILL", ended_by="idle")
    facts = killed(GROWING, exit=stopped, memory=dataclasses.replace(LIMIT, oom_kills=0, processes=[MAIN]), processes=[waits])
    found = verdict({("u", 1): facts, ("v", 1): lived(300 * MIB), ("v", 2): lived(300 * MIB)})
    best = found.ranking[0]
    assert best.cause == memory_causes.RETENTION
    assert any("no OOM killer is allowed" in fact.fact for fact in best.supports)
    on_disk = {**facts, "processes": [dataclasses.replace(waits, wchan="io_schedule")]}
    other = verdict({("u", 1): on_disk, ("v", 1): lived(300 * MIB), ("v", 2): lived(300 * MIB)})
    assert other.ranking[0].cause not in memory_causes.NAMES


def workers(count: int, each: int) -> list[ProcessMemory]:
    one = ProcessMemory(pid=8, role="worker", last_s=3.0, peak_rss_bytes=each, anon_bytes=each, uss_bytes=each)
    return [dataclasses.replace(one, pid=8 + at) for at in range(count)]


def first(answers: dict[tuple[str, int], dict[str, Any]]) -> tuple[str, str]:
    found = verdict(answers)
    return found.ranking[0].cause, found.ranking[0].grade


def test_only_a_worker_that_nobody_read_may_have_held_the_memory() -> None:
    helper = ProcessMemory(pid=9, role="other", last_s=3.0, anon_bytes=MIB, uss_bytes=MIB)

    def rest(pid: int) -> str:
        gone = Death(pid=pid, role="worker", signal="SIGKILL", status=None, time_s=3.0, part="teardown")
        found = verdict({("u", 1): killed(FLAT, helper, deaths=[gone]), ("v", 1): lived(300 * MIB), ("v", 2): lived(300 * MIB)})
        entry = next((entry for entry in found.ranking if entry.cause == "memory_worker_multiplication"), None)
        return "open" if entry and entry.probability > 0.01 else "cleared"

    assert [rest(pid) for pid in (9, 10)] == ["cleared", "open"]


def test_workers_whose_deaths_alone_are_known_count_as_workers() -> None:
    """Short of time the sampler may see none of them before the kernel ends them all."""
    gone = [Death(pid=20 + at, role="worker", signal="SIGKILL", status=None, time_s=3.0, part="teardown", oom=at == 0) for at in range(4)]
    small = lived(300 * MIB)
    found = verdict({("u", 1): killed(FLAT, deaths=gone), ("v", 1): small, ("v", 2): small})
    assert any("there were 0 and 4 worker processes" in fact for fact in facts(found, "memory_worker_multiplication"))
    assert (found.ranking[0].cause, found.ranking[0].grade) != ("memory_working_set", "confirmed")


def facts(found: Verdict, cause: str) -> list[str]:
    entry = next(entry for entry in found.ranking if entry.cause == cause)
    return [fact.fact for fact in [*entry.supports, *entry.contradicts]]


def test_a_level_that_meets_the_limit_and_follows_an_axis_is_a_working_set() -> None:
    small = lived(300 * MIB)
    assert first({("u", 1): killed(FLAT), ("v", 1): small, ("v", 2): small}) == ("memory_working_set", "confirmed")


def test_growth_with_every_step_is_retention_once_another_allocator_has_made_no_difference() -> None:
    forecast = Forecast(made_s=1.5, limit_s=3.1, low_s=2.9, high_s=3.3, limit_step=41)
    small, growing = lived(300 * MIB), killed(dataclasses.replace(GROWING, forecast=forecast))
    answers = {("u", 1): growing, ("v", 1): small, ("v", 2): small}
    alone, told = verdict(answers), verdict(answers, probed={"one_arena": growing})
    assert (alone.ranking[0].cause, alone.ranking[0].grade) == ("memory_retention", "supported")
    assert (told.ranking[0].cause, told.ranking[0].grade) == ("memory_retention", "confirmed")
    assert "memory grew by 5120 KiB (95 % interval 4096 KiB to 6144 KiB) per step after the first 0.5 s" in facts(alone, "memory_retention")
    assert any("would be met after 3.1 s" in fact for fact in facts(alone, "memory_retention"))


def test_growth_while_no_step_ends_is_what_one_step_needs_and_nothing_that_steps_left_behind() -> None:
    rising = dataclasses.replace(GROWING, per_step=None, per_s=Slope(value=200 * MIB, low=190 * MIB, high=210 * MIB), warmup_s=1.0)
    small = lived(300 * MIB)

    def ranked(last_step_s: float) -> tuple[str, str]:
        death = killed(rising, progress=Progress(last_step=6, last_step_s=last_step_s), wall_s=4.0)
        return first({("u", 1): death, ("v", 1): small, ("v", 2): small})

    assert ranked(1.1) == ("memory_working_set", "confirmed")
    assert ranked(3.9)[0] == "memory_retention"


def test_where_fewer_workers_survive_a_change_of_what_each_holds_does_not_clear_the_workers() -> None:
    """Two axes of the culprit: as many workers with less each, and fewer workers."""
    four, two, lean = workers(4, 200 * MIB), workers(2, 200 * MIB), workers(4, 20 * MIB)
    dead, fewer, less = killed(None, *four), lived(500 * MIB, *two), lived(200 * MIB, *lean)
    found = verdict({("u", 1): dead, ("u", 2): fewer, ("v", 1): less, ("v", 2): less, ("w", 1): less, ("w", 2): less})
    assert found.ranking[0].culprit == {"a1": ["u"], "a2": [1]}
    assert found.ranking[0].cause == "memory_worker_multiplication"


@pytest.mark.parametrize(("curve", "told"), [(GROWING, True), (FLAT, False)])
def test_a_change_under_which_memory_still_grows_is_said_to_be_no_cure(curve: MemoryCurve, told: bool) -> None:
    bounded = dataclasses.replace(curve, limit_bytes=GIB, start_bytes=100 * MIB, end_bytes=300 * MIB)
    small = lived(300 * MIB, curve=bounded)
    found = verdict({("u", 1): killed(GROWING), ("v", 1): small, ("v", 2): small})
    assert found.fix is not None
    advice = "It is no cure: memory grows there too, by 5120 KiB per step" in found.fix.advice
    assert advice is told and ("a run of about 185 steps meets the limit" in found.fix.advice) is told


def test_as_many_workers_in_both_runs_do_not_tell_what_is_in_use_from_what_the_allocator_keeps() -> None:
    forecast = Forecast(made_s=1.5, limit_s=3.1, low_s=2.9, high_s=3.3, limit_step=41)
    pair = workers(2, 10 * MIB)
    growing, small = killed(dataclasses.replace(GROWING, forecast=forecast), *pair), lived(300 * MIB, *pair)
    found = verdict({("u", 1): growing, ("v", 1): small, ("v", 2): small})
    assert any("2 worker processes in both" in fact for fact in facts(found, "memory_retention"))
    assert (found.ranking[0].cause, found.ranking[0].grade) == ("memory_retention", "supported")


def test_growth_that_another_allocator_ends_is_the_allocators() -> None:
    small = lived(300 * MIB)
    answers = {("u", 1): killed(GROWING), ("v", 1): small, ("v", 2): small}
    level = dataclasses.replace(GROWING, shape="flat", per_step=Slope(value=0, low=-1024, high=1024))
    found = verdict(answers, probed={"one_arena": lived(300 * MIB, curve=level)})
    assert (found.ranking[0].cause, found.ranking[0].grade) == ("memory_allocator_retention", "confirmed")


@pytest.mark.parametrize(("ends", "cause"), [(True, "memory_allocator_retention"), (False, "memory_retention")])
def test_growth_in_huge_pages_is_told_by_a_run_without_them_and_by_no_other_allocator(ends: bool, cause: str) -> None:
    """Dense data lies in huge pages too, and what touches a byte here and there fills them with nothing."""
    small, level = lived(300 * MIB), dataclasses.replace(GROWING, shape="flat", per_step=Slope(value=0, low=-1024, high=1024))
    huge = dataclasses.replace(MAIN, uss_bytes=900 * MIB, huge_bytes=880 * MIB)
    death = killed(GROWING) | {"memory": dataclasses.replace(LIMIT, processes=[huge])}
    answers = {("u", 1): death, ("v", 1): small, ("v", 2): small}
    open_, without = verdict(answers, probed={"one_arena": death}), lived(300 * MIB, curve=level) if ends else death
    assert open_.ranking[0].probability < probing.CLEAR and open_.ranking[0].grade != "confirmed"
    told = verdict(answers, probed={"one_arena": death, "no_huge_pages": without})
    assert (told.ranking[0].cause, told.ranking[0].grade) == (cause, "confirmed")


@pytest.mark.parametrize(("left", "dies", "cause"), [(2, True, "memory_retention"), (2, False, "memory_allocator_retention")])
def test_growth_that_another_allocator_halves_is_the_programs_if_what_is_left_kills_too(left: int, dies: bool, cause: str) -> None:
    """Blocks in use pin freed ones beside them, so that less is lost with another allocator whoever holds the rest."""
    small = lived(300 * MIB)
    rest = dataclasses.replace(GROWING, per_step=Slope(value=left * MIB, low=left * MIB, high=left * MIB))
    probed = killed(rest) if dies else lived(300 * MIB, curve=rest)
    found = verdict({("u", 1): killed(GROWING), ("v", 1): small, ("v", 2): small}, probed={"one_arena": probed})
    assert found.ranking[0].cause == cause


def test_a_forecast_that_was_wrong_is_no_evidence() -> None:
    forecast = Forecast(made_s=1.5, limit_s=30.0, low_s=25.0, high_s=40.0)
    found = verdict({("u", 1): killed(dataclasses.replace(GROWING, forecast=forecast)), ("v", 1): lived(300 * MIB)})
    assert not any("would be met" in fact for fact in facts(found, "memory_retention"))


def test_workers_that_hold_most_and_were_fewer_in_the_survivor_are_multiplication() -> None:
    many, few = workers(8, 110 * MIB), workers(2, 110 * MIB)
    survivor = lived(320 * MIB, *few)
    found = verdict({("u", 1): killed(FLAT, *many), ("v", 1): survivor, ("v", 2): survivor})
    assert (found.ranking[0].cause, found.ranking[0].grade) == ("memory_worker_multiplication", "confirmed")
    assert "8 worker processes held 880 MiB of 980 MiB" in facts(found, "memory_worker_multiplication")
    assert any("there were 2 and 8 worker processes" in fact for fact in facts(found, "memory_worker_multiplication"))


def test_growth_that_is_in_the_workers_is_multiplication_also_when_it_goes_with_the_steps() -> None:
    survivor = lived(320 * MIB, *workers(2, 110 * MIB))
    found = verdict({("u", 1): killed(GROWING, *workers(8, 110 * MIB)), ("v", 1): survivor, ("v", 2): survivor})
    assert (found.ranking[0].cause, found.ranking[0].grade) == ("memory_worker_multiplication", "confirmed")


def programs(count: int, each: int) -> list[ProcessMemory]:
    """Helpers that the program starts by their own command lines."""
    return [dataclasses.replace(worker, role="other") for worker in workers(count, each)]


@pytest.mark.parametrize("left", [0, 1, 2])
@pytest.mark.parametrize("curve", [FLAT, GROWING])
def test_helpers_that_are_programs_of_their_own_multiply_as_workers_do(curve: MemoryCurve, left: int) -> None:
    survivor = lived(320 * MIB, *programs(left, 110 * MIB))
    found = verdict({("u", 1): killed(curve, *programs(8, 110 * MIB)), ("v", 1): survivor, ("v", 2): survivor})
    assert (found.ranking[0].cause, found.ranking[0].grade) == ("memory_worker_multiplication", "confirmed")
    assert any("held 880 MiB of 980 MiB" in fact for fact in facts(found, "memory_worker_multiplication"))
    assert any(f"there were {left} and 8 worker processes" in fact for fact in facts(found, "memory_worker_multiplication"))


@pytest.mark.parametrize(
    "helpers",
    [
        pytest.param(programs(1, 800 * MIB), id="one large helper"),
        pytest.param([*programs(1, 800 * MIB), *programs(3, 20 * MIB)[1:]], id="one large and two small ones"),
        pytest.param(
            [dataclasses.replace(one, first_s=at * 1.0, last_s=at + 0.9) for at, one in enumerate(programs(4, 110 * MIB))],
            id="one after the other",
        ),
        pytest.param(programs(4, 4 * MIB), id="several that hold little"),
    ],
)
def test_helpers_that_are_no_pool_do_not_multiply(helpers: list[ProcessMemory]) -> None:
    small = lived(300 * MIB)
    assert first({("u", 1): killed(FLAT, *helpers), ("v", 1): small, ("v", 2): small})[0] != "memory_worker_multiplication"


def test_workers_that_share_their_parents_pages_hold_nothing_of_their_own() -> None:
    shared = [dataclasses.replace(worker, uss_bytes=MIB, pss_bytes=30 * MIB) for worker in workers(8, 900 * MIB)]
    small = lived(300 * MIB)
    assert first({("u", 1): killed(FLAT, *shared), ("v", 1): small, ("v", 2): small})[0] == "memory_working_set"


def ended_at(peak: int, *, step: int, inside: bool = True, wall_s: float = 3.0, shape: Any = "linear") -> dict[str, Any]:
    """By a process beside it, with far less memory than any limit."""
    sent = SignalSent(signal="SIGKILL", to_pid=7, from_pid=9, from_name="python", inside=inside, by_tool=False, time_s=3.0)
    death = Death(pid=7, role="main", signal="SIGKILL", status=None, time_s=3.0, part="initiating")
    held = Memory(limit_bytes=4 * GIB, peak_tree_rss_bytes=peak, oom_kills=0, first_tree_rss_bytes=40 * MIB, processes=[MAIN])
    curve = dataclasses.replace(GROWING, end_bytes=peak, peak_bytes=peak, start_bytes=40 * MIB, shape=shape)
    progress = Progress(last_step=step)
    return killed(curve, progress=progress, wall_s=wall_s) | {"memory": held, "deaths": [death], "signals_sent": [sent]}


def test_a_monitor_of_the_program_that_ends_it_at_one_level_is_about_memory_and_no_time_limit() -> None:
    small = lived(100 * MIB)
    answers = {("u", 1): ended_at(300 * MIB, step=40), ("u", 2): ended_at(310 * MIB, step=20, wall_s=2.0), ("v", 1): small, ("v", 2): small}
    found = verdict(answers)
    assert found.ranking[0].cause == "memory_retention"
    assert any("between 300 MiB and 310 MiB" in fact for fact in facts(found, "memory_retention"))


def test_a_monitor_without_which_the_same_memory_does_no_harm_is_a_sender_and_no_lack_of_memory() -> None:
    """The axis that takes the monitor away is the contrast: memory passes the level there, and the program comes to its end."""
    more = lived(600 * MIB)
    answers = {("u", 1): ended_at(300 * MIB, step=40), ("u", 2): ended_at(310 * MIB, step=20, wall_s=2.0), ("v", 1): more, ("v", 2): more}
    found = verdict(answers)
    assert found.ranking[0].cause == "external_signal"
    assert any("memory passes that level" in fact for fact in facts(found, "external_signal"))


@pytest.mark.parametrize(
    ("other", "beside"),
    [
        pytest.param(ended_at(600 * MIB, step=20, wall_s=2.0), 100 * MIB, id="at different levels"),
        pytest.param(ended_at(310 * MIB, step=41, wall_s=2.0), 100 * MIB, id="at one step"),
        pytest.param(ended_at(310 * MIB, step=20, wall_s=2.0, inside=False), 100 * MIB, id="by a stranger"),
        pytest.param(ended_at(310 * MIB, step=20), 100 * MIB, id="at one time"),
        pytest.param(ended_at(310 * MIB, step=20, wall_s=2.0, shape="plateau"), 100 * MIB, id="at a level that it had held"),
    ],
)
def test_a_signal_of_its_own_tree_at_no_one_level_is_not_about_memory(other: dict[str, Any], beside: int) -> None:
    found = verdict({("u", 1): ended_at(300 * MIB, step=40), ("u", 2): other, ("v", 1): lived(beside), ("v", 2): lived(beside)})
    assert found.ranking[0].cause not in memory_causes.NAMES


SPIKE = dataclasses.replace(FLAT, shape="spike", start_bytes=40 * MIB, end_bytes=40 * MIB, peak_bytes=300 * MIB)
KEPT = dataclasses.replace(SPIKE, end_bytes=250 * MIB)


@pytest.mark.parametrize(("curve", "told"), [(SPIKE, True), (KEPT, False), (dataclasses.replace(SPIKE, shape="linear"), False)])
def test_memory_that_survivors_give_back_is_kept_by_nobody(curve: MemoryCurve, told: bool) -> None:
    unknown = killed(dataclasses.replace(FLAT, shape="unknown"), wall_s=0.5)
    found = verdict({("u", 1): unknown, ("v", 1): lived(300 * MIB, curve=curve), ("v", 2): lived(300 * MIB, curve=curve)})
    assert any("was given back" in fact for fact in facts(found, "memory_working_set")) == told
    assert found.ranking[0].cause == "memory_working_set" or not told


def test_a_death_that_came_soon_is_judged_by_its_curve_when_there_were_looks_enough() -> None:
    def causes(samples: int) -> set[str]:
        within = dataclasses.replace(GROWING, per_step=None, warmup_s=0.4)
        death = killed(within, wall_s=1.2, progress=Progress(last_step=6, last_step_s=0.4))
        death["memory"] = dataclasses.replace(death["memory"], samples=samples)
        found = verdict({("u", 1): death, ("v", 1): lived(300 * MIB), ("v", 2): lived(300 * MIB)})
        return {entry.cause for entry in found.ranking if entry.probability > 0.1}

    assert causes(100) == {"memory_working_set"} and len(causes(20)) > 1


def test_without_a_worker_process_nothing_is_multiplied() -> None:
    found = verdict({("u", 1): killed(FLAT), ("v", 1): lived(300 * MIB), ("v", 2): lived(300 * MIB)})
    assert all(entry.probability < 0.02 for entry in found.ranking if entry.cause == "memory_worker_multiplication")


@pytest.mark.parametrize(("kib", "weights"), [(100, (4.0, -3.0)), (5000, (-3.0, 0.5))])
def test_a_run_that_differs_in_its_allocator_alone_accuses_or_clears_it(kib: int, weights: tuple[float, float]) -> None:
    curve = dataclasses.replace(GROWING, per_step=Slope(value=kib * 1024, low=0, high=6 * MIB))
    trial = Trial(id=1, cell={"a1": "u", "a2": 1})
    base: dict[str, Any] = {"key": "k", "trial": trial, "wall_s": 3.0, "started_unix_s": 0.0}
    death, other = Observation(attempt="1", **base, **killed(GROWING)), Observation(attempt="2", **base, **lived(300 * MIB, curve=curve))
    case = Case(
        known_bad=trial.cell,
        observations=[death, other],
        outcomes={each.attempt: judge.outcome(each) for each in (death, other)},
        environments={"1": {}, "2": {"MALLOC_ARENA_MAX": "1"}},
        result=Search(SPEC).result(),
        signature="SIGKILL:memory",
    )
    found = [finding for finding in memory.findings(case) if finding.rule == "another allocator"]
    causes = ("memory_allocator_retention", "memory_retention")
    assert [(finding.cause, finding.weight, finding.attempt) for finding in found] == [
        (c, w, "2") for c, w in zip(causes, weights, strict=True)
    ]


@pytest.mark.parametrize("curve", [None, dataclasses.replace(FLAT, shape="unknown")], ids=["no curve", "too short a curve"])
def test_a_death_before_the_first_steps_is_a_working_set_with_less_certainty(curve: MemoryCurve | None) -> None:
    early = killed(curve, progress=Progress(last_step=None))
    found = verdict({("u", 1): early, ("v", 1): lived(300 * MIB), ("v", 2): lived(300 * MIB)})
    assert found.ranking[0].cause == "memory_working_set"


def test_a_peak_of_file_cache_does_not_accuse_memory() -> None:
    """Reading a large file fills the group to its limit; the kernel gives that up before it kills."""
    cached = dataclasses.replace(LIMIT, oom_kills=0)
    abort = {"exit": Exit(returncode=-6, signal="SIGABRT"), "memory": cached, "curve": dataclasses.replace(FLAT, peak_bytes=100 * MIB)}
    found = verdict({("u", 1): abort, ("v", 1): lived(100 * MIB), ("v", 2): lived(100 * MIB)})
    ruled_out = {entry.cause: entry.why for entry in found.ruled_out}
    assert "without file cache peaked at 100 MiB" in ruled_out["memory_retention"]


# ------------------------------------------------------------------ real deaths
PROGRAM = Path(__file__).parents[1] / "children" / "runs_out_of_memory.py"


@pytest.mark.slow
@pytest.mark.skipif(bool(cgroup.why_not()), reason=f"no memory cgroup here: {cgroup.why_not()}")
@pytest.mark.parametrize(
    ("axis", "values", "cause"),
    [
        ("workers", [2, 4, 8], "memory_worker_multiplication"),
        ("leak", [0, 8], "memory_retention"),
        pytest.param("batch", [10, 60, 400], "memory_working_set", marks=pytest.mark.nightly),
    ],
)
def test_a_real_program_that_is_killed_by_the_kernel_is_diagnosed(tmp_path: Path, axis: str, values: list[int], cause: str) -> None:
    spec = {
        "name": "memory",
        "run": {
            "command": [sys.executable, str(PROGRAM)],
            "finished": "training finished",
            "length": {"flag": "--max-steps"},
        },
        "matrix": {axis: values},
        "known_bad": {axis: values[-1]},
        "search": {"max_runs": 14, "seed": 0},
        "limits": {"wall": "10m", "memory": "300MiB"},
        "executor": {"jobs": 1},
    }
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))  # JSON is YAML
    done = matrix("run", "spec.yaml", cwd=tmp_path, timeout=3 * PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(next(tmp_path.rglob("verdict.json")).read_text())
    assert (found["status"], found["ranking"][0]["cause"]) == ("diagnosed", cause), found["status_text"]
    assert found["ranking"][0]["culprit"] == {axis: [values[-1]]}
