"""The autopsy of jobs that run: what hangs is not called hung, what works is not called still, and nothing is ended."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import psutil
import pytest

from matrix.console import Span
from matrix.evidence.processes import command
from matrix.explain.autopsy import Autopsy, CannotLook, examine
from matrix.explain.autopsy_page import text
from tests.matrix.command_line import CAN_DROP_RIGHTS, NO_RIGHTS, matrix
from tests.matrix.explaining import refused

Start = Callable[..., subprocess.Popen[bytes]]
SECRET = "hunter2hunter2hunter2"
WAITS = """
import multiprocessing, sys
def waits(queue):
    print("step 3/100", flush=True)
    queue.get()
context = multiprocessing.get_context("fork")
queue = context.Queue()
child = context.Process(target=waits, args=(queue,))
child.start()
child.join()
"""
WORKS = "def squares(): return sum(number * number for number in range(20000))\nwhile True:\n" + "    squares()\n" * 60
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A program in the background with its output in out.log; ended with all below it."""
    running: list[subprocess.Popen[bytes]] = []

    def go(program: str | list[str], *words: str, says: bytes = b"") -> subprocess.Popen[bytes]:
        script, log = tmp_path / "job.py", tmp_path / "out.log"
        script.write_text(program if isinstance(program, str) else "")
        argv = [sys.executable, str(script), *words] if isinstance(program, str) else program
        with log.open("wb") as sink:
            running.append(subprocess.Popen(argv, stdout=sink, stderr=sink, cwd=tmp_path, env=os.environ | {"HF_TOKEN": SECRET}))
        deadline = time.monotonic() + 60
        while says not in log.read_bytes() and time.monotonic() < deadline:
            time.sleep(0.05)
        return running[-1]

    yield go
    for process in running:
        with contextlib.suppress(psutil.Error):
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
        process.kill()
        process.wait()


def autopsy(pid: int, folder: Path, every: str = "0.3") -> dict[str, Any]:
    done = matrix("explain", "--pid", str(pid), "--every", every, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@linux
def test_a_tree_that_waits_is_still_and_is_not_called_hung_nor_ended(start: Start, tmp_path: Path) -> None:
    job = start(WAITS, f"--token={SECRET}", says=b"step 3/100")
    found = autopsy(job.pid, tmp_path)
    assert found["state"] == "still"
    assert "that it hangs" in found["does_not_prove"]
    assert found["last_step"] == 3
    assert [one["class"] for one in found["processes"]] == ["child", "pipe or queue"]
    assert any("queues.py" in frame for frame in found["processes"][1]["stack"])
    assert all(one["same_stack"] for one in found["processes"])
    assert {entry["grade"] for entry in found["ranking_if_it_hangs"]} == {"suspected"}
    assert max(entry["probability"] for entry in found["ranking_if_it_hangs"]) <= 0.7
    assert job.poll() is None
    assert {psutil.Process(one["pid"]).status() for one in found["processes"]} == {"sleeping"}
    with zipfile.ZipFile(tmp_path / found["package"]) as package:
        names = set(package.namelist())
        assert {"attempts/0001-autopsy/stacks.txt", "attempts/0001-autopsy/threads.txt", "report.html", "SUMMARY.md"} <= names
        assert not any(SECRET.encode() in package.read(name) for name in names)


def test_times_are_written_as_in_a_specification() -> None:
    span = Span(least=0.2, most=600)
    assert [span.convert(value, None, None) for value in ("500ms", "1m30s", "2", 2.0)] == [0.5, 90, 2, 2]
    for wrong in ("1h30m", "soon", "0", "100ms"):
        with pytest.raises(click.BadParameter, match=r"allowed|between"):
            span.convert(wrong, None, None)


def look(pid: int, every_s: float = 0.3) -> Autopsy:
    return examine(pid, looks=3, every_s=every_s)


@linux
def test_a_job_that_works_moves_and_nothing_is_ranked(start: Start) -> None:
    found = look(start(WORKS).pid, every_s=1)
    assert (found.state, found.ranking) == ("moves", [])


@linux
def test_a_program_that_is_not_python_says_why_there_is_no_stack_and_what_would_prove_a_hang(start: Start, tmp_path: Path) -> None:
    job = start(["sleep", "300"])
    found = look(job.pid)
    assert (found.state, found.classes) == ("still", {job.pid: "sleep"})
    assert any("python" in gap.why.lower() for gap in found.observation.not_collected if gap.what.startswith("stack"))
    words = " ".join(text(found, tmp_path, None).split())
    assert "no output; not seen: stacks does not prove: that it hangs" in words and "no stack that changed" not in words
    assert "What would prove a hang: no step for ten times the longest gap" in words
    assert f"watch --pid {job.pid}" in words


@linux
def test_a_loop_at_one_place_is_neither_still_nor_moving(start: Start) -> None:
    job = start("while True: pass")
    found = look(job.pid, every_s=1)
    assert found.state in ("busy at one place", "between")  # how much of a processor it gets is the machine's load
    assert found.classes == {job.pid: "spin"}


@linux
def test_a_loop_without_a_python_stack_is_not_said_to_be_at_one_place(start: Start, tmp_path: Path) -> None:
    found = look(start(["sh", "-c", "while :; do :; done"]).pid, every_s=1)
    assert found.state in ("busy", "between")
    assert "one place at every look" not in text(found, tmp_path, None)


@linux
def test_a_command_that_has_just_been_started_is_never_taken_for_one_of_the_kernels(start: Start) -> None:
    """Within an exec a process shows no words; one that never shows any is the kernel's own, which says so at once."""
    for _ in range(50):
        assert command(start(["sleep", "300"]).pid)[-2:] != []
    kernels = Path("/proc/2/comm")
    if not kernels.exists() or kernels.read_text() != "kthreadd\n":
        pytest.skip("the kernel's own processes are not seen from here")
    with pytest.raises(CannotLook, match="kernel's own"):
        look(2)


@linux
def test_a_path_that_names_another_file_than_its_output_is_not_read(start: Start, tmp_path: Path) -> None:
    """As when a job in a container writes to a path that exists outside too, with something else in it."""
    job = start(["sleep", "300"])
    (tmp_path / "out.log").unlink()
    (tmp_path / "out.log (deleted)").write_text("step 7/9\n")
    found = look(job.pid)
    assert (found.observation.progress.last_step, found.looks[-1].logs) == (None, [])


@linux
def test_output_that_grows_is_a_sign_of_life(start: Start) -> None:
    ticks = "import time, itertools\nfor n in itertools.count(): print('step', n, flush=True); time.sleep(0.1)"
    found = look(start(ticks, says=b"step 1").pid)
    assert found.state == "moves"
    assert found.observation.progress.last_step
    assert found.silent_s is not None


@linux
@pytest.mark.skipif(not CAN_DROP_RIGHTS, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_to_is_refused_before_the_look(start: Start, tmp_path: Path) -> None:
    job = start(["sleep", "300"])
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o555)
    done = matrix("explain", "--pid", str(job.pid), "--every", "600", cwd=closed, prefix=NO_RIGHTS)
    assert done.returncode == 3
    assert done.stderr.startswith("an autopsy writes a run folder, and ")


@linux
@pytest.mark.slow
def test_the_folder_can_be_packed_again_and_says_that_it_still_ran(start: Start, tmp_path: Path) -> None:
    found = autopsy(start(["sleep", "300"]).pid, tmp_path)
    done = matrix("package", found["folder"], "--extended", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "it still ran" in (tmp_path / found["folder"] / "report.md").read_text()


def test_who_cannot_be_looked_at_is_a_clear_error() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert f"there is no process {gone.pid}" in refused("--pid", str(gone.pid))
    assert "the system itself" in refused("--pid", "1")


@linux
def test_a_zombie_is_sent_to_its_parent() -> None:
    zombie = subprocess.Popen([sys.executable, "-c", ""])
    deadline = time.monotonic() + 30
    while psutil.Process(zombie.pid).status() != psutil.STATUS_ZOMBIE and time.monotonic() < deadline:
        time.sleep(0.05)
    said = refused("--pid", str(zombie.pid))
    zombie.wait()
    assert "has ended already" in said


@linux
@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_another_users_process_is_refused_with_the_owner(start: Start) -> None:
    job = start(["sleep", "300"])
    program = "import os; from matrix.explain.autopsy import examine; os.setgid(65534); os.setuid(65534); "
    done = subprocess.run([sys.executable, "-c", f"{program} examine({job.pid}, looks=2, every_s=0.2)"], capture_output=True, text=True)
    assert "belongs to root" in done.stderr
