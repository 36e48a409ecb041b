"""What bounds a process beside its own limits: the room of its cgroup for processes and threads."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.evidence.settings import Settings, group_of_pids, watchers, watches

ROOT = Path("/sys/fs/cgroup/pids")  # of version 1, where a group can be made without further ado


@pytest.fixture
def group() -> Iterator[Path]:
    path = ROOT / f"test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no group of processes can be made here: {error}")
    yield path
    path.rmdir()


def test_a_group_says_how_many_processes_it_allows_and_has(group: Path) -> None:
    (group / "pids.max").write_text("24")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (group / "cgroup.procs").write_text(str(child.pid))
        assert group_of_pids(Path(f"/proc/{child.pid}/cgroup").read_text()) == (24, 1)
        (group / "pids.max").write_text("max")
        assert group_of_pids(Path(f"/proc/{child.pid}/cgroup").read_text()) == (None, None)
    finally:
        with contextlib.suppress(BrokenPipeError):
            child.communicate(b"\n", timeout=60)


STARTS_THREADS = """
import sys, threading
input()
stay = threading.Event()
refused = 0
for _ in range(8):
    try:
        threading.Thread(target=stay.wait).start()
    except RuntimeError:
        refused += 1
stay.set()
print(refused, flush=True)
input()
"""


def test_starts_that_the_kernel_refused_are_counted_though_nobody_looked_then(group: Path) -> None:
    (group / "pids.max").write_text("4")
    program = [sys.executable, "-c", STARTS_THREADS]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin and child.stdout
        (group / "cgroup.procs").write_text(str(child.pid))
        settings = Settings()
        settings.look(0.0, [child.pid], child.pid)
        print(file=child.stdin, flush=True)
        refused = int(child.stdout.readline())
        (bound,) = (bound for process in settings.record({}) for bound in process.bounds if bound.name == "pids")
        print(file=child.stdin, flush=True)
    assert refused > 0
    assert (bound.soft, bound.refused) == (4, refused)


def test_the_group_with_the_least_room_bounds_those_inside(group: Path) -> None:
    inner = group / "inner"
    inner.mkdir()
    (group / "pids.max").write_text("7")
    try:
        assert group_of_pids(f"8:pids:/{group.name}/inner\n") == (7, 0)
    finally:
        inner.rmdir()


def test_a_group_that_cannot_be_read_is_no_limit() -> None:
    assert group_of_pids("8:pids:/no/such/group\n1:name=systemd:/\n0::/nor/this\n") == (None, None)


WATCHES = """
import ctypes, os
libc = ctypes.CDLL(None)
files = [open(os.devnull) for _ in range(FILES)]
made = [fd for fd in (libc.inotify_init1(0) for _ in range(INSTANCES)) if fd >= 0]
print(len(made), flush=True)
input()
"""


@contextlib.contextmanager
def watching(instances: int, files: int) -> Iterator[tuple[int, int]]:
    """(pid of a child with that many inotify instances and other files, how many instances the kernel let it have)."""
    program = WATCHES.replace("INSTANCES", str(instances)).replace("FILES", str(files))
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield child.pid, int(child.stdout.readline())
        finally:
            with contextlib.suppress(BrokenPipeError):
                child.communicate("\n", timeout=60)


def test_the_watchers_of_files_that_a_process_has_are_counted_and_other_descriptors_are_not() -> None:
    with watching(3, 20) as (pid, made):
        assert watchers(f"/proc/{pid}/fd") == made


def test_watchers_of_files_are_told_with_the_limit_of_their_user_where_they_are_half_of_it_or_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = tmp_path / "max_user_instances"
    limit.write_text("4\n")
    monkeypatch.setattr("matrix.evidence.settings.WATCHERS", limit)

    def told(instances: int) -> list[tuple[int, int | None]]:
        settings = Settings()
        with watching(instances, 8) as (pid, made):
            if made < instances:
                pytest.skip("other programs of this user have all the inotify instances that it may have")
            settings.look(0.1, [pid], pid)
        return [(bound.soft, bound.used) for bound in settings.record({})[0].bounds if bound.name == "inotify"]

    assert (told(4), told(1)) == ([(4, 4)], [])


def test_what_a_process_watches_is_told_once_it_is_more_than_a_few(tmp_path: Path) -> None:
    program = f"""
import ctypes, os
libc = ctypes.CDLL(None)
instance = libc.inotify_init1(0)
for k in range(41):
    os.mkdir({str(tmp_path)!r} + f"/{{k}}")
    libc.inotify_add_watch(instance, ({str(tmp_path)!r} + f"/{{k}}").encode(), 0x100)
    if k in (3, 40):
        print(k + 1 if instance >= 0 else 0, flush=True)
        input()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        settings, told = Settings(), []
        for _ in range(2):
            made = int(child.stdout.readline())
            if made == 0:
                pytest.skip("other programs of this user have all the inotify instances that it may have")
            assert watches(f"/proc/{child.pid}") == made
            settings.look(0.1, [child.pid], child.pid)
            told.append([bound.used for bound in settings.record({})[0].bounds if bound.name == "watches"])
            child.stdin.write("\n")
            child.stdin.flush()
    assert told == [[], [41]]
