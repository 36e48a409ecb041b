"""From facts to judgement: made observations, so that each rule is seen alone; the stories test it on real deaths."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from matrix.diagnosis import judge, ranking
from matrix.diagnosis.case import Case
from matrix.diagnosis.verdict import build
from matrix.records import (
    Cell,
    Death,
    Exit,
    ForkEvent,
    Library,
    Load,
    Memory,
    Message,
    NotCollected,
    Observation,
    OmpRegistration,
    ProbeResult,
    ProcessSeen,
    Progress,
    PythonError,
    Trial,
    Verdict,
)
from matrix.search import Search
from matrix.spec import Spec

GIB = 1 << 30
SPEC = Spec.model_validate(
    {
        "name": "made",
        "run": {"command": ["job"]},
        "matrix": {"a1": {"choices": {"u": {}, "v": {}, "w": {"env": {"KMP_DUPLICATE_LIB_OK": "1"}}}}, "a2": [1, 2]},
    }
)
BAD: Cell = {"a1": "u", "a2": 1}
ROOMY = Memory(isolation="cgroup-v1", limit_bytes=4 * GIB, peak_tree_rss_bytes=GIB // 2, peak_group_bytes=GIB // 2, oom_kills=0)


def died(signal: str | None = "SIGABRT", **facts: Any) -> dict[str, Any]:
    return {"exit": Exit(returncode=-6, signal=signal), "memory": ROOMY, **facts}


def lived(**facts: Any) -> dict[str, Any]:
    return {"exit": Exit(returncode=0), "memory": ROOMY, "progress": Progress(last_step=20), **facts}


def hung(**facts: Any) -> dict[str, Any]:
    return {"exit": Exit(returncode=-9, signal="SIGKILL", ended_by="stall"), "memory": ROOMY, **facts}


def runtime(path: str, *, family: str = "openmp-llvm", seen: str = "core", pid: int = 7) -> Library:
    return Library(pid=pid, path=path, family=family, inode=path, seen=seen)  # type: ignore[arg-type]


def verdict(
    answers: dict[tuple[str, int], dict[str, Any]],
    *,
    probed: dict[str, dict[str, Any]] | None = None,
    unwatched: dict[str, Any] | None = None,
) -> Verdict:
    """The verdict of a whole search in which each cell always ends alike; cells that are not named end as the known-bad one.

    `probed`: runs of the known-bad cell under an intervention of the tool, by its name; `unwatched`: one without instruments; both come
    last."""
    search, observations, environments = Search(SPEC), list[Observation](), dict[str, dict[str, str]]()
    while (trial := search.ask()) is not None:
        facts = answers.get((str(trial.cell["a1"]), int(trial.cell["a2"])), answers["u", 1])
        name = f"{len(observations) + 1:04d}-0"
        observations.append(
            Observation(
                **{
                    "attempt": name,
                    "key": "k",
                    "trial": trial,
                    "wall_s": 3.0,
                    "started_unix_s": 0.0,
                    "progress": Progress(last_step=9),
                    **facts,
                }
            )
        )
        environments[name] = SPEC.launch(trial.cell, max_steps=None, placeholders={}).env
        search.tell(trial, judge.outcome(observations[-1]))
    result = search.result()
    for number, (name, facts) in enumerate((probed or {}).items()):
        trial = Trial(id=1000 + number, cell=BAD, probes={name: ""})
        held = ProbeResult(name=name, setting="", held=True, how="made")
        base: dict[str, Any] = {"key": "k", "wall_s": 3.0, "started_unix_s": 0.0, "progress": Progress(last_step=9), "probes": [held]}
        observations.append(Observation(**{**base, "attempt": f"9{number:03d}-0", "trial": trial, **facts}))
    if unwatched:
        control = Trial(id=2000, cell=BAD, purpose="control", watched=False)
        facts = {"progress": Progress(last_step=9), **unwatched}
        observations.append(Observation(attempt="9999-0", key="k", trial=control, wall_s=3.0, started_unix_s=0.0, **facts))
    outcomes = {each.attempt: judge.outcome(each) for each in observations}
    case = Case(
        known_bad=BAD,
        observations=observations,
        outcomes=outcomes,
        environments=environments,
        result=result,
        signature=result.main_signature,
    )
    return build(case, name="made", complete=True, wall_s=1.0)


def both() -> list[Library]:
    return [runtime("/a/one.so"), runtime("/b/two.so")]


# ------------------------------------------------------------------ two runtimes
def test_two_runtimes_at_death_and_one_in_the_survivor_is_confirmed() -> None:
    found = verdict({("u", 1): died(libraries=both()), ("v", 1): lived(libraries=both()[:1]), ("v", 2): lived(libraries=both()[:1])})
    assert (found.status, found.ranking[0].cause, found.ranking[0].grade) == ("diagnosed", "openmp_runtime_conflict", "confirmed")
    assert found.ranking[0].culprit == {"a1": ["u", "w"]}


def test_the_words_alone_accuse_nobody_when_the_map_at_death_holds_one_runtime() -> None:
    words = ["OMP: Error #15: Initializing libiomp5.so, but found libiomp5.so already initialized."]
    found = verdict({("u", 1): died(libraries=both()[:1], output_tail=words), ("v", 1): lived(), ("v", 2): lived()})
    assert all(entry.probability < 0.01 for entry in found.ranking if entry.cause == "openmp_runtime_conflict")


def test_two_runtimes_of_the_gnu_family_are_no_conflict() -> None:
    pair = [runtime("/a/libgomp.so", family="openmp-gnu"), runtime("/b/libgomp.so", family="openmp-gnu")]
    found = verdict({("u", 1): died(libraries=pair), ("v", 1): lived(libraries=pair[:1]), ("v", 2): lived(libraries=pair[:1])})
    assert found.ranking[0].cause != "openmp_runtime_conflict"


def test_a_survivor_with_both_runtimes_under_the_override_only_hides() -> None:
    answers = {("u", 1): died(libraries=both()), ("v", 1): lived(libraries=both()[:1]), ("v", 2): lived(libraries=both()[:1])}
    found = verdict({**answers, ("w", 1): lived(libraries=both()), ("w", 2): lived(libraries=both())})
    assert "with KMP_DUPLICATE_LIB_OK set it survives although both runtimes are still loaded" in [
        f.fact for f in found.ranking[0].supports
    ]


def test_a_leftover_registration_supports_an_abort() -> None:
    left = [OmpRegistration(pid=7, library="libiomp5.so")]
    found = verdict({("u", 1): died(libraries=both(), omp_registrations=left), ("v", 1): lived(), ("v", 2): lived()})
    assert any("never signed off" in fact.fact for fact in found.ranking[0].supports)


# ------------------------------------------------------------------ forks
FORK = ForkEvent(pid=7, threads_alive=3, start_method="fork", time_s=1.0, module="miners")
PARENT = ProcessSeen(pid=7, ppid=1, role="main", name="python", state="S", threads=3, window_s=1.0)


@pytest.mark.parametrize("state", ["sleeps", "spins"])
def test_a_hang_behind_a_fork_with_threads_is_fork_unsafe_asleep_or_spinning(state: str) -> None:
    busy = 1.0 if state == "spins" else 0.0
    child = ProcessSeen(
        pid=8, ppid=7, role="worker", name="python", state="S", cpu_delta_s=busy, window_s=1.0, stack=["libgomp.so.1 in GOMP_parallel"]
    )
    found = verdict({("u", 1): hung(forks=[FORK], processes=[PARENT, child]), ("v", 1): lived(), ("v", 2): lived()})
    assert (found.ranking[0].cause, found.ranking[0].grade) == ("fork_unsafe", "confirmed")
    assert state in found.ranking[0].supports[0].fact


def test_a_hang_without_a_fork_is_not_blamed_on_one() -> None:
    found = verdict({("u", 1): hung(processes=[PARENT]), ("v", 1): lived(), ("v", 2): lived()})
    assert found.ranking[0].cause != "fork_unsafe"
    assert "fork_unsafe" in {each.cause for each in found.ruled_out}


UNWATCHED = [NotCollected(what="hook", why="switched off by the specification")]


def test_without_the_hook_no_fork_that_was_not_seen_is_ruled_out_or_cured() -> None:
    lives = lived(not_collected=UNWATCHED)
    found = verdict({("u", 1): hung(processes=[PARENT], not_collected=UNWATCHED), ("v", 1): lives, ("v", 2): lives})
    assert "fork_unsafe" not in {each.cause for each in found.ruled_out}
    assert found.fix is None or found.fix.kind == "avoids"


# ------------------------------------------------------------------ the rest
def test_evidence_that_several_causes_share_confirms_none_of_them() -> None:
    killed = dataclasses.replace(ROOMY, peak_group_bytes=4 * GIB, oom_kills=1)
    nothing = {**died("SIGKILL"), "memory": killed, "progress": Progress()}
    found = verdict({("u", 1): nothing, ("v", 1): lived(progress=Progress()), ("v", 2): lived(progress=Progress())})
    assert found.status == "suspected" or found.status == "inconclusive"
    assert "confirmed" not in {entry.grade for entry in found.ranking}


def test_a_kernel_kill_that_only_the_log_proves_is_memory() -> None:
    memory = Memory(isolation="watchdog", limit_bytes=4 * GIB, oom_kills=None)
    killed = Death(pid=7, role="main", signal="SIGKILL", status=None, time_s=1.0, oom=True, part="initiating", sources=["kernel log"])
    found = verdict({("u", 1): {**died("SIGKILL"), "memory": memory, "deaths": [killed]}, ("v", 1): lived(), ("v", 2): lived()})
    assert found.failures[0].signature == "SIGKILL:memory"
    assert found.ranking[0].cause.startswith("memory_")


@pytest.mark.parametrize(
    "error", [PythonError(type="torch.OutOfMemoryError", message="CUDA out of memory."), PythonError(type="MemoryError", message="")]
)
def test_an_allocation_that_fails_is_a_matter_of_memory_and_no_ordinary_exception(error: PythonError) -> None:
    facts = {"exit": Exit(returncode=1), "python_error": error, "memory": Memory()}
    found = verdict({("u", 1): facts, ("v", 1): lived(), ("v", 2): lived()})
    assert found.ranking[0].cause in ("memory_working_set", "resource_limit")


@pytest.mark.parametrize(
    ("signal", "cause"), [("SIGXCPU", "watchdog_or_time_limit"), ("SIGXFSZ", "resource_limit"), ("SIGTERM", "external_signal")]
)
def test_a_limit_that_was_met_is_no_signal_from_a_stranger(signal: str, cause: str) -> None:
    found = verdict({("u", 1): died(signal), ("v", 1): lived(), ("v", 2): lived()})
    assert found.ranking[0].cause == cause


def in_a_worker(signal: str) -> dict[str, Any]:
    """A worker died by it, and its parent left with status 1."""
    worker = Death(pid=9, role="worker", signal=signal, status=None, time_s=3.0, part="initiating", sources=["kernel event"])
    main = Death(pid=7, role="main", signal=None, status=1, time_s=3.1, part="cascade", sources=["wait status"])
    return {**died(None), "exit": Exit(returncode=1), "deaths": [worker, main]}


def test_a_fault_is_one_failure_whether_a_worker_or_the_main_process_runs_the_code() -> None:
    alike = verdict({("u", 1): in_a_worker("SIGSEGV"), ("u", 2): died("SIGSEGV"), ("v", 1): lived(), ("v", 2): lived()})
    assert [failure.signature for failure in alike.failures] == ["SIGSEGV"]
    assert (alike.ranking[0].culprit, alike.fix and alike.fix.set) == ({"a1": ["u", "w"]}, {"a1": "v"})
    killed = verdict({("u", 1): in_a_worker("SIGKILL"), ("u", 2): died("SIGKILL"), ("v", 1): lived(), ("v", 2): lived()})
    assert {failure.signature for failure in killed.failures} == {"worker SIGKILL", "SIGKILL"}


def test_the_run_without_instruments_is_no_failure_of_another_kind() -> None:
    """Nobody saw which process began its death, so it looks like another one."""
    seen = verdict({("u", 1): in_a_worker("SIGSEGV"), ("v", 1): lived(), ("v", 2): lived()}, unwatched=failed_with(1))
    assert [(failure.signature, failure.main) for failure in seen.failures] == [("SIGSEGV", True)]


def failed_with(status: int) -> dict[str, Any]:
    return {**lived(), "exit": Exit(returncode=status)}


def test_switching_off_what_crashes_avoids_and_does_not_cure() -> None:
    alone = [runtime("/a/gnu.so", family="openmp-gnu")]
    found = verdict({("u", 1): died(libraries=both()), ("v", 1): lived(libraries=alone), ("v", 2): lived(libraries=alone)})
    assert found.fix and found.fix.kind == "avoids"


def test_memory_is_ruled_out_when_the_peak_was_far_below_the_limit() -> None:
    found = verdict({("u", 1): died(libraries=both()), ("v", 1): lived(), ("v", 2): lived()})
    assert {"memory_working_set", "memory_retention"} <= {each.cause for each in found.ruled_out}


def test_a_kernel_oom_kill_that_grew_is_retention_and_one_that_did_not_is_a_working_set() -> None:
    killed = dataclasses.replace(ROOMY, peak_group_bytes=4 * GIB, oom_kills=1)
    grew = dataclasses.replace(killed, first_tree_rss_bytes=GIB, last_tree_rss_bytes=4 * GIB)
    for memory, cause in ((grew, "memory_retention"), (killed, "memory_working_set")):
        found = verdict({("u", 1): {**died("SIGKILL"), "memory": memory}, ("v", 1): lived(), ("v", 2): lived()})
        assert found.ranking[0].cause == cause


def test_a_traceback_is_an_exception_and_no_native_crash() -> None:
    facts = {"exit": Exit(returncode=1), "python_error": PythonError(type="ValueError", message="bad"), "memory": ROOMY}
    found = verdict({("u", 1): facts, ("v", 1): lived(), ("v", 2): lived()})
    assert (found.ranking[0].cause, found.failures[0].signature) == ("python_exception", "exit 1:ValueError")


def test_without_a_contrast_nothing_is_confirmed() -> None:
    found = verdict({("u", 1): died(libraries=both())})
    assert (found.ranking[0].grade, found.fix) == ("supported", None)
    assert found.ranking[0].probability <= ranking.CAPS["supported"]


def test_no_death_is_healthy_with_a_probability_that_grows_with_the_runs() -> None:
    found = verdict({("u", 1): lived()})
    assert (found.status, found.ranking[0].cause, found.fix) == ("healthy", "healthy", None)
    assert found.ranking[0].probability == pytest.approx((found.runs + 1) / (found.runs + 2), abs=1e-3)


@pytest.mark.parametrize(("threads", "said"), [(10.7, True), (2.0, False)])
def test_a_program_that_lives_but_crowds_the_processors_is_healthy_and_told_how_slow_runs_are_judged(threads: float, said: bool) -> None:
    found = verdict({("u", 1): lived(load=Load(cpus=2, runnable_mean=threads, runnable_most=20, looks=20))})
    assert (found.status, found.fix, found.ranking[0].culprit) == ("healthy", None, {})
    assert ("set limits.wall" in found.status_text) == said


def test_a_program_that_cannot_run_here_is_not_called_healthy() -> None:
    found = verdict({("u", 1): {"exit": Exit(returncode=125), "output_tail": ["no such device"], "progress": Progress()}})
    assert (found.status, [entry.cause for entry in found.ranking]) == ("inconclusive", ["unknown"])
    assert "no such device" in found.status_text


def test_probabilities_sum_to_one_and_unknown_is_always_among_them() -> None:
    for facts in (died(libraries=both()), died("SIGSEGV"), hung(processes=[PARENT]), lived()):
        found = verdict({("u", 1): facts, ("v", 1): lived(), ("v", 2): lived()})
        assert sum(entry.probability for entry in found.ranking) == pytest.approx(1, abs=1e-9)
        assert "unknown" in {entry.cause for entry in found.ranking}


@pytest.mark.parametrize(
    ("facts", "kind", "signature"),
    [
        ({"exit": Exit(returncode=None, start_error="not found")}, "unavailable", None),
        ({"exit": Exit(returncode=-9, signal="SIGKILL", ended_by="wall")}, "censored", None),
        ({"exit": Exit(returncode=-9, signal="SIGKILL", ended_by="interrupt")}, "censored", None),
        ({"exit": Exit(returncode=-9, signal="SIGKILL", ended_by="length")}, "survived", None),
        ({"exit": Exit(returncode=-9, signal="SIGKILL", ended_by="idle")}, "died", "hang"),
        (
            {"exit": Exit(returncode=-9, signal="SIGKILL", ended_by="idle"), "progress": Progress(finished_line=True)},
            "died",
            "hang after it had finished",
        ),
        ({"exit": Exit(returncode=-9, signal="SIGKILL"), "memory": Memory(oom_kills=1)}, "died", "SIGKILL:memory"),
        ({"exit": Exit(returncode=-9, signal="SIGKILL"), "memory": Memory(oom_kills=0)}, "died", "SIGKILL"),
        ({"exit": Exit(returncode=3)}, "died", "exit 3"),
        ({"exit": Exit(returncode=125)}, "unavailable", None),
        ({"exit": Exit(returncode=125), "progress": Progress(last_step=4)}, "died", "exit 125"),
        ({"exit": Exit(returncode=0), "progress": Progress(finished_line=False)}, "died", "exit 0 before it had finished"),
        ({"exit": Exit(returncode=0), "progress": Progress(finished_line=True)}, "survived", None),
    ],
)
def test_each_way_of_ending_is_judged(facts: dict[str, Any], kind: str, signature: str | None) -> None:
    observation = Observation(**{"attempt": "1", "key": "k", "trial": Trial(id=1, cell={}), "wall_s": 1.0, "started_unix_s": 0.0, **facts})
    outcome = judge.outcome(observation)
    assert (outcome.kind, outcome.signature) == (kind, signature)


def uncaught(what: str) -> Message:
    return Message(kind="c++ exception", text=f"terminate called after throwing an instance of '{what}'", stream="stderr")


def accused(messages: list[Message], *, survivor: list[Message]) -> bool:
    found = verdict({("u", 1): died(messages=messages), ("v", 1): lived(messages=survivor), ("v", 2): lived()})
    return found.ranking[0].cause == "native_bad_argument"


@pytest.mark.parametrize("name", ["logic_error", "invalid_argument", "domain_error", "length_error", "out_of_range"])
def test_an_uncaught_exception_about_a_precondition_accuses_what_native_code_was_given(name: str) -> None:
    line, damage = uncaught(f"std::{name}"), Message(kind="heap damaged", text="free(): invalid pointer", stream="stderr")
    assert accused([line], survivor=[])
    assert not accused([line], survivor=[line]), "a run that survived said so too"
    assert not accused([line, damage], survivor=[]), "what is read from a damaged heap may be anything"


@pytest.mark.parametrize("name", ["std::bad_alloc", "std::system_error", "std::runtime_error", "std::exception", "int"])
def test_another_uncaught_exception_says_nothing_about_what_native_code_was_given(name: str) -> None:
    assert not accused([uncaught(name)], survivor=[])
