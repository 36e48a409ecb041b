"""The kernel's own lines about real deaths."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
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


def wait_for_lines(log: KernelLog, pids: set[int]) -> list[str]:
    deadline = time.monotonic() + 5
    while not (lines := log.lines_for(pids)[0]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return lines


@needs_log
def test_a_segfault_is_found_by_the_pid_and_other_deaths_are_not() -> None:
    log = KernelLog()
    first, second = (subprocess.Popen([sys.executable, "-c", "import ctypes; ctypes.string_at(0)"]) for _ in range(2))
    first.wait()
    second.wait()
    (line,) = wait_for_lines(log, {first.pid})
    assert f"[{first.pid}]: segfault at 0 ip" in line
    assert line.startswith("[")
    assert len(log.lines_for({first.pid, second.pid})[0]) == 2
    assert log.lines_for({1})[0] == []


@needs_log
def test_what_was_in_the_log_before_is_not_ours() -> None:
    child = subprocess.Popen([sys.executable, "-c", "import ctypes; ctypes.string_at(0)"])
    child.wait()
    assert KernelLog().lines_for({child.pid}) == ([], None)


@needs_log
@pytest.mark.skipif(Path("/proc/sys/kernel/core_pattern").read_text().strip() != "core", reason="cores go elsewhere here")
def test_a_segfault_in_a_thread_is_found_by_the_threads_of_the_core(tmp_path: Path) -> None:
    log = KernelLog()
    command = ["/bin/sh", "-c", 'ulimit -c 1024; exec "$0" "$1"', sys.executable, str(CHILDREN / "segfaults_in_a_thread.py")]
    child = subprocess.Popen(command, cwd=tmp_path)
    child.wait()
    notes = read_core(tmp_path / "core")
    assert notes
    (line,) = wait_for_lines(log, set(notes.threads))
    assert f"[{notes.threads[0]}]: segfault at 0" in line
    assert log.lines_for({child.pid})[0] == []


@needs_log
def test_an_illegal_instruction_is_found(tmp_path: Path) -> None:
    code = "import ctypes, mmap; m = mmap.mmap(-1, 4096, prot=7); m.write(b'\\x0f\\x0b'); a = ctypes.c_char.from_buffer(m)"
    log = KernelLog()
    child = subprocess.Popen([sys.executable, "-c", f"{code}; ctypes.CFUNCTYPE(None)(ctypes.addressof(a))()"])
    if child.wait() != -4:
        pytest.skip("the two bytes are no illegal instruction on this processor")
    (line,) = wait_for_lines(log, {child.pid})
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


def test_a_log_that_cannot_be_opened_is_reported_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kernel, "DEVICE", str(tmp_path / "absent"))
    monkeypatch.setattr(sys, "platform", "linux")
    why = f"{tmp_path}/absent: No such file or directory"
    assert KernelLog().lines_for({1}) == ([], NotCollected(what="kernel log", why=why))
