"""A child that stops or kills the guardian: nothing waits for ever, nothing is left alive."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.matrix import machine_needs, ordinary_user
from tests.matrix.command_line import (
    PATIENCE_S,
    TOOL,
    alive,
    environment,
    left_by,
    only_run,
    specification,
    verdict,
    wait_until,
)

# Leaves a daemon of its own session, without our mark in its environment, and then harms its parent.
HOSTILE = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        code = "import os, time; open('pids', 'a').write(str(os.getpid()) + chr(10)); time.sleep(600)"
        os.execve(sys.executable, [sys.executable, "-S", "-c", code], {})
    os._exit(0)
os.wait()
open("pids", "a").write(f"{os.getpid()}\\n")
print("step 1", flush=True)
while len(open("pids").read().split()) < 2: time.sleep(0.01)
if not os.path.exists("harmless"):
    os.kill(os.getppid(), signal.HARM)
time.sleep(AFTER)
"""
WITHOUT_GROUPS = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh"]


class Place:
    """A folder with a hostile program, and the tool run there."""

    def __init__(self, folder: Path, harm: str, after_s: float, tool: Sequence[str], env: Mapping[str, str]) -> None:
        self.folder, self.words, self.env = folder, [*tool, "run", "spec.yaml"], dict(env)
        (folder / "job.py").write_text(HOSTILE.replace("HARM", harm).replace("AFTER", str(after_s)))
        content = {
            "run": {"command": ["python", "job.py"]},
            "matrix": {"a": {"values": [1, 2], "env": ["A"]}},
            "executor": {"jobs": 1},
            "search": {"max_runs": 2},
        }
        specification(folder, content).chmod(0o644)
        self.tools: list[int] = []

    def start(self, *words: str) -> subprocess.Popen[str]:
        tool = subprocess.Popen(
            [*self.words, *words], cwd=self.folder, env=self.env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.tools.append(tool.pid)
        return tool

    def pids(self) -> list[int]:
        path = self.folder / "pids"
        return [int(word) for word in path.read_text().split()] if path.exists() else []

    def left(self) -> list[str]:
        return [f"process {pid}" for pid in self.pids() if alive(pid)] + [one for tool in self.tools for one in left_by(tool)]


@pytest.fixture(params=["with groups", "without groups", "an ordinary user"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, list[str], dict[str, str]]]:
    """Folder, command and environment of the tool, for those who have cgroups and for those who have none."""
    if request.param == "an ordinary user":
        if why := ordinary_user.lacking():
            pytest.skip(why)
        with ordinary_user.folder() as folder:
            yield folder, ordinary_user.tool(), ordinary_user.environment()
        return
    if request.param == "without groups" and (why := machine_needs.mounts()):
        pytest.skip(why)
    prefix = WITHOUT_GROUPS if request.param == "without groups" else []
    yield tmp_path, [*prefix, *TOOL], environment()


Made = tuple[Path, list[str], dict[str, str]]


@pytest.mark.slow
def test_a_child_that_kills_the_guardian_leaves_nothing_alive(place: Made) -> None:
    folder, tool, env = place
    hostile = Place(folder, "SIGKILL", 600, tool, env)
    _, said = (running := hostile.start()).communicate(timeout=PATIENCE_S)
    assert (running.returncode, "the guardian process was killed" in said) == (3, True), said
    assert len(hostile.pids()) >= 2, "the program did not come to its harm: the test has seen nothing"
    assert hostile.left() == []
    (folder / "harmless").touch()
    (folder / "job.py").write_text("print('step 1')")
    out, said = (running := hostile.start("--resume")).communicate(timeout=PATIENCE_S)
    assert (running.returncode, said) == (0, ""), out
    assert verdict(only_run(folder)).complete


@pytest.mark.slow
def test_a_child_that_stops_the_guardian_is_followed_to_its_end(place: Made) -> None:
    folder, tool, env = place
    hostile = Place(folder, "SIGSTOP", 0.2, tool, env)
    out, said = (running := hostile.start()).communicate(timeout=PATIENCE_S)
    assert (running.returncode, said) == (0, ""), out
    assert verdict(only_run(folder)).runs == 2
    assert hostile.left() == []


@pytest.mark.slow
def test_a_stopped_guardian_of_a_tool_that_was_killed_goes_with_the_next_start(place: Made) -> None:
    folder, tool, env = place
    hostile = Place(folder, "SIGSTOP", 600, tool, env)
    running = hostile.start()
    assert wait_until(lambda: len(hostile.pids()) == 2)
    stopped = next(pid for pid in guardians_of(hostile.tools[0]))
    os.kill(stopped, signal.SIGSTOP)
    os.kill(running.pid, signal.SIGKILL)
    running.wait()  # not for its pipes, which the guardian holds
    assert alive(stopped), "the tool had let it go on: the test has seen nothing"
    os.kill(stopped, signal.SIGSTOP)
    (folder / "job.py").write_text("print('step 1')")
    out, said = (running := hostile.start("--resume")).communicate(timeout=PATIENCE_S)
    assert (running.returncode, said) == (0, ""), out
    assert hostile.left() == []
    assert not alive(stopped)


def guardians_of(tool: int) -> Iterator[int]:
    import psutil

    for child in psutil.Process(tool).children(recursive=True):
        if any("guardian.py" in word for word in child.cmdline()):
            yield child.pid
