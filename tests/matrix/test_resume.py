"""Whatever ends the tool, what is complete is kept, nothing is run twice, and nothing is left behind."""

from __future__ import annotations

import os
import random
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path

import pytest

from matrix.__main__ import resume_command
from matrix.runner import cgroup
from matrix.runner.launcher import SHORT_TEMP
from tests.matrix.command_line import (
    PATIENCE_S,
    alive,
    complete,
    environment,
    kill,
    left_by,
    matrix,
    observations,
    only_run,
    registrations,
    specification,
    start,
    verdict,
    wait_until,
)

# Says that it was started, leaves what an OpenMP runtime leaves in /dev/shm, and works for a moment with a worker.
PROGRAM = """
import os, pathlib, sys, time
number = sys.argv[1]
with open("LOG", "a") as log:
    log.write(f"{number} {os.getpid()}\\n")
pathlib.Path(f"/dev/shm/__KMP_REGISTERED_LIB_{os.getpid()}_{os.getuid()}").write_text("0x1-cafe-libomp.so")
print("step 1", flush=True)
if os.fork() == 0:
    time.sleep(300)
time.sleep(WORK)
if "bad" in sys.argv:
    os.abort()
print("step 2", flush=True)
"""
ENDED = re.compile(r"\d{4}-[0-9a-f]{8}  .*: (died|survived)")


Complete = dict[str, tuple[bytes, int, int]]  # by attempt: its observation, when that was written, how often its program was started


class Place:
    """A folder with a specification and its program, and every start of the tool there."""

    def __init__(self, folder: Path, *, work_s: float, jobs: int = 2) -> None:
        self.folder = folder
        self.log = folder.with_name(f"{folder.name}-started.log")  # elsewhere: files of the program get their old content back
        self.tools: list[int] = []
        self.program(work_s)
        content = {
            "run": {"command": ["python", "job.py", "{attempt}"]},
            "matrix": {"mode": ["bad", "good"], "size": [1, 2], "colour": ["red", "blue"]},
            "executor": {"jobs": jobs},
        }
        specification(folder, content)

    def program(self, work_s: float) -> None:
        (self.folder / "job.py").write_text(PROGRAM.replace("WORK", str(work_s)).replace("LOG", str(self.log)))

    def start(self, *words: str) -> subprocess.Popen[str]:
        resumable = list(self.folder.glob("runs/*/*/attempts"))
        tool = start("run", "spec.yaml", *(["--resume"] if resumable else []), *words, cwd=self.folder)
        self.tools.append(tool.pid)
        return tool

    @property
    def run(self) -> Path:
        return only_run(self.folder)

    def complete(self) -> Complete:
        found = complete(self.run) if list(self.folder.glob("runs/*/*")) else {}
        starts = Counter(number for number, _ in self.started())
        return {name: (*written, starts[int(name[:4])]) for name, written in found.items()}

    def started(self) -> list[tuple[int, int]]:
        """Number of the attempt and pid, of every start of the program."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(int(number), int(pid)) for number, pid in map(str.split, lines)]

    def left(self) -> list[str]:
        pids = [pid for _, pid in self.started()]
        return [thing for tool in self.tools for thing in left_by(tool)] + registrations(pids) + [str(pid) for pid in pids if alive(pid)]

    def finish(self) -> None:
        """Go on to the end, and check that everything that was complete before is part of it."""
        before = self.complete()
        tool = self.start()
        _, said = tool.communicate(timeout=PATIENCE_S)
        assert (tool.returncode, said) == (0, "")
        after = self.complete()
        assert {name: after.get(name) for name in before} == before
        assert verdict(self.run).outcomes.keys() == after.keys()
        assert verdict(self.run).complete
        assert {path.parent.name for path in self.run.glob("attempts/*/attempt.json")} == after.keys()
        assert not list(self.run.glob("**/.*.part"))
        assert self.left() == []


def after_some_attempts(tool: subprocess.Popen[str], wanted: int) -> None:
    """Reads its output until that many attempts have ended in it, or it ends."""
    assert tool.stdout is not None
    while wanted > 0 and (line := tool.stdout.readline()):
        wanted -= bool(ENDED.match(line))


@pytest.mark.parametrize("seed", [0, 1])
def test_whatever_moment_the_tool_is_killed_at_nothing_complete_is_lost_or_run_twice(tmp_path: Path, seed: int) -> None:
    """Five moments, each in the run that goes on from the one before."""
    rng = random.Random(seed)
    place = Place(tmp_path, work_s=0.05)
    seen: Complete = {}
    for kill_number in range(5):
        tool = place.start()
        after_some_attempts(tool, len(seen) + rng.choice((0, 1, 2)))
        time.sleep(rng.uniform(0, 0.3))
        kill(tool, guardian=False)
        assert wait_until(lambda: not place.left()), (kill_number, place.left())  # the guardian does it, without another start
        now = place.complete()
        assert {name: now.get(name) for name in seen} == seen
        seen = now
    assert seen, "no attempt was complete at any of these moments: the test has seen nothing"
    place.finish()


def test_what_was_made_for_an_attempt_that_had_not_started_yet_is_removed_too(tmp_path: Path) -> None:
    """A moment of a few milliseconds, held open here."""
    code = (
        "import sys, time\nfrom matrix.runner import attempt, cgroup\n"
        "create = cgroup.create\n"
        "def slow(*words):\n    group = create(*words)\n    print('made', flush=True)\n    time.sleep(300)\n"
        "cgroup.create = slow\nfrom matrix.__main__ import main\nsys.argv = ['matrix', 'run', 'spec.yaml']\nmain()"
    )
    Place(tmp_path, work_s=60, jobs=1)
    tool = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True)
    assert tool.stdout is not None
    assert any(line == "made\n" for line in tool.stdout)
    assert len(left_by(tool.pid)) == (1 if cgroup.why_not() else 2)
    kill(tool, guardian=False)
    assert wait_until(lambda: not left_by(tool.pid))


def test_what_a_tool_leaves_that_is_killed_with_its_guardian_is_cleaned_up_by_the_next_start(tmp_path: Path) -> None:
    place = Place(tmp_path, work_s=60)
    tool = place.start()
    assert wait_until(lambda: len(place.started()) == 2 and len(registrations([pid for _, pid in place.started()])) == 2)
    kill(tool, guardian=True)
    time.sleep(0.3)
    left = place.left()
    assert [pid for _, pid in place.started() if alive(pid)], "the children are gone already: the test has seen nothing"
    assert any(thing.startswith(str(SHORT_TEMP)) for thing in left)
    assert cgroup.why_not() or any(thing.startswith("/sys/fs/cgroup") for thing in left)
    place.program(0.05)
    place.finish()


@pytest.mark.parametrize("guardian", [False, True])
def test_named_semaphores_and_memory_of_what_ran_go_with_a_tool_that_is_killed(tmp_path: Path, guardian: bool) -> None:
    """With its guardian too: at the next start."""
    program = """
        import multiprocessing, time
        from multiprocessing import shared_memory
        lock, memory = multiprocessing.get_context("spawn").Lock(), shared_memory.SharedMemory(create=True, size=4096)
        with open("names", "w") as sink: print("sem." + lock._semlock.name.lstrip("/"), memory.name, file=sink)
        time.sleep(60)
    """
    (tmp_path / "job.py").write_text(textwrap.dedent(program))
    content = {"run": {"command": ["python", "job.py"]}, "matrix": {"mode": ["a", "b"]}, "executor": {"jobs": 1}}
    specification(tmp_path, content)
    tool = start("run", "spec.yaml", cwd=tmp_path)
    names = tmp_path / "names"
    assert wait_until(lambda: names.exists() and names.read_text().endswith("\n"))
    paths = [Path("/dev/shm", name) for name in names.read_text().split()]
    assert len(paths) == 2 and all(path.exists() for path in paths)
    kill(tool, guardian=guardian)
    if guardian:
        (tmp_path / "job.py").write_text("print('step 1')")
        start("run", "spec.yaml", "--resume", cwd=tmp_path).communicate(timeout=PATIENCE_S)
    assert wait_until(lambda: not any(path.exists() for path in paths))


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_when_interrupted_it_is_tidy_and_the_command_it_prints_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    place = Place(tmp_path, work_s=0.3)
    tool = place.start("--set", "colour=red")
    after_some_attempts(tool, 1)
    before = place.complete()
    tool.send_signal(number)
    _, said = tool.communicate(timeout=PATIENCE_S)
    go_on = "python -m matrix run spec.yaml --set colour=red --resume"
    assert (tool.returncode, said) == (130, f"interrupted; what is complete is kept. Go on with: {go_on}\n")
    assert place.left() == []
    assert not verdict(place.run).complete and (place.run / "report.md").exists()
    now = place.complete()
    assert before and {name: now.get(name) for name in before} == before
    assert verdict(place.run).outcomes.keys() == now.keys()
    words = [sys.executable, *shlex.split(go_on)[1:]]
    ended = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert verdict(place.run).complete and verdict(place.run).outcomes.keys() == place.complete().keys()
    assert {observation.trial.cell["colour"] for observation in observations(place.run)} == {"red"}


def test_the_command_that_goes_on_names_resume_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["matrix", "run", "my spec.yaml", "--resume"])
    assert resume_command() == "python -m matrix run 'my spec.yaml' --resume"


def test_attempts_of_an_edited_program_are_kept_but_not_pooled(tmp_path: Path) -> None:
    place = Place(tmp_path, work_s=0.05)
    tool = place.start()
    after_some_attempts(tool, 3)
    kill(tool, guardian=False)
    assert wait_until(lambda: not place.left()), place.left()
    old = place.complete()
    place.program(0.06)
    ended = matrix("run", "spec.yaml", "--resume", "--max-runs", "4", cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert f"note: {len(old)} attempts are complete" in ended.stdout
    now, found = place.complete(), verdict(place.run)
    assert len(old) >= 3 and {name: now.get(name) for name in old} == old
    assert found.outcomes.keys() == now.keys() - old.keys()
    assert found.runs == 4
    text = (place.run / "report.md").read_text()
    assert f"{len(old)} complete attempts ({', '.join(sorted(old))}) are no part of the verdict" in text
    assert "4 runs" in text and f"{4 + len(old)} runs" not in text


@pytest.mark.slow
def test_what_a_process_left_that_ended_when_nobody_knew_of_it_yet_goes_with_its_attempt(tmp_path: Path) -> None:
    """Killed between a start and its record, the guardian leaves a child that is known by its own words alone."""
    place = Place(tmp_path, work_s=0.05)
    tool = place.start()
    after_some_attempts(tool, 1)
    kill(tool, guardian=True)
    child = subprocess.Popen(["true"])
    child.wait()
    attempt = place.run / "attempts" / "0099-abcdef01"
    attempt.mkdir()
    (attempt / "hook.jsonl").write_text(f'{{"t":1.0,"pid":{child.pid},"kind":"start"}}\n')
    left = Path(f"/dev/shm/__KMP_REGISTERED_LIB_{child.pid}_{os.getuid()}")
    left.write_text("0x1-cafe-libomp.so")
    try:
        place.finish()
        assert not left.exists() and not attempt.exists()
    finally:
        left.unlink(missing_ok=True)


# ------------------------------------------------------------------ full counts
@pytest.mark.parametrize("seed", [pytest.param(0, marks=pytest.mark.slow), *(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 2))])
def test_a_tool_killed_with_its_guardian_again_and_again_loses_nothing(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    place = Place(tmp_path, work_s=0.2)
    for _ in range(4):
        seen = place.complete()
        tool = place.start()
        after_some_attempts(tool, len(seen) + 1)
        time.sleep(rng.uniform(0, 0.3))
        kill(tool, guardian=True)
        now = place.complete()
        assert {name: now.get(name) for name in seen} == seen
    place.finish()


@pytest.mark.slow
def test_a_tool_killed_while_it_writes_its_report_writes_it_the_next_time(tmp_path: Path) -> None:
    place = Place(tmp_path, work_s=0.05)
    tool = place.start()
    assert wait_until(lambda: (tmp_path / "runs").exists() and bool(list(tmp_path.glob("runs/*/*/verdict.json"))))
    assert wait_until(lambda: verdict(place.run).complete)
    time.sleep(0.5)
    kill(tool, guardian=False)
    seen = place.complete()
    place.finish()
    assert place.complete() == seen
    assert (place.run / "report.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_two_signals_in_a_row_leave_nothing_either(tmp_path: Path, number: signal.Signals) -> None:
    """A lost terminal sends two SIGHUP; people press Ctrl-C twice."""
    place = Place(tmp_path, work_s=60)
    tool = place.start()
    assert wait_until(lambda: len(place.started()) == 2)
    tool.send_signal(number)
    time.sleep(0.05)
    tool.send_signal(number)
    tool.communicate(timeout=PATIENCE_S)
    assert (tool.returncode, place.left(), place.complete()) == (130, [], {})
    place.program(0.05)
    place.finish()


@pytest.mark.slow
def test_other_limits_make_other_attempts(tmp_path: Path) -> None:
    """An attempt that ran under another memory limit says nothing about this one."""
    content = {"run": {"command": ["sh", "-c", "exit 0"]}, "matrix": {"mode": ["a", "b"]}, "search": {"max_runs": 2}}
    for limit in ("64MiB", "128MiB"):
        specification(tmp_path, {**content, "limits": {"memory": limit}})
        resumed = ["--resume"] if (tmp_path / "runs").exists() else []
        assert matrix("run", "spec.yaml", *resumed, cwd=tmp_path).returncode == 0
    assert len(complete(only_run(tmp_path))) == 4
    assert {observation.memory.limit_bytes for observation in observations(only_run(tmp_path))} == {64 << 20, 128 << 20}


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(10, 25))
def test_many_more_moments(tmp_path: Path, seed: int) -> None:
    """From the first instruction of the tool on, with and without its guardian."""
    rng = random.Random(seed)
    place = Place(tmp_path, work_s=0.1)
    for _ in range(8):
        seen = place.complete()
        tool = place.start()
        time.sleep(rng.uniform(0, 4))
        if tool.poll() is None:
            kill(tool, guardian=rng.random() < 0.5)
        now = place.complete()
        assert {name: now.get(name) for name in seen} == seen
    place.finish()
