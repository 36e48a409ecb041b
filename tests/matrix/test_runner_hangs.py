"""A hang of each class, with a real child that hangs, told apart by the autopsy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.diagnosis.hangs import HangClass, classes, hang_class
from matrix.records import Observation, ProcessSeen
from matrix.runner import attempt, patience
from matrix.runner.patience import Limits
from tests.matrix.conftest import Observe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
needs_py_spy = pytest.mark.skipif(
    shutil.which("py-spy") is None and not Path(sys.executable).with_name("py-spy").exists(), reason="needs py-spy (extra: stacks)"
)
STEP = "print('step 1', flush=True)\n"
LOCK_AFTER_FORK = """
import os, threading, time
lock = threading.Lock()
def hold():
    with lock:
        time.sleep(100)
threading.Thread(target=hold, daemon=True).start()
time.sleep(0.2)
pid = os.fork()
if pid == 0:
    lock.acquire()
print('step 1', flush=True)
os.waitpid(pid, 0)
"""
INTERPRETER_LOCK = """
import ctypes, threading, time
print('step 1', flush=True)
threading.Thread(target=lambda: ctypes.PyDLL(None).sleep(60), daemon=True).start()
time.sleep(0.2)
"""


def hang_of(seen: Observation, role: str = "main") -> HangClass:
    (process,) = [process for process in seen.processes if process.role == role]
    return classes(seen)[process.pid]


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        pytest.param(STEP + "while True: pass", "spin", id="spin"),
        pytest.param(STEP + "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()", "lock", id="lock"),
        pytest.param(STEP + "import os; os.read(os.pipe()[0], 1)", "pipe or queue", id="pipe"),
        pytest.param(STEP + "import multiprocessing as m; m.get_context('fork').Queue().get()", "pipe or queue", id="queue of processes"),
        pytest.param(STEP + "import queue; queue.Queue().get()", "pipe or queue", id="queue of threads", marks=needs_py_spy),
        pytest.param(STEP + "import subprocess; subprocess.run(['sleep', '60'])", "child", id="child"),
        pytest.param(STEP + "import time; time.sleep(60)", "sleep", id="sleep"),
        pytest.param(INTERPRETER_LOCK, "interpreter lock", id="interpreter lock", marks=needs_py_spy),
    ],
)
def test_what_a_hanging_process_waits_for_is_told(
    observe: Observe, monkeypatch: pytest.MonkeyPatch, program: str, expected: HangClass
) -> None:
    monkeypatch.setattr(patience, "STRETCHED", 1000)  # however little of a processor the one that spins has here
    seen = observe(program, limits=Limits(idle_s=1, stall_s=2))
    assert seen.exit.ended_by in ("idle", "stall")
    assert hang_of(seen) == expected, seen.processes


def test_a_lock_that_a_thread_held_when_the_process_was_forked_is_told(observe: Observe) -> None:
    seen = observe(LOCK_AFTER_FORK, limits=Limits(idle_s=1))
    assert (hang_of(seen), hang_of(seen, "worker")) == ("child", "lock that no thread holds after fork")


@needs_py_spy
def test_the_thread_that_keeps_the_interpreter_lock_is_named(observe: Observe) -> None:
    seen = observe(INTERPRETER_LOCK, limits=Limits(idle_s=1))
    assert [process.gil_holder for process in seen.processes] == ["Thread-1 (<lambda>)"]


@pytest.mark.parametrize(("state", "wchan"), [("D", "folio_wait_bit"), ("S", "nfs_wait_bit_killable")])
def test_a_process_that_waits_for_a_disk_is_told(state: str, wchan: str) -> None:
    assert hang_class(ProcessSeen(pid=1, ppid=0, role="main", name="python", state=state, wchan=wchan), ()) == "disk"


def test_who_is_held_up_beyond_memory_high_does_not_wait_for_a_disk() -> None:
    held = ProcessSeen(pid=1, ppid=0, role="main", name="python", state="D", wchan="__mem_cgroup_handle_over_high")
    assert hang_class(held, ()) == "memory.high"


@pytest.mark.parametrize(("cpu_s", "expected"), [(0.0, "interpreter lock"), (0.02, "interpreter lock"), (0.5, "spin")])
def test_who_only_happened_to_be_awake_does_not_spin(cpu_s: float, expected: HangClass) -> None:
    awake = ProcessSeen(pid=1, ppid=0, role="main", name="python", state="R", cpu_delta_s=cpu_s, window_s=1.0, gil_holder="Thread-1")
    assert hang_class(awake, ()) == expected


# ------------------------------------------------------------------ state D
@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Path]:
    """A file system on which every write waits within the kernel, beyond the reach of SIGKILL, until it is thawed."""
    tools = [shutil.which(name, path=f"{os.environ['PATH']}:/sbin:/usr/sbin") for name in ("mkfs.ext4", "mount", "umount", "fsfreeze")]
    if os.geteuid() or not all(tools):
        pytest.skip("needs root, mkfs.ext4 and fsfreeze")
    mkfs, mount, umount, freeze = map(str, tools)
    image, folder = tmp_path / "image", tmp_path / "frozen"
    folder.mkdir()
    image.write_bytes(b"")
    os.truncate(image, 8 << 20)
    subprocess.run([mkfs, "-q", "-F", image], check=True)
    if subprocess.run([mount, "-o", "loop", image, folder], capture_output=True).returncode:
        pytest.skip("no loop device can be had here")
    try:
        subprocess.run([freeze, "-f", folder], check=True)
        yield folder
    finally:
        subprocess.run([freeze, "-u", folder], capture_output=True)
        for _ in range(50):
            if not subprocess.run([umount, folder], capture_output=True).returncode:
                break
            time.sleep(0.1)


def thaw_once_killed(folder: Path) -> None:
    """Wait until somebody has sent SIGKILL to the process that waits for this folder."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                pending = next(line for line in status.read_text().splitlines() if line.startswith("ShdPnd"))
                if int(pending.split()[1], 16) >> 8 & 1 and str(folder) in (status.parent / "cmdline").read_text():
                    subprocess.run(["fsfreeze", "-u", folder], env={"PATH": "/sbin:/usr/sbin:/bin:/usr/bin"})
                    return
            except (OSError, StopIteration):
                continue
        time.sleep(0.05)


def test_a_process_that_waits_for_a_dead_disk_is_told(observe: Observe, frozen: Path) -> None:
    thaw = threading.Thread(target=thaw_once_killed, args=(frozen,))
    thaw.start()
    seen = observe(STEP + f"open({str(frozen / 'log')!r}, 'w').write('x')", limits=Limits(idle_s=1, stall_s=3))
    thaw.join()
    (process,) = [process for process in seen.processes if process.role == "main"]
    assert (seen.exit.ended_by, process.state, hang_of(seen)) == ("stall", "D", "disk"), process
    assert any("open" in frame or "<module>" in frame for frame in process.stack) or not process.stack


@pytest.mark.slow
def test_a_process_that_no_signal_ends_does_not_stop_the_tool(observe: Observe, frozen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempt, "GIVE_UP_S", 2.0)
    seen = observe(STEP + f"open({str(frozen / 'log')!r}, 'w').write('x')", limits=Limits(stall_s=2))
    assert (seen.exit.ended_by, seen.exit.returncode) == ("stall", None)
    assert "exit status" in {missing.what for missing in seen.not_collected}
    assert hang_of(seen) == "disk"


def test_a_parent_that_waits_for_a_child_to_become_a_program_waits_for_no_disk(observe: Observe, tmp_path: Path) -> None:
    """vfork: state D as well."""
    os.mkfifo(tmp_path / "never")
    actions = f"[(os.POSIX_SPAWN_OPEN, 9, {str(tmp_path / 'never')!r}, os.O_RDONLY, 0)]"
    seen = observe(
        STEP + f"import os; os.posix_spawn('/bin/true', ['true'], {{}}, file_actions={actions})", limits=Limits(idle_s=1, stall_s=2)
    )
    assert (seen.exit.ended_by, hang_of(seen)) == ("stall", "child"), seen.processes
