"""Hangs, exceptions and signals that look like another cause's: made observations, and the wrong cause is never confirmed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from matrix.diagnosis import endings, judge
from matrix.diagnosis.case import Case
from matrix.diagnosis.fork import _waits_in
from matrix.diagnosis.sigkill import attribute
from matrix.diagnosis.verdict import build
from matrix.records import (
    Bound,
    Death,
    Exit,
    ExitCall,
    ForkEvent,
    Memory,
    Message,
    NotCollected,
    Observation,
    ProcessSeen,
    ProcessSettings,
    Progress,
    PythonError,
    SignalSent,
    Trial,
    Verdict,
)
from matrix.search import Search
from matrix.spec import Spec
from tests.matrix.test_diagnosis import died, hung, lived, verdict
from tests.matrix.test_diagnosis_catalogue import failed, fault, process, raised, says, segv


def of(facts: dict[str, Any], **survivor: Any) -> Verdict:
    return verdict({("u", 1): facts, ("v", 1): lived(**survivor), ("v", 2): lived(**survivor)})


def confirmed(found: Verdict) -> str | None:
    return found.ranking[0].cause if found.ranking[0].grade == "confirmed" else None


def first(facts: dict[str, Any]) -> str:
    return of(facts).ranking[0].cause


def ended(role: str, *, pid: int = 8, **how: Any) -> list[Death]:
    """That process began it; the main one followed."""
    began = Death(**{"pid": pid, "role": role, "signal": None, "status": None, "time_s": 1.0, "part": "initiating", **how})
    return [began, Death(pid=7, role="main", signal=None, status=1, time_s=2.0, part="cascade")]


# ------------------------------------------------------------------ hangs
FORKED = ForkEvent(pid=7, threads_alive=3, start_method="fork", time_s=1.0, module="torch.utils.data.dataloader")
LOCKED = process(wchan="futex_do_wait", threads=3, stack=["libpython in PyThread_acquire_lock_timed", "job.py:5 in work"])
QUEUE = ["libc.so.6 in read", "multiprocessing/connection.py:395 in Connection._recv", "multiprocessing/queues.py:103 in Queue.get"]
TURN = ["libc.so.6 in sem_wait", "_multiprocessing.so in SemLock_acquire", "multiprocessing/queues.py:102 in Queue.get"]
COPIED = ["libc.so.6 in ?", "libpython in PyThread_acquire_lock_timed", "job.py:30 in log_metric"]


def child(**facts: Any) -> ProcessSeen:
    return process(**{"pid": 8, "ppid": 7, "role": "worker", "threads": 1, **facts})


@pytest.mark.parametrize(
    "other",
    [
        child(wchan="anon_pipe_read", stack=QUEUE),
        child(wchan="futex_do_wait", stack=TURN),
        child(wchan="anon_pipe_read"),
        child(state="Z"),
        child(state="Z", wchan="futex_do_wait"),
        child(wchan="hrtimer_nanosleep", stack=["libc.so.6 in clock_nanosleep", "libpython in time_sleep"]),
        child(wchan="anon_pipe_read", threads=3, stack=[*QUEUE, "-- thread", "libgomp.so.1 in GOMP_parallel"]),
    ],
    ids=["idle", "waits its turn", "idle without a stack", "ended", "ended in a lock", "sleeps", "idle with a pool of its own"],
)
def test_a_worker_that_waits_for_work_or_has_ended_is_no_victim_of_a_fork(other: ProcessSeen) -> None:
    found = of(hung(processes=[LOCKED, other], forks=[FORKED]))
    assert confirmed(found) == "deadlock"
    assert next((e.probability for e in found.ranking if e.cause == "fork_unsafe"), 0.0) < 0.05


def test_a_child_in_a_lock_that_it_copied_is_one_and_without_a_stack_it_is_not_confirmed() -> None:
    parent = process(wchan="anon_pipe_read", threads=3, stack=QUEUE)
    seen = hung(processes=[parent, child(wchan="futex_do_wait", stack=COPIED)], forks=[FORKED])
    assert confirmed(of(seen)) == "fork_unsafe"
    unseen = of(hung(processes=[parent, child(wchan="futex_do_wait")], forks=[FORKED]))
    assert confirmed(unseen) is None and unseen.ranking[0].cause == "fork_unsafe"


def test_a_sleep_is_no_wait_for_a_lock() -> None:
    assert _waits_in(child(stack=["libc.so.6 in clock_nanosleep", "job.py:3 in block"])) is None
    assert _waits_in(child(stack=["libc.so.6 in __lll_lock_wait"])) == "libc.so.6 in __lll_lock_wait"


WAITS = process(wchan="anon_pipe_read", stack=QUEUE)


@pytest.mark.parametrize(
    "facts",
    [
        {"processes": [WAITS], "deaths": ended("worker", status=255)[:1]},
        {"processes": [WAITS], "python_error": raised("ValueError", "bad batch")},
        {"processes": [process(state="T", wchan="do_signal_stop"), child(wchan="anon_pipe_read", stack=QUEUE)]},
        {"processes": [process(state="D", wchan="nfs_wait_bit_killable"), child(wchan="anon_pipe_read", stack=QUEUE)]},
        {"processes": [process(wchan="hrtimer_nanosleep"), child(wchan="anon_pipe_read", stack=QUEUE)]},
        {"processes": [process(wchan="do_wait"), child(state="D", wchan="nfs_wait_bit_killable")]},
    ],
    ids=["a worker ended", "a traceback", "stopped", "a file server", "a retry", "a child at a file server"],
)
def test_a_hang_that_something_else_explains_is_no_deadlock(facts: dict[str, Any]) -> None:
    found = of(hung(**facts))
    assert found.ranking[0].cause != "deadlock"
    assert confirmed(found) in (None, "external_signal")


def test_a_process_that_was_stopped_was_sent_a_signal_whatever_its_session_is() -> None:
    stopped = hung(processes=[process(state="T", wchan="do_signal_stop")])
    answers = {("u", 1): stopped, ("v", 1): lived(), ("v", 2): lived()}
    assert confirmed(verdict(answers)) == "external_signal"
    entry = verdict(answers, probed={"own_session": stopped, "ignore_sighup": stopped}).ranking[0]  # that is not how it was sent
    assert (entry.cause, entry.grade) == ("external_signal", "supported")


def test_a_worker_that_left_by_exit_before_a_hang_is_a_librarys_exit() -> None:
    call = ExitCall(pid=8, call="os._exit", status="255", where="codec.py:9 in decode", time_s=1.0, installed=True)
    facts = hung(processes=[WAITS], deaths=ended("worker", status=255)[:1], exit_calls=[call])
    assert confirmed(of(facts)) == "library_exit"
    assert confirmed(of({**facts, "exit_calls": [dataclasses.replace(call, installed=False)]})) is None


# ------------------------------------------------------------------ exceptions that only follow
@pytest.mark.parametrize(
    ("deaths", "error"),
    [
        (ended("rank", status=255), raised("torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "train.py FAILED")),
        (ended("worker", status=255), raised("_queue.Empty", "")),
        (ended("worker", status=255), raised("ConnectionResetError", "[Errno 104] Connection reset by peer")),
        (ended("worker", status=255), raised("RuntimeError", "lost a worker")),
        (ended("other", signal="SIGSEGV"), raised("subprocess.CalledProcessError", "Command 'index' died with SIGSEGV")),
        (ended("other", signal="SIGKILL"), raised("subprocess.CalledProcessError", "Command 'index' died with SIGKILL")),
    ],
)
def test_an_exception_about_another_process_is_not_the_cause(deaths: list[Death], error: PythonError) -> None:
    found = of(failed(python_error=error, deaths=deaths))
    assert found.ranking[0].cause != "python_exception"


def test_the_exception_of_a_rank_that_its_launcher_raises_again_is_the_cause() -> None:
    error = raised("torch.multiprocessing.spawn.ProcessRaisedException", "-- Process 0 terminated with the following error: KeyError: 'x'")
    assert first(failed(python_error=error, deaths=ended("rank", status=1))) == "python_exception"


def test_a_helper_that_the_program_ended_itself_did_not_begin_it() -> None:
    sent = SignalSent(signal="SIGKILL", to_pid=8, from_pid=7, from_name="python", inside=True, by_tool=False, time_s=1.0)
    facts = failed(python_error=raised("KeyError", "'loss'"), deaths=ended("other", signal="SIGKILL"), signals_sent=[sent])
    assert confirmed(of(facts)) == "python_exception"


@pytest.mark.parametrize(
    ("where", "after_s", "installed", "grade"),
    [
        ("__call__", 0.1, True, "confirmed"),
        ("<module>", 0.1, True, "supported"),
        ("run", 4.0, True, "supported"),
        ("main", 0.1, False, "supported"),
        ("main", 0.1, None, "supported"),
    ],
)
def test_an_exit_from_within_a_function_of_a_package_is_known_by_its_place_and_one_of_the_program_may_be_its_decision(
    where: str, after_s: float, installed: bool | None, grade: str
) -> None:
    calls = [
        ExitCall(pid=7, call="sys.exit", status="0", where=f"job.py:28 in {where}", time_s=1.0, installed=installed),
        ExitCall(pid=7, call="interpreter end", status="", where="", time_s=1.0 + after_s),
    ]
    ending = {"exit": Exit(returncode=0, left_by="interpreter"), "exit_calls": calls}
    found = of({**lived(), **ending, "progress": Progress(last_step=9, finished_line=False)}).ranking[0]
    assert (found.cause, found.grade) == ("library_exit", grade)


@pytest.mark.parametrize(("status", "gone_s", "grade"), [(3, 2.0, "suspected"), (9, 8.9, "suspected"), (9, 2.0, "confirmed")])
def test_the_exit_of_a_launcher_that_hands_on_what_it_started_ended_with_is_not_its_own(status: int, gone_s: float, grade: str) -> None:
    """It takes the status over, or leaves at once."""
    job = Death(pid=8, role="other", signal=None, status=status, time_s=gone_s)
    main = Death(pid=7, role="main", signal=None, status=3, time_s=9.0, part="initiating")
    calls = [
        ExitCall(pid=7, call="sys.exit", status="3", where="launch/run.py:30 in main", time_s=8.95, installed=True),
        ExitCall(pid=7, call="interpreter end", status="", where="", time_s=9.0),
    ]
    facts = failed(exit=Exit(returncode=3, left_by="interpreter"), deaths=[job, main], exit_calls=calls, wall_s=9.1)
    assert first(facts) == "library_exit"
    assert of(facts).ranking[0].grade == grade
    within = ExitCall(pid=8, call="os._exit", status="3", where="codec.py:9 in decode", time_s=gone_s, installed=True)
    assert confirmed(of({**facts, "exit_calls": [within, *calls]})) == "library_exit"


def test_a_launcher_that_ends_its_job_for_its_time_is_told_from_a_library_that_exits() -> None:
    job = Death(pid=8, role="other", signal="SIGTERM", status=None, time_s=7.5, part="teardown")
    main = Death(pid=7, role="main", signal=None, status=124, time_s=7.8, part="initiating")
    sent = SignalSent(signal="SIGTERM", to_pid=8, from_pid=9, from_name="", inside=True, by_tool=False, time_s=7.5)
    facts = failed(exit=Exit(returncode=124), deaths=[job, main], signals_sent=[sent], wall_s=8.0)
    assert confirmed(of(facts)) == "watchdog_or_time_limit"
    assert confirmed(of(failed(**{**facts, "signals_sent": []}))) != "watchdog_or_time_limit"
    helper = failed(exit=Exit(returncode=1), deaths=[job, dataclasses.replace(main, status=1)], signals_sent=[sent], wall_s=8.0)
    assert confirmed(of(helper)) is None


def test_an_exception_that_ended_a_thread_is_why_the_others_wait_and_one_that_was_logged_is_a_hint() -> None:
    frames = ["threading.py:1045 in _bootstrap_inner", "threading.py:982 in run", "job.py:27 in load"]
    waits = [process(wchan="futex_do_wait", stack=["threading.py:327 in Condition.wait", "queue.py:171 in Queue.get"])]
    error = PythonError(type="KeyError", message="10", frames=frames)
    assert confirmed(of(hung(processes=waits, python_error=error))) == "python_exception"
    assert confirmed(of(hung(processes=waits, python_error=dataclasses.replace(error, frames=frames[2:])))) is None
    assert confirmed(of(hung(processes=waits, python_error=error), python_error=error)) is None


def test_a_launcher_that_kills_a_silent_process_is_a_watchdog_and_one_that_clears_up_is_not() -> None:
    sent = SignalSent(signal="SIGKILL", to_pid=8, from_pid=7, from_name="python", inside=True, by_tool=False, time_s=9.0)
    ending = {"deaths": ended("other", signal="SIGKILL"), "signals_sent": [sent]}
    silent = Progress(last_step=24, first_step_s=1.0, last_step_s=4.0, longest_gap_s=0.1)
    assert first(failed(**ending, progress=silent)) == "watchdog_or_time_limit"
    assert first(failed(**ending, progress=dataclasses.replace(silent, last_step_s=8.9))) != "watchdog_or_time_limit"
    assert first(failed(**ending, progress=silent, python_error=raised("KeyError", "'loss'"))) == "python_exception"


def test_a_logged_traceback_before_os_exit_did_not_end_it() -> None:
    call = ExitCall(pid=7, call="os._exit", status="1", where="guard.py:3 in leave", time_s=1.0, installed=True)
    facts = failed(exit=Exit(returncode=1, left_by="os._exit"), python_error=raised("ValueError", "logged"), exit_calls=[call])
    assert confirmed(of(facts)) == "library_exit"


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (raised("IndexError", "row 9 is out of memory bank bounds"), "python_exception"),
        (raised("ValueError", "out of memory-mapped range"), "python_exception"),
        (raised("numpy._core._exceptions._ArrayMemoryError", "Unable to allocate 8.00 GiB"), "memory_working_set"),
        (raised("RuntimeError", "can't allocate memory: you tried to allocate 8 bytes."), "memory_working_set"),
        (raised("RuntimeError", "CUDA error: out of memory"), "memory_working_set"),
    ],
)
def test_only_the_words_for_it_mean_that_memory_was_refused(error: PythonError, cause: str) -> None:
    assert first(failed(python_error=error, memory=Memory())) == cause


# ------------------------------------------------------------------ signals
def sends(signal: str, *, sender: int, to: int = 7, inside: bool = True) -> list[SignalSent]:
    return [SignalSent(signal=signal, to_pid=to, from_pid=sender, from_name="python", inside=inside, by_tool=False, time_s=1.0)]


def main_died(signal: str) -> dict[str, Any]:
    death = Death(pid=7, role="main", signal=signal, status=None, time_s=1.0, part="initiating")
    return {**died(signal), "exit": Exit(returncode=-9, signal=signal), "deaths": [death]}


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGABRT", "SIGSEGV", "SIGFPE", "SIGALRM", "SIGPROF"])
def test_a_watchdog_of_the_program_is_no_stranger(signal: str) -> None:
    found = of({**main_died(signal), "signals_sent": sends(signal, sender=9)})
    assert found.ranking[0].cause == "watchdog_or_time_limit"


@pytest.mark.parametrize("signal", ["SIGABRT", "SIGSEGV", "SIGBUS", "SIGALRM", "SIGVTALRM"])
def test_a_signal_that_usually_comes_from_the_program_is_a_strangers_when_a_stranger_sent_it(signal: str) -> None:
    assert first(main_died(signal)) != "external_signal"
    assert first({**main_died(signal), "signals_sent": sends(signal, sender=900, inside=False)}) == "external_signal"


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL", "SIGABRT", "SIGHUP"])
def test_any_signal_of_a_timer_that_the_program_had_set_is_a_time_limit_unless_somebody_sent_it_too(signal: str) -> None:
    ran_out = [dataclasses.replace(one, by_timer=True) for one in sends(signal, sender=0)]
    assert confirmed(of({**main_died(signal), "signals_sent": ran_out})) == "watchdog_or_time_limit"
    sent = [*ran_out, *sends(signal, sender=900, inside=False)]
    assert first({**main_died(signal), "signals_sent": sent}) == "external_signal"


def test_an_abort_that_the_program_raises_is_no_watchdog() -> None:
    found = of({**main_died("SIGABRT"), "signals_sent": sends("SIGABRT", sender=7)})
    assert {"external_signal", "watchdog_or_time_limit"}.isdisjoint(entry.cause for entry in found.ranking if entry.probability > 0.2)


def test_a_helper_that_stands_for_a_scheduler_sends_from_outside_and_the_program_itself_does_not() -> None:
    assert confirmed(of({**main_died("SIGTERM"), "signals_sent": sends("SIGTERM", sender=9)})) == "external_signal"
    itself = of({**main_died("SIGTERM"), "signals_sent": sends("SIGTERM", sender=7)})
    assert itself.ranking[0].cause != "external_signal"
    twice = [*sends("SIGTERM", sender=900, inside=False), *sends("SIGTERM", sender=7)]  # a handler that saves, then ends
    assert confirmed(of({**main_died("SIGTERM"), "signals_sent": twice})) == "external_signal"


def test_a_kill_is_from_outside_only_when_its_sender_was_seen_or_everything_else_was_excluded() -> None:
    nothing = {**main_died("SIGKILL"), "memory": Memory()}
    assert confirmed(of(nothing)) is None
    assert confirmed(of(main_died("SIGKILL"))) is None  # nothing of the kernel's: likely, and not shown
    assert confirmed(of({**nothing, "signals_sent": sends("SIGKILL", sender=900, inside=False)})) == "external_signal"


def test_a_counter_without_the_log_and_a_kill_by_the_kernel_itself_are_unknown() -> None:
    seen = Observation(attempt="1", key="k", trial=Trial(id=1, cell={}), wall_s=3.0, started_unix_s=0.0, **main_died("SIGKILL"))
    unread = dataclasses.replace(seen, not_collected=[NotCollected(what="kernel log", why="not permitted")])
    kernel = dataclasses.replace(seen, signals_sent=sends("SIGKILL", sender=0, inside=False))
    timer = dataclasses.replace(seen, signals_sent=[dataclasses.replace(one, by_timer=True) for one in kernel.signals_sent])
    grades = [found.grade for found in map(attribute, (seen, unread, kernel, timer)) if found]
    assert grades == ["another process", "unknown", "unknown", "a timer of its own"]


def test_a_hard_limit_of_processor_time_that_the_program_set_is_a_time_limit() -> None:
    bound = ProcessSettings(pid=7, role="main", last_s=2.5, bounds=[Bound(name="cpu", soft=2, hard=2)])
    facts = {**main_died("SIGKILL"), "exit": Exit(returncode=-9, signal="SIGKILL", cpu_s=2.0), "settings": [bound]}
    assert confirmed(of(facts)) == "watchdog_or_time_limit"
    early = {**facts, "exit": Exit(returncode=-9, signal="SIGKILL", cpu_s=0.5)}
    assert first(early) == "external_signal"


def test_a_count_that_was_used_up_in_every_death_and_in_no_survivor_is_shown_to_be_it() -> None:
    def has(used: int) -> dict[str, Any]:
        return {"settings": [ProcessSettings(pid=7, role="main", last_s=2.5, bounds=[Bound(name="pids", soft=90, hard=90, used=used)])]}

    def probability(*, living: int, dying: int = 90) -> float:
        deaths = {("u", number): {**main_died("SIGABRT"), **has(dying)} for number in (1, 2)}
        found = verdict({**deaths, **{("v", number): lived(**has(living)) for number in (1, 2)}})
        return next((entry.probability for entry in found.ranking if entry.cause == "resource_limit"), 0.0)

    assert probability(living=90) < probability(living=9, dying=85) < probability(living=9)


def test_who_writes_to_a_process_that_died_follows_it_by_sigpipe() -> None:
    """The kernel ended a helper for its file's size, or it crashed: nobody outside sent the SIGPIPE that its writer got then."""

    def writer(signal: str) -> dict[str, Any]:
        deaths = ended("other", signal=signal)
        deaths[1] = dataclasses.replace(deaths[1], signal="SIGPIPE", status=None)
        return died("SIGPIPE", deaths=deaths)

    assert of(writer("SIGXFSZ")).ranking[0].cause == "resource_limit"
    assert of(writer("SIGXCPU")).ranking[0].cause == "watchdog_or_time_limit"
    assert of(writer("SIGSEGV")).ranking[0].cause != "external_signal"
    assert confirmed(of(died("SIGPIPE"))) == "external_signal"


def test_sigpipe_long_after_another_process_of_the_tree_crashed_confirms_neither_of_them() -> None:
    def closed(part: Any) -> dict[str, Any]:
        helper = Death(pid=8, role="other", signal="SIGSEGV", status=None, time_s=0.2, part=part)
        main = Death(pid=7, role="main", signal="SIGPIPE", status=None, time_s=9.0, part="initiating")
        return died("SIGPIPE", deaths=[helper, main], exit=Exit(returncode=-13, signal="SIGPIPE"))

    assert confirmed(of(closed("unknown"))) is None
    assert confirmed(of(closed("teardown"))) == "external_signal"


# ------------------------------------------------------------------ words and devices
WORDS: list[tuple[str, Any, str]] = [
    ("binary_incompatibility", "missing symbol", "plugin skipped: undefined symbol: x"),
    ("binary_incompatibility", "numpy abi", "A module that was compiled using NumPy 1.x cannot be run in NumPy 2"),
    ("device_backend_fault", "cuda error", "retry after NCCL error"),
]


@pytest.mark.parametrize(("cause", "kind", "text"), WORDS)
def test_words_that_no_exception_repeats_confirm_nothing_and_those_of_survivors_speak_against(cause: str, kind: Any, text: str) -> None:
    facts = failed(python_error=raised("KeyError", "'loss'"), messages=says(kind, text))
    assert confirmed(of(facts)) != cause
    alike = of(facts, messages=[Message(kind=kind, text=text, stream="stderr")])
    assert confirmed(alike) == "python_exception"


def test_numpys_notice_as_the_last_words_before_a_crash_is_shown_to_be_it() -> None:
    notice = "A module that was compiled using NumPy 1.x cannot be run in"
    facts = segv(faults=[fault(552)], messages=says("numpy abi", notice))
    assert confirmed(of(facts)) is None
    assert confirmed(of({**facts, "output_tail": ["step 8", notice, "NumPy 2.4.6 as it may crash."]})) == "binary_incompatibility"


BAD_ADDRESS = segv(faults=[fault(0x7F1234567890)])


def device_verdict(survives: str, crash: dict[str, Any]) -> tuple[Verdict, list[str]]:
    """A crash on one device; `survives`: where the axis of devices alone makes the difference, or another axis as well."""
    spec = Spec.model_validate({"name": "made", "run": {"command": ["job"]}, "matrix": {"d": ["npu", "cpu"], "a2": [1, 2]}})
    search, seen = Search(spec), list[Observation]()
    while (trial := search.ask()) is not None:
        fine = trial.cell["d"] == "cpu" if survives == "cpu" else trial.cell["a2"] == 2
        ends = lived() if fine else crash
        base: dict[str, Any] = {"attempt": f"{len(seen):04d}-0", "key": "k", "trial": trial, "wall_s": 1.0, "started_unix_s": 0.0}
        seen.append(Observation(**{**base, **ends}))
        search.tell(trial, judge.outcome(seen[-1]))
    outcomes = {each.attempt: judge.outcome(each) for each in seen}
    result = search.result()
    case = Case(
        known_bad=spec.known_bad, observations=seen, outcomes=outcomes, environments={}, result=result, signature=result.main_signature
    )
    rules = [found.cause for found in endings.findings(case) if found.rule == "contrast"]
    return build(case, name="made", complete=True, wall_s=1.0), rules


def test_a_bad_address_on_one_device_only_is_suspected_of_it_and_not_confirmed() -> None:
    found, rules = device_verdict("cpu", BAD_ADDRESS)
    assert rules == ["device_backend_fault"]
    assert found.ranking[0].cause == "device_backend_fault"
    assert confirmed(found) is None


def test_a_damaged_heap_on_one_device_only_is_still_a_damaged_heap() -> None:
    found, _ = device_verdict("cpu", died(messages=says("heap damaged", "free(): invalid pointer")))
    assert found.ranking[0].cause == "native_memory_corruption"


def test_where_another_axis_makes_the_difference_no_device_is_accused() -> None:
    _, rules = device_verdict("a2", BAD_ADDRESS)
    assert rules == []


def test_a_traceback_at_the_end_is_no_librarys_exit_because_the_end_of_the_interpreter_was_not_noted() -> None:
    """A program that has become another user, or has no descriptor left, cannot note it."""
    native = Exit(returncode=1, left_by="native code")
    error = raised("ValueError", "shapes do not match")
    last = failed(exit=native, python_error=error, output_tail=["step 7", "Traceback ...", "ValueError: shapes do not match"])
    found = verdict({("u", 1): last, ("v", 1): lived(), ("v", 2): lived()})
    assert (found.ranking[0].cause, found.ranking[0].grade) == ("python_exception", "supported")
    for other in (
        {**last, "output_tail": [*last["output_tail"], "step 8"]},  # it went on
        {**last, "exit": Exit(returncode=3, left_by="native code")},
    ):
        assert verdict({("u", 1): other, ("v", 1): lived(), ("v", 2): lived()}).ranking[0].cause == "library_exit"
