"""Who died first in a tree: the sources joined, the parts they are given, and what frameworks say about their workers."""

from __future__ import annotations

import pytest

from matrix.evidence.deaths import Said, Scene, deaths, said
from matrix.evidence.exits import ExitEvent
from matrix.records import Death, Exit

MAIN = 100


def scene(*, ending: Exit, events: dict[int, tuple[int, float]], end_s: float = 10.0, **more: object) -> Scene:
    parts: dict[str, object] = {"roles": {}, "kernel_lines": [], "said": [], **more}
    known = {pid: (ExitEvent(pid=pid, ppid=MAIN, status=status, monotonic_s=time_s), time_s) for pid, (status, time_s) in events.items()}
    return Scene(main=MAIN, ending=ending, end_s=end_s, events=known, **parts)  # type: ignore[arg-type]


def parts(found: list[Death]) -> list[tuple[int, str | None, str]]:
    return [(death.pid, death.signal, death.part) for death in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed. ", [Said(pid=77, signal="SIGKILL", status=None)]),
        (
            "RuntimeError: DataLoader worker (pid 77) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
            "shared memory. Please try to raise your shared memory limit.",
            [Said(pid=77, signal="SIGBUS", status=None)],
        ),
        (
            "RuntimeError: DataLoader worker (pid(s) 5, 6) exited unexpectedly",
            [Said(pid=5, signal=None, status=None), Said(pid=6, signal=None, status=None)],
        ),
        ("DataLoader worker (pid 77) exited unexpectedly with exit code 3. Details are lost", [Said(pid=77, signal=None, status=3)]),
        ("failed (exitcode: -9) local_rank: 1 (pid: 4242) of binary: /usr/bin/python3", [Said(pid=4242, signal="SIGKILL", status=None)]),
        ("ProcessExitedException: process 0 terminated with signal SIGSEGV", [Said(pid=None, signal="SIGSEGV", status=None)]),
        ("a worker (pid 3) was here", []),
    ],
)
def test_what_a_framework_prints_about_its_workers_is_read(text: str, expected: list[Said]) -> None:
    assert said(text) == expected


def test_the_earliest_death_initiates_and_the_parents_exception_follows() -> None:
    found = deaths(scene(ending=Exit(returncode=1), events={7: (9, 4.0), MAIN: (256, 5.0)}, roles={7: "worker"}, end_s=5.0))
    assert parts(found) == [(7, "SIGKILL", "initiating"), (MAIN, None, "cascade")]


@pytest.mark.parametrize("gone_s", [4.9, 5.0, 5.2])
def test_a_reader_that_crashed_began_it_also_when_it_is_gone_after_its_writer(gone_s: float) -> None:
    """Its pipes are closed, and SIGPIPE has ended the writer, before anybody can be told that it is gone."""
    found = deaths(scene(ending=Exit(returncode=-13, signal="SIGPIPE"), events={8: (25, gone_s), MAIN: (13, 5.0)}, end_s=5.0))
    assert parts(found) == [(8, "SIGXFSZ", "initiating"), (MAIN, "SIGPIPE", "cascade")]


@pytest.mark.parametrize(("gone_s", "step_s", "began"), [(4.5, 0.0, True), (1.0, 0.1, False), (1.0, 3.0, True), (4.9, 3.0, True)])
def test_a_reader_that_has_been_gone_for_longer_than_the_writer_needs_for_its_next_write_was_another(
    gone_s: float, step_s: float, began: bool
) -> None:
    ending, events = Exit(returncode=-13, signal="SIGPIPE"), {8: (11, gone_s), MAIN: (13, 5.0)}
    found = {pid: part for pid, _, part in parts(deaths(scene(ending=ending, events=events, end_s=5.0, step_s=step_s)))}
    assert found == ({8: "initiating", MAIN: "cascade"} if began else {8: "unknown", MAIN: "initiating"})


@pytest.mark.parametrize(("status", "gone_s"), [(9, 5.2), (15, 4.9), (25, 9.0)])
def test_what_ends_after_a_closed_pipe_ended_the_main_process_did_not_begin_it(status: int, gone_s: float) -> None:
    found = deaths(scene(ending=Exit(returncode=-13, signal="SIGPIPE"), events={8: (status, gone_s), MAIN: (13, 5.0)}, end_s=5.0))
    assert {pid: part for pid, _, part in parts(found)} == {8: "teardown", MAIN: "initiating"}


def test_workers_that_a_failing_parent_ends_politely_are_teardown() -> None:
    """A parent that raises ends its daemonic workers by SIGTERM before it is gone itself: they die first and did not begin it."""
    found = deaths(scene(ending=Exit(returncode=1), events={7: (15, 4.99), MAIN: (256, 5.0)}, roles={7: "worker"}, end_s=5.0))
    assert parts(found) == [(7, "SIGTERM", "teardown"), (MAIN, None, "initiating")]


def test_a_worker_that_the_message_names_initiates_whatever_its_signal() -> None:
    said_it = [Said(pid=7, signal="SIGTERM", status=None)]
    found = deaths(scene(ending=Exit(returncode=1), events={7: (15, 4.9), 8: (15, 4.99), MAIN: (256, 5.0)}, said=said_it, end_s=5.0))
    assert parts(found) == [(7, "SIGTERM", "initiating"), (8, "SIGTERM", "teardown"), (MAIN, None, "cascade")]


def test_without_kernel_events_the_message_alone_tells_of_the_worker() -> None:
    text = "DataLoader worker (pid 7) is killed by signal: Killed."
    worker, main = deaths(scene(ending=Exit(returncode=1), events={}, said=said(text)))
    assert (worker.pid, worker.role, worker.signal, worker.time_s, worker.part, worker.sources) == (
        7, "worker", "SIGKILL", None, "initiating", ["message"],
    )  # fmt: skip
    assert (main.pid, main.part) == (MAIN, "cascade")


def test_a_message_that_names_the_signal_counts_more_than_a_later_one_that_does_not() -> None:
    text = "DataLoader worker (pid 7) is killed by signal: Killed.\nRuntimeError: DataLoader worker (pid(s) 7) exited unexpectedly"
    worker, _ = deaths(scene(ending=Exit(returncode=1), events={}, said=said(text)))
    assert (worker.pid, worker.signal) == (7, "SIGKILL")


def test_a_helper_with_a_bad_status_does_not_begin_anything() -> None:
    found = deaths(scene(ending=Exit(returncode=1), events={7: (128 << 8, 1.0), MAIN: (256, 5.0)}, roles={7: "other"}, end_s=5.0))
    assert parts(found) == [(7, None, "unknown"), (MAIN, None, "initiating")]


def test_a_hang_is_begun_by_the_worker_that_died_before_it_and_not_by_our_own_kill() -> None:
    ending = Exit(returncode=-9, signal="SIGKILL", ended_by="idle")
    found = deaths(scene(ending=ending, events={7: (11, 2.0), 8: (9, 60.01), MAIN: (9, 60.02)}, end_s=60.0, roles={7: "worker"}))
    assert parts(found) == [(7, "SIGSEGV", "initiating"), (8, "SIGKILL", "teardown"), (MAIN, "SIGKILL", "teardown")]


def test_nothing_initiates_where_nothing_failed() -> None:
    found = deaths(scene(ending=Exit(returncode=0), events={7: (9, 2.0)}, roles={7: "worker"}))
    assert parts(found) == [(7, "SIGKILL", "unknown")]


def test_the_kernel_log_names_the_process_that_memory_ended() -> None:
    lines = ["[5.0] Memory cgroup out of memory: Killed process 7 (python) total-vm:1kB"]
    found = deaths(scene(ending=Exit(returncode=1), events={}, roles={7: "worker"}, kernel_lines=lines))
    worker = next(death for death in found if death.pid == 7)
    assert (worker.signal, worker.oom, worker.sources) == ("SIGKILL", True, ["kernel log"])
