"""A hang of each class, with a real child that hangs, told apart by the autopsy."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from matrix.diagnosis.hangs import HangClass, classes, hang_class
from matrix.records import Observation, ProcessSeen
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
def test_what_a_hanging_process_waits_for_is_told(observe: Observe, program: str, expected: HangClass) -> None:
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
