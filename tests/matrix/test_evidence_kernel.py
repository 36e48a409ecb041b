"""The kernel's own lines about real deaths."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from matrix.evidence import kernel
from matrix.evidence.core_notes import read_core
from matrix.evidence.kernel import KernelLog
from matrix.records import NotCollected

CHILDREN = Path(__file__).parents[1] / "children"
V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")
LIMIT_BYTES = 48 << 20


def can_read_the_log() -> bool:
    return KernelLog().lines_for(set())[1] is None


needs_log = pytest.mark.skipif(not can_read_the_log(), reason="the kernel log cannot be read here")


def wait_for_lines(log: KernelLog, pids: set[int], most_s: float = 5) -> list[str]:
    deadline = time.monotonic() + most_s
    while not (lines := log.lines_for(pids)[0]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return lines


def told(die: Callable[[], set[int]]) -> tuple[KernelLog, list[str]]:
    """The log, and its line for each of the processes that `die` names.  The kernel writes ten such lines in five seconds and drops the
    rest (kernel.printk_ratelimit), and other tests crash at the same time: so what it said nothing of dies again."""
    for _ in range(5):
        log, lines = KernelLog(), list[str]()
        for pid in die():
            lines += wait_for_lines(log, {pid}, most_s=2) or ["nothing"]
        if "nothing" not in lines:
            break
        time.sleep(5)
    return log, lines


def ended(*codes: str) -> list[subprocess.Popen[bytes]]:
    children = [subprocess.Popen([sys.executable, "-c", code]) for code in codes]
    for child in children:
        child.wait()
    return children


@needs_log
def test_a_segfault_is_found_by_the_pid_and_other_deaths_are_not() -> None:
    died: list[int] = []

    def die() -> set[int]:
        died[:] = [child.pid for child in ended(*["import ctypes; ctypes.string_at(0)"] * 2)]
        return {*died}

    log, _ = told(die)
    (line,) = log.lines_for({died[0]})[0]
    assert f"[{died[0]}]: segfault at 0 ip" in line
    assert line.startswith("[")
    assert len(log.lines_for({*died})[0]) == 2
    assert log.lines_for({1})[0] == []


@needs_log
def test_what_was_in_the_log_before_is_not_ours() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import ctypes; ctypes.string_at(0)"])
    child.wait()
    assert KernelLog().lines_for({child.pid}) == ([], None)


@needs_log
@pytest.mark.skipif(Path("/proc/sys/kernel/core_pattern").read_text().strip() != "core", reason="cores go elsewhere here")
def test_a_segfault_in_a_thread_is_found_by_the_threads_of_the_core(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", 'ulimit -c 1024; exec "$0" "$1"', sys.executable, str(CHILDREN / "segfaults_in_a_thread.py")]
    died: list[tuple[int, int]] = []  # process and thread

    def die() -> set[int]:
        child = subprocess.Popen(command, cwd=tmp_path)
        child.wait()
        notes = read_core(tmp_path / "core")
        assert notes
        died.append((child.pid, notes.threads[0]))
        return {notes.threads[0]}

    log, (line,) = told(die)
    pid, thread = died[-1]
    assert f"[{thread}]: segfault at 0" in line
    assert log.lines_for({pid})[0] == []


@needs_log
def test_an_illegal_instruction_is_found(tmp_path: Path) -> None:
    code = "import ctypes, mmap; m = mmap.mmap(-1, 4096, prot=7); m.write(b'\\x0f\\x0b'); a = ctypes.c_char.from_buffer(m)"

    def die() -> set[int]:
        (child,) = ended(f"{code}; ctypes.CFUNCTYPE(None)(ctypes.addressof(a))()")
        if child.returncode != -4:
            pytest.skip("the two bytes are no illegal instruction on this processor")
        return {child.pid}

    _, (line,) = told(die)
    assert "trap invalid opcode" in line


@pytest.fixture
def memory_group() -> Iterator[Path]:
    """A memory cgroup with a small limit, v1 or v2."""
    base, limit = (V1, "memory.limit_in_bytes") if V1.is_dir() else (V2, "memory.max")
    group = base / f"mx-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / limit).write_text(str(LIMIT_BYTES))
    except OSError as problem:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no memory cgroup can be made here: {problem}")
    yield group
    group.rmdir()


@needs_log
def test_an_out_of_memory_kill_is_found_with_its_group(memory_group: Path) -> None:
    log = KernelLog()
    code = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); keep = [bytearray(1 << 20) for _ in range(400)]"
    child = subprocess.Popen([sys.executable, "-c", code, str(memory_group / "cgroup.procs")])
    assert child.wait() == -9
    wait_for_lines(log, {child.pid})
    lines = log.lines_for({child.pid})[0]
    assert any(f"task_memcg=/{memory_group.name}" in line and f"oom_memcg=/{memory_group.name}" in line for line in lines)
    assert any(f"Killed process {child.pid} (" in line for line in lines)
    assert any(f"limit {LIMIT_BYTES >> 10}kB" in line for line in lines), "the limit that was met"


def test_a_log_that_cannot_be_opened_is_reported_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernel, "DEVICE", str(tmp_path / "absent"))
    monkeypatch.setattr(sys, "platform", "linux")
    why = f"{tmp_path}/absent: No such file or directory"
    assert KernelLog().lines_for({1}) == ([], NotCollected(what="kernel log", why=why))
