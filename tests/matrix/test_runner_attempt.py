"""One attempt with real children: how they die, what they leave behind, what they may not do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from matrix import records
from matrix.diagnosis import judge
from matrix.records import Observation
from matrix.runner import cgroup, patience
from matrix.runner.attempt import Job, run
from matrix.runner.launcher import ROOT, SHORT_TEMP, Guardian, RunnerError
from matrix.runner.patience import Limits
from tests.matrix.command_line import PATIENCE_S
from tests.matrix.conftest import Observe

MIB = 1 << 20
needs_cgroup = pytest.mark.skipif(bool(cgroup.why_not()), reason=f"no memory cgroup here: {cgroup.why_not()}")


def leftovers() -> list[str]:
    """What is in temp folders of this process' own attempts, and their groups."""
    mine = f"mx-{os.getpid()}-*"
    files = list(SHORT_TEMP.glob(f"{mine}/*/*"))
    return [str(path) for path in files + [path for home in cgroup.homes() for path in home.glob(mine)]]


def test_a_clean_exit_is_observed_and_nothing_is_left(observe: Observe, tmp_path: Path) -> None:
    seen = observe("print('step 1/2'); print('step 2/2')")
    assert (seen.exit.returncode, seen.exit.signal, seen.exit.ended_by) == (0, None, "itself")
    assert seen.progress.last_step == 2
    assert judge.outcome(seen).kind == "survived"
    assert leftovers() == []
    files = {path.name for path in (tmp_path / "attempts" / seen.attempt).iterdir()}
    assert {"attempt.json", "observation.json", "stdout.log", "stderr.log", "memory.csv", "maps.txt", "stacks.txt"} <= files


def test_the_observation_on_disk_is_the_one_that_was_returned(observe: Observe, tmp_path: Path) -> None:
    seen = observe("import os; os.abort()")
    assert records.read(Observation, tmp_path / "attempts" / seen.attempt / "observation.json") == seen


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGTERM", "SIGKILL", "SIGFPE", "SIGHUP", "SIGPIPE", "SIGXCPU"])
def test_a_signal_is_named(observe: Observe, name: str) -> None:
    number = getattr(signal, name)
    seen = observe(
        f"import os, signal; signal.signal({number}, signal.SIG_DFL) if {number} not in (9,) else 0; os.kill(os.getpid(), {number})"
    )
    assert (seen.exit.signal, seen.exit.returncode) == (name, -number)
    assert judge.outcome(seen).signature == name


def test_the_status_of_a_wrapper_is_read_as_the_signal_it_stands_for(observe: Observe) -> None:
    seen = observe(["sh", "-c", "exit 134"])
    assert (seen.exit.signal, seen.exit.wrapped, seen.exit.returncode) == ("SIGABRT", True, 134)


def test_signals_that_the_tool_ignores_are_not_ignored_in_the_child(observe: Observe) -> None:
    """Under nohup SIGHUP is ignored, and Python ignores SIGPIPE: a child that inherited that would die differently."""
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        seen = observe(["sh", "-c", "kill -HUP $$; echo alive"])
    finally:
        signal.signal(signal.SIGHUP, old)
    assert seen.exit.signal == "SIGHUP"


def test_status_zero_without_the_finished_line_is_a_failure(observe: Observe) -> None:
    seen = observe("print('step 1')", finished="training finished")
    assert judge.outcome(seen).signature == "exit 0 before it had finished"


def test_a_program_that_does_not_exist_is_data(observe: Observe) -> None:
    seen = observe(["no-such-program-anywhere"])
    assert seen.exit.returncode is None
    assert seen.exit.start_error is not None
    assert judge.outcome(seen).kind == "unavailable"


@needs_cgroup
def test_a_kernel_oom_kill_is_proven_by_the_counter(observe: Observe) -> None:
    seen = observe("x = [bytearray(8 << 20) for _ in range(100)]", memory=128 * MIB)
    assert (seen.exit.signal, seen.memory.oom_kills, seen.memory.isolation[:6]) == ("SIGKILL", 1, "cgroup")
    assert judge.outcome(seen).signature == "SIGKILL:memory"


@needs_cgroup
@pytest.mark.parametrize("cpus", [None, [0]], ids=["spawned", "forked"])
def test_a_child_is_in_its_group_from_its_first_instruction_on_and_the_guardian_is_not(
    observe: Observe, guardian: Guardian, cpus: list[int] | None, tmp_path: Path
) -> None:
    own = Path(f"/proc/{guardian.process.pid}/cgroup")
    before = own.read_text()
    seen = observe("print(open('/proc/self/cgroup').read())", memory=128 * MIB, cpus=cpus)
    said = (tmp_path / "attempts" / seen.attempt / "stdout.log").read_text()
    assert f"/{guardian.folder.name}-" in said
    assert own.read_text() == before and guardian.folder.name not in before


@needs_cgroup
def test_a_stranger_in_a_group_is_not_ended_with_it() -> None:
    group = cgroup.create(f"mx-{os.getpid()}-strangers", None)
    assert group is not None
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    try:
        for sleeper in sleepers:
            (group.path / "cgroup.procs").write_text(str(sleeper.pid))
        group.strangers = frozenset({sleepers[0].pid})
        assert group.pids() == {sleepers[1].pid}
        threading.Timer(0.1, sleepers[1].wait).start()  # a zombie of ours would stay in the group
        assert group.kill() == 1
        assert sleepers[0].poll() is None and sleepers[1].wait() == -signal.SIGKILL
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()
        group.remove()


@needs_cgroup
def test_a_worker_killed_by_the_kernel_is_counted_though_the_parent_exits_by_itself(observe: Observe) -> None:
    seen = observe(
        """
        import subprocess, sys
        sys.exit(subprocess.run([sys.executable, "-c", "x = [bytearray(8 << 20) for _ in range(100)]"]).returncode != 0)
        """,
        memory=128 * MIB,
    )
    assert (seen.exit.returncode, seen.memory.oom_kills) == (1, 1)


def test_without_a_cgroup_the_watchdog_ends_what_passes_its_limit_and_says_so(observe: Observe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "create", lambda *_: None)
    seen = observe("import time\nx = []\nwhile True:\n    x.append(bytearray(4 << 20))\n    time.sleep(0.02)", memory=128 * MIB)
    assert (seen.exit.ended_by, seen.memory.isolation) == ("memory_watchdog", "watchdog")
    assert judge.outcome(seen).signature == "SIGKILL:memory"
    assert [missing.what for missing in seen.not_collected if missing.what == "memory cgroup"] == ["memory cgroup"]


@pytest.mark.parametrize(
    "program",
    ["import time; print('step 1', flush=True); time.sleep(60)", "print('step 1', flush=True)\nwhile True: pass"],
    ids=["sleeps", "spins"],
)
def test_a_hang_is_ended_and_its_processes_are_described(observe: Observe, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(patience, "STRETCHED", 1000)  # however little of a processor the one that spins has here
    seen = observe(program, limits=Limits(idle_s=1.5, stall_s=3))
    spins = "while" in program
    assert seen.exit.ended_by == ("stall" if spins else "idle")
    assert judge.outcome(seen).signature == "hang"
    main = next(process for process in seen.processes if process.role == "main")
    assert main.state == ("R" if spins else "S")
    assert any("<module>" in frame for frame in main.stack)


def test_a_program_that_never_takes_its_first_step_ends_at_startup(observe: Observe) -> None:
    seen = observe(
        "import time; print('loading', flush=True); time.sleep(60)", progress=r"step (?P<step>\d+)", limits=Limits(startup_s=1.5)
    )
    assert seen.exit.ended_by == "startup"


def test_a_slow_program_that_progresses_is_no_hang(observe: Observe) -> None:
    program = "import time\nfor n in range(5):\n    print('step', n, flush=True)\n    time.sleep(0.7)"
    seen = observe(program, limits=Limits(idle_s=1.5, stall_s=1.5))
    assert judge.outcome(seen).kind == "survived"


def test_a_silent_load_that_uses_the_cpu_is_not_idle(observe: Observe) -> None:
    program = "import time\nprint('step 1', flush=True)\nend = time.time() + 3\nwhile time.time() < end: pass\nprint('step 2')"
    seen = observe(program, limits=Limits(idle_s=1, stall_s=20))
    assert judge.outcome(seen).kind == "survived"


def test_our_own_wall_limit_is_censoring_and_never_a_crash(observe: Observe) -> None:
    seen = observe("import time\nfor n in range(100):\n    print('step', n, flush=True); time.sleep(0.1)", limits=Limits(wall_s=1.5))
    assert judge.outcome(seen).kind == "censored"


@pytest.mark.parametrize("group", [pytest.param(True, marks=needs_cgroup), False])
def test_no_process_of_a_hang_lives_to_tell_that_another_was_ended_by_us(
    observe: Observe, monkeypatch: pytest.MonkeyPatch, group: bool
) -> None:
    """What they would print, or raise, would be read as the program's own words."""
    if not group:
        monkeypatch.setattr(cgroup, "home_v1", lambda controller: None)
        monkeypatch.setattr(cgroup, "create", lambda *_, **__: None)
    seen = observe(
        """
        import os
        ours, theirs = os.pipe()
        for _ in range(6):
            if os.fork() == 0:
                os.close(theirs)
                os.read(ours, 1)
                os.write(1, b"the parent is gone\\n")
                os._exit(1)
        print("step 1", flush=True)
        os.wait()
        os.write(1, b"step 2: a child is gone\\n")
        """,
        limits=Limits(idle_s=1.5),
    )
    assert (seen.exit.ended_by, seen.progress.last_step, seen.output_tail) == ("idle", 1, ["step 1"])


def test_named_semaphores_and_memory_of_what_was_ended_are_removed_with_it(observe: Observe) -> None:
    """At the end of a healthy program multiprocessing's own process does that, which is ended too."""
    seen = observe(
        """
        import multiprocessing, time
        from multiprocessing import shared_memory
        lock, memory = multiprocessing.get_context("spawn").Lock(), shared_memory.SharedMemory(create=True, size=4096)
        print(f"sem.{lock._semlock.name.lstrip('/')} {memory.name}", flush=True)
        time.sleep(300)
        """,
        limits=Limits(idle_s=2.5),
    )
    names = seen.output_tail[0].split()
    assert (seen.exit.ended_by, len(names)) == ("idle", 2)
    assert [name for name in names if Path("/dev/shm", name).exists()] == []


def test_a_run_of_asked_length_is_ended_after_that_step(observe: Observe) -> None:
    seen = observe("import time\nfor n in range(1000):\n    print('step', n, flush=True); time.sleep(0.02)", stop_after_step=20)
    assert (seen.exit.ended_by, judge.outcome(seen).kind) == ("length", "survived")
    assert 20 <= (seen.progress.last_step or 0) < 200


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        time.sleep(300)
    os._exit(0)
os.wait()
print('step 1')
"""


@pytest.mark.parametrize("group", [pytest.param(True, marks=needs_cgroup), False], ids=["cgroup", "no cgroup"])
def test_a_daemonised_grandchild_is_found_and_ended(observe: Observe, monkeypatch: pytest.MonkeyPatch, group: bool) -> None:
    if not group:
        monkeypatch.setattr(cgroup, "create", lambda *_: None)
    seen = observe(DAEMON)
    assert seen.survivors_ended == 1
    assert seen.exit.returncode == 0


def test_the_child_has_its_own_session_an_empty_stdin_and_a_short_temp_folder(observe: Observe, tmp_path: Path) -> None:
    seen = observe("import os, sys, tempfile; print(os.getsid(0) == os.getpid(), sys.stdin.read() == '', len(tempfile.gettempdir()) < 40)")
    assert seen.output_tail[0] == "True True True"


def test_our_root_never_enters_the_childs_import_path(job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}/somewhere")
    program = "import os, sys; print(os.environ['PYTHONPATH'].split(os.pathsep)[1:]); print(any('runner' in p for p in sys.path))"
    with Guardian() as guardian:
        seen = run(job(program), guardian, stop=threading.Event())
    assert seen.output_tail[:2] == ["['/somewhere']", "False"]


def test_limits_are_the_childs_alone(observe: Observe) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    seen = observe("import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))", rlimits={"RLIMIT_NOFILE": (77, 88)})
    assert seen.output_tail[0] == "(77, 88)"
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_every_limit_reaches_the_child_and_is_recorded(observe: Observe) -> None:
    asked = {"RLIMIT_NOFILE": (77, 88), "RLIMIT_STACK": (4 * MIB, 4 * MIB), "RLIMIT_CORE": (0, 0), "RLIMIT_CPU": (20, 21)}
    program = f"import os, resource as r; print(*[r.getrlimit(getattr(r, n))[0] for n in {sorted(asked)}], os.sched_getaffinity(0))"
    seen = observe(program, rlimits=asked, cpus=[0])
    assert seen.output_tail[0] == f"0 20 77 {4 * MIB} {{0}}"
    assert {limit.name: (limit.asked, limit.had) for limit in seen.limits} == {
        "nofile": (77, 77),
        "stack": (4 * MIB, 4 * MIB),
        "core": (0, 0),
        "cpu_time": (20, 20),
        "cpus": (1, 1),
    }
    assert not [missing for missing in seen.not_collected if missing.what.startswith("limit")]


needs_pids = pytest.mark.skipif(not cgroup.can_limit_pids(), reason="no pids cgroup here")


@needs_pids
def test_the_number_of_processes_is_bounded_for_this_attempt_alone(observe: Observe) -> None:
    program = """
        import os, time
        for n in range(20):
            try:
                if os.fork() == 0:
                    time.sleep(30)
                    os._exit(0)
            except BlockingIOError:
                print("refused", n)
                break
        """
    seen = observe(program, pids=8)
    assert seen.output_tail == ["refused 7"]
    (limit,) = seen.limits
    assert (limit.name, limit.asked, limit.had, limit.by) == ("pids", 8, 8, "cgroup") and limit.refused
    assert leftovers() == []


def test_a_limit_that_cannot_be_enforced_is_said(observe: Observe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "create", lambda *_: None)
    seen = observe("pass", pids=8)
    assert [(limit.name, limit.had) for limit in seen.limits] == [("pids", None)]
    assert "limit pids: 8" in {missing.what for missing in seen.not_collected}


WITHOUT_RIGHTS = ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"]


@pytest.mark.skipif(os.geteuid() != 0 or not Path("/usr/bin/setpriv").exists(), reason="needs root, to give rights up")
def test_a_limit_above_what_the_user_may_have_does_not_stop_the_program(tmp_path: Path) -> None:
    program = (
        f"import sys, threading, pathlib\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from matrix.records import *\nfrom matrix.runner.attempt import *\nfrom matrix.runner.launcher import Guardian\n"
        "from matrix.runner.patience import Limits\n"
        "a = Attempt(id='1-x', trial=Trial(id=1, cell={}), argv=['true'], env={}, cwd='/', key='k', program='p')\n"
        "with Guardian() as guardian:\n"
        "    job = Job(attempt=a, folder=pathlib.Path('a').resolve(), limits=Limits(), rlimits={'RLIMIT_NOFILE': (900, 900)})\n"
        "    seen = run(job, guardian, stop=threading.Event())\n"
        "why = [m.why for m in seen.not_collected if m.what.startswith('limit')]\n"
        "print(seen.exit.returncode, seen.limits[0].asked, seen.limits[0].had, why)\n"
    )
    ask = ["sh", "-c", 'ulimit -n 700; exec "$0" "$@"', *WITHOUT_RIGHTS, sys.executable, "-c", program]
    done = subprocess.run(ask, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.strip() == "0 900 700 ['the child had 700: this user may not have more']", done.stderr


def test_a_flood_of_output_is_cut_and_counted(observe: Observe, tmp_path: Path) -> None:
    seen = observe("import os\nfor _ in range(200): os.write(1, b'x' * 1023 * 1024 + b'\\n')\nprint('step 7')")
    size = (tmp_path / "attempts" / seen.attempt / "stdout.log").stat().st_size
    assert size < 20 * MIB
    assert seen.dropped_output_bytes + size > 200 * 1023 * 1024
    assert seen.progress.last_step == 7


def test_binary_output_harms_nothing(observe: Observe) -> None:
    seen = observe("import os\nos.write(1, bytes(range(256)) * 4096)\nos.write(2, b'\\x1b[31m\\xff\\xfe')\nprint('\\nstep 3')")
    assert (seen.exit.returncode, seen.progress.last_step) == (0, 3)


def test_a_terminal_is_given_where_the_specification_asks_for_one(observe: Observe) -> None:
    seen = observe("import os; print(os.isatty(1), os.isatty(2))", pty=True)
    assert seen.output_tail[0].strip() == "True True"


def test_on_a_terminal_a_traceback_and_what_it_says_of_a_worker_are_found_among_the_output(observe: Observe) -> None:
    program = """
        print("step 1")
        raise RuntimeError("DataLoader worker (pid 4194304) is killed by signal: Killed.")
    """
    seen = observe(program, pty=True)
    assert seen.python_error
    assert (seen.python_error.type, seen.python_error.frames) == ("RuntimeError", ["<string>:3 in <module>"])
    assert seen.python_error.message == "DataLoader worker (pid 4194304) is killed by signal: Killed."
    assert [(death.signal, death.sources) for death in seen.deaths if death.pid == 4194304] == [("SIGKILL", ["message"])]


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="needs a mount namespace")
def test_what_the_program_writes_is_a_fresh_copy_each_time(observe: Observe, tmp_path: Path) -> None:
    cache = tmp_path / "cwd" / "cache"
    cache.mkdir(parents=True)
    (cache / "n").write_text("0")
    program = "from pathlib import Path\np = Path('cache/n'); n = int(p.read_text()); p.write_text(str(n + 1)); print(n)"
    assert [observe(program, writes=(cache,)).output_tail[0] for _ in range(2)] == ["0", "0"]
    assert (cache / "n").read_text() == "0"


def test_a_core_of_the_child_never_overwrites_a_file_of_the_users(observe: Observe, tmp_path: Path) -> None:
    mine = tmp_path / "cwd" / "core"
    mine.parent.mkdir()
    mine.write_text("mine")
    seen = observe("import os; os.abort()")
    assert mine.read_text() == "mine"
    assert seen.exit.signal == "SIGABRT"


def test_no_core_is_left_in_the_working_folder(observe: Observe, tmp_path: Path) -> None:
    observe("import os; os.abort()")
    assert list((tmp_path / "cwd").iterdir()) == []


def test_the_last_moment_is_seen_though_the_library_was_loaded_just_before_the_abort(observe: Observe) -> None:
    pattern = Path("/proc/sys/kernel/core_pattern")
    if not pattern.exists() or pattern.read_text().startswith("|"):
        pytest.skip("cores are not written to a file here")
    seen = observe("import ctypes, os, numpy; os.abort()")
    assert {library.seen for library in seen.libraries} == {"core"}


def test_an_interrupt_ends_the_child_and_is_no_crash(guardian: Guardian, job: Callable[..., Job]) -> None:
    stop = threading.Event()
    threading.Timer(0.8, stop.set).start()
    seen = run(job("import time; time.sleep(60)"), guardian, stop=stop)
    assert (seen.exit.ended_by, judge.outcome(seen).kind) == ("interrupt", "censored")


# ------------------------------------------------------------------ when the tool or the guardian is killed
def alive(marker: str) -> list[int]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if marker in " ".join(process.info["cmdline"] or []) and process.status() != psutil.STATUS_ZOMBIE and process.pid != os.getpid():
            found.append(process.pid)
    return found


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def test_killing_the_tool_leaves_no_process_no_group_and_no_folder(tmp_path: Path) -> None:
    marker = f"sleeper{os.getpid()}"
    driver = tmp_path / "driver.py"
    driver.write_text(
        f"import sys, threading, pathlib\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from matrix.records import *\nfrom matrix.runner.attempt import *\nfrom matrix.runner.launcher import Guardian\n"
        "from matrix.runner.patience import Limits\n"
        f"argv = ['sh', '-c', 'setsid sleep 300 & exec python3 -c \"import time; time.sleep(300)\" {marker}']\n"
        f"a = Attempt(id='1-x', trial=Trial(id=1, cell={{}}), argv=argv, env={{}}, cwd='/', key='k', program='p')\n"
        f"run(Job(attempt=a, folder=pathlib.Path({str(tmp_path / 'a')!r}), limits=Limits()), Guardian(), stop=threading.Event())\n"
    )
    tool = subprocess.Popen([sys.executable, str(driver)])
    assert wait_until(lambda: len(alive(marker)) >= 1)
    time.sleep(0.3)
    assert [path for place in (SHORT_TEMP, *cgroup.homes()) for path in place.glob(f"mx-{tool.pid}-*")] != []
    tool.kill()
    tool.wait()
    assert wait_until(lambda: not alive(marker))
    assert wait_until(lambda: [path for place in (SHORT_TEMP, *cgroup.homes()) for path in place.glob(f"mx-{tool.pid}-*")] == [])


def test_killing_the_guardian_is_reported_and_ends_the_child(job: Callable[..., Job]) -> None:
    marker = f"orphan{os.getpid()}"
    guardian = Guardian()
    threading.Timer(1.0, guardian.process.kill).start()
    with pytest.raises(RunnerError, match="--resume"):
        run(job([sys.executable, "-c", "import time; time.sleep(300)", marker]), guardian, stop=threading.Event())
    assert wait_until(lambda: not alive(marker))
    guardian.close()
    assert leftovers() == []
    assert not guardian.folder.exists()


def test_nothing_is_left_of_an_attempt_that_cannot_be_set_up(guardian: Guardian, job: Callable[..., Job]) -> None:
    with pytest.raises(ValueError, match="is not a regular expression"):
        run(job("pass", memory=64 * MIB, progress="("), guardian, stop=threading.Event())
    assert leftovers() == []
    assert guardian.temp().name == "1"  # the first one was handed back
