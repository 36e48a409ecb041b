"""A collector, parser or view that raises ends nothing: the fact is listed as not collected, everything else is known."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from matrix.evidence import signals
from matrix.records import Observation
from matrix.runner import attempt, observe
from matrix.runner.attempt import Job, run
from matrix.runner.launcher import Guardian
from matrix.runner.patience import Limits
from matrix.watch import session
from matrix.watch.recorder import Options
from tests.matrix.command_line import PATIENCE_S, TOOL, alive, environment, matrix, only_run, specification, wait_until

linux = pytest.mark.skipif(sys.platform != "linux", reason="the collectors look at /proc")

# What may raise, and under which name the missing fact is listed.
COLLECTORS = {
    "matrix.evidence.progress:ProgressParser.feed": "steps",
    "matrix.evidence.progress:ProgressParser.record": "steps",
    "matrix.evidence.kernel:KernelLog.lines_for": "kernel log",
    "matrix.evidence.exits:ExitWatch.read": "ends of other processes",
    "matrix.evidence.exits:ExitWatch.follow": "ends of other processes",
    "matrix.evidence.exits:ExitWatch.of_tree": "ends of other processes",
    "matrix.evidence.exits:ExitWatch.missing": "reasons for what is missing",
    "matrix.evidence.signals:SignalWatch.read": "who sent signals",
    "matrix.evidence.space:Space.look": "limits and load of processes",
    "matrix.evidence.space:Space.sample": "room on disks",
    "matrix.evidence.space:Space.end": "room on disks",
    "matrix.evidence.space:Space.record": "file systems",
    "matrix.evidence.load:LoadWatch.look": "limits and load of processes",
    "matrix.evidence.load:LoadWatch.record": "load",
    "matrix.evidence.settings:Settings.look": "limits and load of processes",
    "matrix.evidence.settings:Settings.record": "limits and signal handlers",
    "matrix.runner.attempt:system_log": "kernel log",
    "matrix.runner.attempt:remove_shared_objects": "shared memory left behind",
    "matrix.runner.mappings:Mappings.keep": "mapped files",
    "matrix.runner.sampler:Sampler.look": "memory samples",
    "matrix.runner.sampler:Sampler.sample": "memory samples",
    "matrix.runner.sampler:Sampler.wait": "memory samples",
    "matrix.runner.sampler:Sampler.close": "memory samples",
    "matrix.runner.sampler:Sampler.processes": "memory",
    "matrix.runner.tree:Tree.activity": "what processes do",
    "matrix.runner.tree:Tree.pids": "processes",
    "matrix.runner.observe:read_hook": "hook",
    "matrix.runner.observe:with_mappings": "mappings",
    "matrix.runner.observe:used_files": "files of the program",
    "matrix.evidence.shared_files:SharedFiles.record": "files that processes share",
    "matrix.evidence.shared_files:SharedFiles.look": "limits and load of processes",
    "matrix.runner.observe:details.left_by": "who ended the process",
    "matrix.runner.observe:details.signals": "who sent signals",
    "matrix.runner.observe:details.short_files": "files that were cut off",
    "matrix.runner.observe:details.faults": "faults",
    "matrix.runner.observe:details.counts": "trends",
    "matrix.runner.observe:details.said": "messages in the output",
    "matrix.runner.observe:details.best_roles": "roles of processes",
    "matrix.evidence.runtimes:registrations": "OpenMP registrations",
    "matrix.evidence.runtimes:census": "libraries",
    "matrix.evidence.crash:examine": "core",
    "matrix.evidence.deaths:deaths": "deaths",
    "matrix.evidence.deaths:said": "deaths",
    "matrix.evidence.environment:kept": "environment at exec",
    "matrix.evidence.limits:of_process": "limits that were asked for",
    "matrix.evidence.limits:not_held": "reasons for what is missing",
    "matrix.evidence.log:text": "output",
    "matrix.evidence.log:last_lines": "last lines of the output",
    "matrix.evidence.log:python_error": "Python's error",
    "matrix.evidence.log:crash_stack": "Python's crash stack",
    "matrix.evidence.log:crash_dump": "messages in the output",
    "matrix.evidence.messages:messages": "messages in the output",
    "matrix.evidence.metrics:metrics": "messages in the output",
    "matrix.evidence.memory_curve:read": "memory curve",
    "matrix.evidence.memory_curve:describe": "memory curve",
}
NEED_PROBES = {"matrix.runner.probes.watch:Watch.look": "whether probes hold", "matrix.runner.probes.checks:results": "whether probes held"}
NEED_A_HANG = {"matrix.runner.attempt:autopsy": "stacks of the hang"}
DIES = """
    import faulthandler, os, signal, sys, time
    print("loss=0.5 step 1", flush=True)
    print("OMP: Error #15", file=sys.stderr, flush=True)
    time.sleep(0.7)  # so that there is a look
    os.kill(os.getpid(), signal.SIGSEGV)
"""
WATCHED_ONLY = {
    "matrix.watch.bounds:Bounds.first": "limits at the start",
    "matrix.watch.bounds:Bounds.notices": "notices about limits",
    "matrix.watch.bounds:Bounds.read": "warnings before a limit is met",
    "matrix.watch.bounds:Bounds.oom_kills": "kills for memory",
}
NOT_WHEN_WATCHED = {"matrix.runner.attempt:system_log", "matrix.runner.attempt:remove_shared_objects", "matrix.runner.sampler:Sampler.wait"}


class Fault(Exception):
    """Raised in the place of a collector's answer."""


def break_it(monkeypatch: pytest.MonkeyPatch, target: str) -> list[int]:
    """Replace a function by one that raises; the list grows with each call."""
    module, _, path = target.partition(":")
    owner: object = importlib.import_module(module)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    calls: list[int] = []

    def broken(*_: object, **__: object) -> None:
        calls.append(1)
        raise Fault("made to fail")

    monkeypatch.setattr(owner, name, broken)
    return calls


def reasons(seen: Observation, what: str) -> list[str]:
    return [missing.why for missing in seen.not_collected if missing.what == what and "the collector failed" in missing.why]


@linux
@pytest.mark.parametrize("target", COLLECTORS)
def test_an_attempt_is_complete_though_one_collector_raises(
    target: str, monkeypatch: pytest.MonkeyPatch, job: Callable[..., Job], guardian: Guardian
) -> None:
    if "signals" in target and signals.watch().why_not and "SignalWatch" in target:
        pytest.skip(signals.watch().why_not)
    calls = break_it(monkeypatch, target)
    seen = run(job(DIES), guardian, stop=threading.Event())
    assert calls, "it was never called: the program above does not reach it"
    assert (seen.exit.signal, seen.exit.returncode, seen.exit.ended_by) == ("SIGSEGV", -11, "itself")
    assert any("Fault: made to fail" in why for why in reasons(seen, COLLECTORS[target])), seen.not_collected


@linux
@pytest.mark.parametrize("target", NEED_PROBES)
def test_an_attempt_under_a_probe_is_complete_too(
    target: str, monkeypatch: pytest.MonkeyPatch, job: Callable[..., Job], guardian: Guardian
) -> None:
    calls = break_it(monkeypatch, target)
    seen = run(job(DIES, probes={"one_thread": ""}), guardian, stop=threading.Event())
    assert calls
    assert seen.exit.signal == "SIGSEGV"
    assert reasons(seen, NEED_PROBES[target])


@linux
def test_a_hang_is_ended_though_its_stacks_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch, job: Callable[..., Job], guardian: Guardian
) -> None:
    assert break_it(monkeypatch, *NEED_A_HANG) == []
    seen = run(job("import time; time.sleep(600)", limits=Limits(wall_s=1.0)), guardian, stop=threading.Event())
    assert seen.exit.ended_by == "wall"
    assert reasons(seen, NEED_A_HANG["matrix.runner.attempt:autopsy"])


@linux
@pytest.mark.parametrize("target", sorted({*COLLECTORS, *WATCHED_ONLY} - NOT_WHEN_WATCHED))
def test_a_watched_program_ends_as_it_would_though_one_collector_raises(
    target: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if "signals" in target and signals.watch().why_not and "SignalWatch" in target:
        pytest.skip(signals.watch().why_not)
    calls = break_it(monkeypatch, target)
    monkeypatch.chdir(tmp_path)
    done = session.command([sys.executable, "-c", textwrap.dedent(DIES)], None, Options(every_s=None))
    assert calls, "it was never called: the program above does not reach it"
    assert session.status(done) == 128 + 11
    assert capfd.readouterr().out == "loss=0.5 step 1\n"
    assert reasons(done.observation, {**COLLECTORS, **WATCHED_ONLY}[target]), done.observation.not_collected


# ------------------------------------------------------------------ no collector is left out
FREE = {"Observation", "NotCollected", "Clock", "Collecting", "Memory", "HookFacts", "set", "dict", "list", "round", "len"}
METHODS = {"append", "missing", "partial", "replace", "Crash", "Said"}  # ... of lists, strings, dataclasses and Collecting itself


def test_every_collector_of_an_observation_is_called_in_isolation() -> None:
    function = ast.parse(textwrap.dedent(inspect.getsource(observe.observe))).body[0]
    isolated = {
        id(node)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "collect"
        for node in [call, *(inner for argument in call.args for inner in ast.walk(argument))]
    }
    bare = [
        ast.unparse(call)
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and id(call) not in isolated
        and not (isinstance(call.func, ast.Name) and call.func.id in FREE)
        and not (isinstance(call.func, ast.Attribute) and call.func.attr in METHODS)
    ]
    assert [words for words in bare if not words.startswith(("_exit(",))] == []


def test_every_source_that_the_supervisor_follows_is_called_in_isolation() -> None:
    """Methods of the sources, in the text of the supervisor, stand within a call of `collecting` only."""
    followed = ("self.exits.", "self.signals.", "self.surroundings.")
    sources = (*followed, "self.mappings.keep", "sampler.look", "sampler.sample", "self.parser.feed")
    tree = ast.parse(textwrap.dedent(inspect.getsource(attempt.Supervisor)))
    isolated = {
        id(node)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("self.collecting", "self.collecting.succeeds", "collect", "begin")
        for argument in call.args
        for node in ast.walk(argument)
    }
    bare = [
        ast.unparse(call)
        for call in ast.walk(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith(sources) and id(call) not in isolated
    ]
    harmless = {"self.exits.fileno()", "self.exits.close()", "self.exits.dumping.clear()"}
    only_called_in_isolation = {"self.exits.read()"}  # by _read_exits
    assert set(bare) - harmless - only_called_in_isolation == set()


# ------------------------------------------------------------------ what the program prints
HOSTILE_LINES = [
    b"12%|#2  | 1.21.3k/10.0k [",
    b"step " + b"9" * 400,
    b"step 1/" + b"9" * 400,
    b"rank " + b"9" * 5000 + b": step 3",
    b"epoch " + b"9" * 5000 + b" step 4",
    b"50%|##| " + b"9" * 400 + b"/" + b"9" * 400 + b" [",
    b"\xff\xfe step \xd9\xa3\xd9\xa3",
    b"loss=" + b"9" * 5000,
]


@linux
@pytest.mark.slow
def test_lines_that_no_parser_expects_end_neither_a_run_nor_a_watched_job(tmp_path: Path) -> None:
    program = tmp_path / "prints.py"
    lines = b"\n".join([*HOSTILE_LINES, b"step 7", b""])
    prints = f"sys.stdout.buffer.write({lines!r})\nsys.stdout.flush()"
    program.write_text(f"import sys, time\n{prints}\ntime.sleep(0.5)\nprint('end')\nsys.exit(3)\n")
    done = subprocess.run(
        [*TOOL, "watch", "--", sys.executable, str(program)], cwd=tmp_path, env=environment(), capture_output=True, timeout=PATIENCE_S
    )
    assert (done.returncode, done.stdout) == (3, lines + b"end\n"), done.stderr
    assert b"Traceback" not in done.stderr
    spec = specification(tmp_path, {"run": {"command": [sys.executable, str(program)]}, "matrix": {"m": [1]}, "search": {"max_runs": 1}})
    ran = matrix("run", str(spec), cwd=tmp_path)
    assert (ran.returncode, "Traceback" in ran.stderr) == (0, False), ran.stderr


# ------------------------------------------------------------------ the watched job outlives its recorder
PRINTS_ON = """
import os, pathlib, sys, time
print(os.getpid(), flush=True)
while not pathlib.Path("go on").exists():
    time.sleep(0.02)
for _ in range(2000):
    print("x" * 99, flush=True)
print("no", file=sys.stderr, flush=True)
pathlib.Path("ended well").touch()
"""


@linux
def test_a_job_and_its_output_outlive_a_recorder_that_is_killed(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with out.open("wb") as sink, (tmp_path / "err").open("wb") as errors:
        argv = [*TOOL, "watch", "--", sys.executable, "-c", PRINTS_ON]
        recorder = subprocess.Popen(argv, cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL, stdout=sink, stderr=errors)
    assert wait_until(lambda: out.read_bytes().count(b"\n") == 1)
    pid = int(out.read_text())
    recorder.kill()
    recorder.wait()
    (tmp_path / "go on").touch()
    assert wait_until(lambda: (tmp_path / "ended well").exists() or not alive(pid)) and (tmp_path / "ended well").exists()
    assert wait_until(lambda: out.stat().st_size == len(f"{pid}\n") + 2000 * 100)
    assert wait_until(lambda: b"no\n" in (tmp_path / "err").read_bytes())


@linux
@pytest.mark.parametrize(
    "target", ["matrix.watch.recorder:Recorder.run", "matrix.watch.recorder:Recorder.__init__", "matrix.watch.session:observe"]
)
def test_a_job_ends_with_its_own_status_though_the_recorder_itself_fails(
    target: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert break_it(monkeypatch, target) == []
    monkeypatch.chdir(tmp_path)
    (tmp_path / "go on").touch()
    with pytest.raises(session.NotWritten, match="Fault: made to fail") as caught:
        session.command([sys.executable, "-c", PRINTS_ON + "sys.exit(7)"], None, Options(every_s=None))
    assert caught.value.status == 7
    assert capfd.readouterr().out.count("x" * 99 + "\n") == 2000


# ------------------------------------------------------------------ views
@linux
def test_a_view_that_raises_ends_no_matrix(tmp_path: Path) -> None:
    spec = specification(tmp_path, {"run": {"command": ["/bin/sh", "-c", "exit 3"]}, "matrix": {"m": [1]}, "search": {"max_runs": 1}})
    breaks = "import matrix.view.plain as plain\nplain.describe = lambda *_: 1 / 0\n"
    program = f"{breaks}import matrix.__main__ as tool\ntool.main(['run', {str(spec)!r}])"
    argv = [sys.executable, "-c", program]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert "not all is shown: ZeroDivisionError" in done.stderr
    assert done.stderr.count("not all is shown") == 1
    assert (only_run(tmp_path) / "verdict.json").exists()
    assert os.path.exists(only_run(tmp_path) / "report.md")  # noqa: PTH110
