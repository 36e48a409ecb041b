"""Who sent a SIGKILL, from the facts alone."""

from __future__ import annotations

import dataclasses

import pytest

from matrix.diagnosis import signals
from matrix.diagnosis.sigkill import Attribution, attribute
from matrix.records import Death, Exit, Limit, Memory, NotCollected, Observation, Scheduler, Trial

MIB, GIB = 1 << 20, 1 << 30
KILLED = Death(pid=7, role="main", signal="SIGKILL", status=None, time_s=3.0, part="initiating")
SEEN = Observation(
    attempt="0001-a",
    key="k",
    trial=Trial(id=1, cell={}),
    exit=Exit(returncode=-9, signal="SIGKILL"),
    wall_s=3.0,
    started_unix_s=0.0,
    deaths=[KILLED],
    memory=Memory(
        limit_bytes=2 * GIB, peak_group_bytes=400 * MIB, oom_kills=0, system_available_bytes=9 * GIB, last_tree_rss_bytes=300 * MIB
    ),
)
UNREADABLE = [NotCollected(what="kernel log", why="/dev/kmsg: Permission denied")]


def graded(**changes: object) -> Attribution | None:
    return attribute(dataclasses.replace(SEEN, **changes))  # type: ignore[arg-type]


def memory(**changes: object) -> Memory:
    return dataclasses.replace(SEEN.memory, **changes)  # type: ignore[arg-type]


def test_counter_and_log_line_prove_the_kernel() -> None:
    found = graded(deaths=[dataclasses.replace(KILLED, oom=True)], memory=memory(oom_kills=1))
    assert found == Attribution(
        grade="kernel, proven", text="the kernel's log says that it killed main 7 for memory and the group's counter rose to 1"
    )


def test_the_counter_alone_is_a_grade_below() -> None:
    found = graded(memory=memory(oom_kills=1), not_collected=UNREADABLE)
    assert found == Attribution(
        grade="kernel, by its counter", text="the group's counter of OOM kills rose to 1; the kernel log could not be read"
    )


def test_a_curve_at_its_limit_without_counter_and_log_is_said_to_be_that() -> None:
    found = graded(memory=memory(oom_kills=None, peak_group_bytes=2 * GIB - 1), not_collected=UNREADABLE)
    assert found is not None and found.grade == "memory at its limit"


def test_our_own_watchdog_is_never_blamed_on_others() -> None:
    ours = Exit(returncode=-9, signal="SIGKILL", ended_by="memory_watchdog")
    found = graded(exit=ours, deaths=[dataclasses.replace(KILLED, part="teardown")])
    assert found is not None and found.grade == "our own limit"


def test_the_hard_limit_of_processor_time_is_our_own() -> None:
    limits = [Limit(name="cpu_time", asked=2, had=2, by="rlimit")]
    found = graded(limits=limits, exit=Exit(returncode=-9, signal="SIGKILL", cpu_s=3.01))
    assert found is not None and found.grade == "our own limit"


def test_a_kill_from_outside_says_what_was_looked_at() -> None:
    assert graded() == Attribution(
        grade="another process",
        text="main 7 was killed from outside: no oom line in the kernel log names a process of it, the group's counter of OOM kills "
        "stayed 0, memory peaked at 400 MiB of a limit of 2.0 GiB with 9.0 GiB free on the machine",
    )


def test_where_nothing_could_be_looked_at_nobody_is_blamed() -> None:
    found = graded(memory=memory(oom_kills=None, limit_bytes=None), not_collected=UNREADABLE)
    assert found is not None and found.grade == "unknown"
    assert "the kernel log could not be read, no counter of OOM kills could be read" in found.text


def test_a_worker_that_was_killed_is_attributed_too() -> None:
    worker = dataclasses.replace(KILLED, role="worker", pid=9)
    found = graded(exit=Exit(returncode=1), deaths=[worker])
    assert found is not None and found.text.startswith("worker 9 was killed from outside")


def test_our_own_end_of_a_hang_is_no_kill_to_attribute() -> None:
    ours = Exit(returncode=-9, signal="SIGKILL", ended_by="idle")
    assert graded(exit=ours, deaths=[dataclasses.replace(KILLED, part="teardown")]) is None


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ({"state": "COMPLETING", "reason": "TimeLimit"}, "watchdog_or_time_limit"),
        ({"state": "RUNNING", "preempted": True}, "external_signal"),
        ({"state": "COMPLETING", "requeued": True}, "external_signal"),
        ({"state": "COMPLETING"}, "external_signal"),
        ({"ends_unix_s": SEEN.started_unix_s + SEEN.wall_s - 3}, "watchdog_or_time_limit"),  # it did not answer
        ({"ends_unix_s": SEEN.started_unix_s + SEEN.wall_s + 60}, ""),
        ({"state": "RUNNING", "ends_unix_s": 0.0}, ""),
    ],
)
def test_a_schedulers_account_says_whether_time_or_a_person_ended_the_job(said: dict[str, object], cause: str) -> None:
    job = Scheduler(name="slurm", job="7", **said)  # type: ignore[arg-type]
    found = list(signals.findings(dataclasses.replace(SEEN, scheduler=job), "SIGKILL"))
    supported = {one.cause for one in found if one.rule == "scheduler" and one.weight > 0}
    assert supported == ({cause} if cause else set())
