"""The flight recorder on real commands: the program is left as it is, its end is known, and a limit is told before it is met."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from matrix import records
from matrix.records import Attempt
from matrix.runner import cgroup
from matrix.watch import session
from matrix.watch.attached import NoSuchProcess
from matrix.watch.launch import NotStarted
from matrix.watch.recorder import Options
from matrix.watch.session import Done, status
from matrix.watch.words import died_first
from tests.matrix.command_line import (
    CAN_DROP_RIGHTS,
    NO_RIGHTS,
    PATIENCE_S,
    TOOL,
    alive,
    environment,
    matrix,
    observations,
    only_run,
    start,
    verdict,
    wait_until,
)

CHILDREN = Path(__file__).parents[1] / "children"
JOIN, REMEMBERS, RANKS = (str(CHILDREN / name) for name in ("joins_a_small_cgroup.py", "remembers.py", "two_ranks.py"))
needs_cgroup = pytest.mark.skipif(bool(cgroup.why_not()), reason=f"no memory cgroup here: {cgroup.why_not()}")
CAN_MOUNT = shutil.which("unshare") is not None and subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode == 0
linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")
SLOW_LEAK = """
import time
kept = []
for step in range(1, 2000):
    kept.append(bytearray(b"x") * (1 << 20))
    print("step", step, flush=True)
    time.sleep(0.08)
"""
DISTRIBUTED = """
import os, signal
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(1, 6):
    dist.all_reduce(torch.ones(10))
    print(f"rank {rank}: step {step}", flush=True)
dist.barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
dist.barrier()
"""
Watched = Callable[..., Done]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Run Python source, or an argv list, under the recorder."""
    monkeypatch.chdir(tmp_path)

    def go(program: str | list[str], **options: object) -> Done:
        argv = [sys.executable, "-c", program] if isinstance(program, str) else program
        return session.command(argv, None, Options(every_s=None, **options))  # type: ignore[arg-type]

    return go


@pytest.fixture
def small_group(tmp_path: Path) -> Iterator[Path]:
    """A folder that a cgroup can be made at."""
    home = next(home for home in cgroup.homes() if (home / "memory.limit_in_bytes").exists() or (home / "cgroup.procs").exists())
    folder = home / f"test-{os.getpid()}-{tmp_path.name}"
    yield folder
    cgroup.Group(folder, "none").remove()  # of version 2 with the one within it that the recorder moved to
    assert not folder.exists()


def text(done: Done, name: str) -> str:
    return (done.where / "attempts" / done.observation.attempt / name).read_text()


# ------------------------------------------------------------------ the program is left as it is
def test_output_reaches_the_user_and_the_folder_and_the_program_finds_its_own_folder_and_variables(
    watched: Watched, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MINE", "kept")
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    done = watched("import os, sys; print(os.getcwd(), os.environ['MINE'], os.environ['TMPDIR']); print('no', file=sys.stderr)")
    out, err = capfdbinary.readouterr()
    assert out.decode() == text(done, "stdout.log") == f"{tmp_path} kept /var/tmp\n"
    assert err == b"no\n"
    assert status(done) == 0
    assert done.outcome.kind == "survived"
    assert done.proposal is None


@pytest.mark.slow
def test_standard_input_is_passed_through(tmp_path: Path) -> None:
    done = subprocess.run(
        [*TOOL, "watch", "--", "tr", "a-z", "A-Z"], cwd=tmp_path, env=environment(), input="words\n", capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "WORDS\n"), done.stderr


@pytest.mark.parametrize(
    ("program", "code", "signature"),
    [
        ("import sys; sys.exit(7)", 7, "exit 7"),
        ("import os; os.kill(os.getpid(), 11)", 139, "SIGSEGV"),
        ("raise ValueError('no')", 1, "exit 1:ValueError"),
    ],
)
def test_the_status_is_the_commands_own(watched: Watched, program: str, code: int, signature: str) -> None:
    done = watched(program)
    assert status(done) == code
    assert done.outcome.signature == signature
    assert {entry.grade for entry in done.verdict.ranking} <= {"supported", "suspected"}


@linux
def test_processes_that_outlive_the_command_live_on(watched: Watched, tmp_path: Path) -> None:
    watched("import subprocess; print(subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).pid)")
    pid = int((next(tmp_path.glob("runs/*/*/attempts/*/stdout.log"))).read_text())
    try:
        assert alive(pid)
    finally:
        os.kill(pid, signal.SIGKILL)
    assert [home for home in cgroup.homes() for _ in home.glob(f"watch-{os.getpid()}-*")] == []


@needs_cgroup
def test_what_a_killed_recorder_left_goes_at_the_next_start_but_never_under_a_program_that_runs(tmp_path: Path) -> None:
    def left() -> list[Path]:
        return [folder for home in cgroup.homes() for folder in home.glob(f"watch-{recorder.pid}-*")]

    program = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    recorder = start("watch", "--", sys.executable, "-c", program, cwd=tmp_path)
    assert recorder.stdout
    pid = int(recorder.stdout.readline())
    try:
        recorder.kill()
        recorder.wait()
        assert matrix("watch", "--", "true", cwd=tmp_path).returncode == 0
        assert alive(pid) and left()
    finally:
        os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not alive(pid))
    assert matrix("watch", "--", "true", cwd=tmp_path).returncode == 0
    assert left() == []


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("python train.py --bs 8", "watch_train"),
        ("python3 -u -m pkg.fit", "watch_fit"),
        ("torchrun --nproc-per-node 2 train.py", "watch_train"),
        ("torchrun --nproc-per-node 2 -m pkg.fit", "watch_fit"),
        ("accelerate launch --num_processes 2 pkg/train.py", "watch_train"),
        ("python3.11 -c pass", "watch_python"),
        ("bash -c ls", "watch_bash"),
        ("./a.out 5", "watch_a.out"),
    ],
)
def test_a_run_is_named_by_its_program(words: str, name: str) -> None:
    assert session.name_of(words.split()) == name


def test_a_command_that_is_not_there_is_refused_before_anything_is_made(watched: Watched, tmp_path: Path) -> None:
    with pytest.raises(NotStarted, match=r"no-such-program: was not found on PATH; check its name"):
        watched(["no-such-program"])
    (tmp_path / "train.py").write_text("pass")
    with pytest.raises(NotStarted, match=r"write `python ./train.py`"):
        watched(["./train.py"])
    assert list(tmp_path.iterdir()) == [tmp_path / "train.py"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--", "no-such-program"], "no-such-program: was not found on PATH"),
        ([], "give either a command"),
        (["--pid", "4194304"], "there is no process 4194304"),
        pytest.param(
            ["--hang-after", "soon", "--", "true"],
            "cannot read 'soon' as a time; allowed: a number of seconds, or numbers with d h m s ms",
            marks=pytest.mark.slow,
        ),
        pytest.param(["--progress", "(", "--", "true"], "is not a regular expression", marks=pytest.mark.slow),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_clear_line_and_status_2(words: list[str], said: str, tmp_path: Path) -> None:
    done = matrix("watch", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not CAN_DROP_RIGHTS, reason="the rights of root cannot be dropped here")
def test_a_folder_that_cannot_be_written_is_status_3(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    done = matrix("watch", "--", "true", cwd=tmp_path, prefix=NO_RIGHTS)
    assert done.returncode == 3
    assert "cannot make the run folder" in done.stderr


# ------------------------------------------------------------------ limits
@needs_cgroup
def test_a_leak_is_told_before_the_kernel_ends_it_and_the_verdict_is_supported_by_one_run(tmp_path: Path, small_group: Path) -> None:
    """The whole command, as in a container with a limit of memory."""
    argv = [sys.executable, JOIN, str(small_group), "220", *TOOL, "watch", "--", sys.executable, "-c", SLOW_LEAK]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S)
    run = only_run(tmp_path)
    (seen,) = observations(run)
    assert done.returncode == 137, done.stderr
    assert seen.memory.oom_kills == 1
    assert seen.memory.limit_bytes == 220 << 20
    first = verdict(run).ranking[0]
    assert (first.cause, first.grade) == ("memory_retention", "supported")
    assert "WARNING: memory of the cgroup" in done.stderr
    assert "at this slope the limit in" in done.stderr
    assert done.stderr.index("WARNING") < done.stderr.index("it died after step")
    assert records.read(Attempt, next(run.glob("attempts/*/attempt.json"))).memory_limit_bytes == 220 << 20
    planned = matrix("plan", str(run / "next.yaml"), cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert (run / "report.html").exists()
    assert f"python -m matrix run {run / 'next.yaml'}" in done.stderr


@needs_cgroup
def test_the_limit_of_a_group_that_a_launcher_moves_the_program_into_is_found(watched: Watched, small_group: Path) -> None:
    done = watched([sys.executable, JOIN, str(small_group), "100", sys.executable, REMEMBERS, "grows", "2000"])
    assert status(done) == 137
    assert done.outcome.signature == "SIGKILL:memory"
    assert (done.observation.memory.limit_bytes, done.observation.memory.oom_kills) == (100 << 20, 1)


@needs_cgroup
@pytest.mark.slow
@pytest.mark.skipif(not CAN_DROP_RIGHTS, reason="the rights of root cannot be dropped here")
def test_without_rights_the_kernels_counter_still_tells_who_ended_it(tmp_path: Path, small_group: Path) -> None:
    argv = [sys.executable, JOIN, str(small_group), "120", *NO_RIGHTS, *TOOL, "watch", "--", sys.executable, REMEMBERS, "grows", "2000"]
    done = subprocess.run(argv, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 137, done.stderr
    (seen,) = observations(only_run(tmp_path))
    assert (seen.memory.oom_kills, seen.memory.limit_bytes) == (1, 120 << 20)
    assert any(one.what == "kernel log" for one in seen.not_collected) or seen.kernel_lines


LEAKS_DESCRIPTORS = """
import glob, os, resource, time
resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
def told():
    return any("open files of the main process" in open(path).read() for path in glob.glob("runs/*/*/watch.log"))
for step in range(400):
    os.dup(0)
    print("step", step, flush=True)
    while step == 280 and not told() and time.monotonic() < end:
        time.sleep(0.1)
"""


def test_descriptors_are_told_before_their_limit(watched: Watched, capfd: pytest.CaptureFixture[str]) -> None:
    done = watched(f"import time; end = time.monotonic() + 60{LEAKS_DESCRIPTORS}")
    assert status(done) == 1
    warnings = [line for line in capfd.readouterr().err.splitlines() if "WARNING: open files of the main process" in line]
    assert warnings
    assert "of 300" in warnings[0]


def test_the_last_step_of_output_that_is_too_much_to_read_is_known(watched: Watched) -> None:
    bar = "for step in range(1, 100_001): print(f'\\rrank {step % 2}: step {step}/100000', end='', flush=step % 100 == 0)"
    progress = watched(bar + "\nprint()").observation.progress
    assert (progress.last_step, progress.total_steps, progress.rank_steps) == (100_000, 100_000, {0: 100_000, 1: 99_999})


def test_a_job_that_will_not_be_done_in_its_time_is_told_how_far_it_will_come(
    watched: Watched, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 60))
    watched("import time\nfor step in range(1, 60):\n print(f'step {step}/900000', flush=True); time.sleep(0.05)")
    (said,) = [line for line in capfd.readouterr().err.splitlines() if "WARNING: the job's time ends at" in line]
    assert "of 900,000 then: save a checkpoint before, or ask for more time" in said


@pytest.mark.slow
@pytest.mark.skipif(not CAN_MOUNT, reason="no mounts here")
def test_a_full_disk_costs_the_recording_and_not_the_run(tmp_path: Path) -> None:
    program = "for at in range(40_000): print('line', at, '.' * 40)"
    script = f'mount -t tmpfs -o size=600k none {tmp_path} && cd {tmp_path} && exec "$@"'
    argv = ["unshare", "-m", "sh", "-c", script, "sh", *TOOL, "watch", "--", sys.executable, "-c", f"{program}\nimport sys; sys.exit(9)"]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 9, done.stderr
    assert done.stdout.count("\n") == 40_000
    assert "from now on less is recorded" in done.stderr
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------------ hangs
def test_a_hang_is_told_with_what_its_processes_do_and_nothing_is_ended(watched: Watched, capfd: pytest.CaptureFixture[str]) -> None:
    program = "import time\nprint('step 1', flush=True)\ndef stuck():\n time.sleep(6)\nstuck()\nprint('step 2', flush=True)"
    done = watched(program, hang_s=1.0)
    said = capfd.readouterr().err
    assert "silent, without progress, and it does nothing. Nothing is ended." in said
    assert "main " in said
    assert (status(done), done.outcome.kind) == (0, "survived")
    assert "it goes on: there is output again" in (done.where / "watch.log").read_text()
    assert "state S" in text(done, "hang.txt")


# ------------------------------------------------------------------ ranks
@linux
def test_ranks_are_kept_apart(watched: Watched) -> None:
    done = watched([sys.executable, RANKS, "lives"])
    seen = done.observation
    assert seen.progress.rank_steps == {0: 24, 1: 29}
    held = {one.rank: one.peak_rss_bytes for one in seen.memory.processes if one.role == "rank"}
    assert held[1] - held[0] > 40 << 20


@linux
def test_the_rank_that_died_first_is_named(watched: Watched) -> None:
    done = watched([sys.executable, RANKS, "dies"])
    assert done.outcome.signature == "SIGSEGV"
    first = done.observation.deaths[0]
    assert (first.role, first.signal) == ("rank", "SIGSEGV")
    assert died_first(done.observation) == f"what died first: rank 1 ({first.pid}), SIGSEGV"


@linux
@pytest.mark.nightly
def test_the_ranks_of_torchrun_are_kept_apart(watched: Watched, tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(DISTRIBUTED)
    done = watched([sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "ranks.py"])
    seen = done.observation
    assert done.outcome.kind == "died"
    assert {one.rank for one in seen.memory.processes if one.role == "rank"} == {0, 1}
    first = seen.deaths[0]
    assert (first.role, first.signal) == ("rank", "SIGKILL")
    assert set(seen.progress.rank_steps) == {0, 1}


# ------------------------------------------------------------------ a process that was there
def attach(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Done, bool]:
    """Follow a process whose output goes to a file; whether it lives when the watching is over."""
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "train.log").open("w") as log:
        child = subprocess.Popen([sys.executable, "-uc", program], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    reaper = threading.Thread(target=child.wait)
    reaper.start()
    try:
        assert wait_until(lambda: "step 1" in (tmp_path / "train.log").read_text())
        done = session.process(child.pid, None, None, Options(every_s=None))
        return done, alive(child.pid)
    finally:
        child.kill()
        reaper.join()


STEPS = "import os, sys, time\nfor step in range(1, 30):\n print('step', step); time.sleep(0.1)\n"


@linux
@pytest.mark.parametrize(("end", "returncode", "kind"), [("sys.exit(3)", 3, "died"), ("os.abort()", -6, "died"), ("pass", 0, "survived")])
def test_a_process_that_was_there_is_followed_to_its_end(
    end: str, returncode: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, _ = attach(STEPS + end, tmp_path, monkeypatch)
    seen = done.observation
    if seen.exit.returncode is None:  # a container, without root: then it says so
        assert done.outcome.kind == "censored"
        assert any(one.what == "exit status" for one in seen.not_collected)
    else:
        assert (seen.exit.returncode, done.outcome.kind) == (returncode, kind)
    assert seen.progress.last_step == 29
    assert seen.memory.samples
    assert seen.memory.peak_main_rss_bytes != 0


@linux
def test_to_stop_watching_leaves_the_process_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def enough() -> None:
        assert wait_until(lambda: any(tmp_path.glob("runs/*/*/attempts/*/memory.csv")))  # by now signals are its own
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=enough)
    asking.start()
    done, lives = attach(STEPS + "time.sleep(60)", tmp_path, monkeypatch)
    asking.join()
    assert lives
    assert done.observation.exit.ended_by == "interrupt"
    assert done.outcome.kind == "censored"


def test_a_process_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NoSuchProcess, match="there is no process"):
        session.process(4_194_304, None, None, Options())
    assert list(tmp_path.iterdir()) == []
