"""The autopsy of real processes that hang in known places."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.evidence import processes
from matrix.evidence.processes import autopsy, mines

HOOK = Path(__file__).parents[2] / "matrix/runner/hook"
CHILDREN = Path(__file__).parents[1] / "children"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="states and wait channels are read from /proc")
PY_SPY = Path(sys.executable).with_name("py-spy").exists() or shutil.which("py-spy") is not None


def start(folder: Path, *argv: str, hook: bool = True) -> tuple[subprocess.Popen[str], str]:
    """A child and the first line that it printed."""
    env = {**os.environ, "PYTHONPATH": str(HOOK) if hook else "", "MATRIX_HOOK_DIR": str(folder)}
    child = subprocess.Popen([sys.executable, *argv], env=env, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    return child, child.stdout.readline()


def end(child: subprocess.Popen[str], *others: int) -> None:
    for pid in (*others, child.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    child.communicate()


@pytest.fixture
def spinning(tmp_path: Path) -> Iterator[tuple[int, int]]:
    """Pids of a parent that waits and of its forked child that spins in a second thread."""
    child, line = start(tmp_path, str(CHILDREN / "forked_child_spins.py"))
    yield child.pid, int(line)
    end(child, int(line))


def test_a_waiting_parent_and_a_spinning_worker_are_told_apart(spinning: tuple[int, int]) -> None:
    main, worker = autopsy(set(spinning), 0.5)
    assert (main.pid, main.role, main.state, main.threads) == (spinning[0], "main", "S", 1)
    assert (worker.pid, worker.role, worker.ppid, worker.threads) == (spinning[1], "worker", spinning[0], 2)
    assert main.cpu_delta_s == 0
    assert worker.cpu_delta_s > 0.05
    assert main.wchan == "do_wait"


@pytest.mark.skipif(not PY_SPY, reason="py-spy is not installed")
def test_py_spy_shows_the_main_thread_first_and_then_the_others(spinning: tuple[int, int]) -> None:
    _, worker = autopsy(set(spinning), 0.1)
    cut = worker.stack.index("-- thread miner")
    assert any(frame.startswith("forked_child_spins.py:") and frame.endswith("in wait_for_the_other") for frame in worker.stack[:cut])
    assert any(frame.endswith("in spin") for frame in worker.stack[cut:])


def test_without_py_spy_the_hook_is_asked(spinning: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_py_spy", lambda pid, *options: [])
    main, worker = autopsy(set(spinning), 0.1)
    assert main.stack == ["forked_child_spins.py:24 in <module>"]
    assert worker.stack[:2] == ["forked_child_spins.py:16 in wait_for_the_other", "forked_child_spins.py:23 in <module>"]
    assert any(frame.endswith("in spin") for frame in worker.stack[2:])


def test_a_process_that_became_another_program_is_sent_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_py_spy", lambda pid, *options: [])
    child, _ = start(tmp_path, "-c", "import os; os.execvp('sh', ['sh', '-c', 'echo ready; sleep 60 & wait'])")
    (seen,) = autopsy({child.pid}, 0.1)
    assert seen.stack == []
    assert child.poll() is None
    group = subprocess.run(["ps", "-o", "pid=", "--ppid", str(child.pid)], capture_output=True, text=True).stdout.split()
    end(child, *map(int, group))


def test_a_process_without_the_hook_is_sent_no_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "_py_spy", lambda pid, *options: [])
    child, _ = start(tmp_path, str(CHILDREN / "waits_for_a_signal.py"), hook=False)
    (seen,) = autopsy({child.pid}, 0.1)
    assert (seen.stack, seen.state, child.poll()) == ([], "S", None)
    end(child)


def test_processes_that_are_gone_are_left_out() -> None:
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    assert autopsy({child.pid}, 0.0) == []


def test_a_loader_worker_that_searches_for_neighbours_is_no_miner() -> None:
    search = ["faiss/swigfaiss.py:1 in search", "dataset.py:9 in __getitem__"]
    assert mines(search) and not mines([*search, "worker.py:349 in _worker_loop"])
