"""Every way of dying, each with a real child that really dies of it."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from matrix.diagnosis import judge
from matrix.diagnosis.hangs import classes
from matrix.evidence import cores, native_stacks
from matrix.evidence.deaths import initiating
from matrix.evidence.signals import watch
from matrix.records import Observation
from matrix.runner import cgroup
from matrix.runner.patience import Limits
from tests.matrix.conftest import Observe

MIB = 1 << 20
CHILDREN = Path(__file__).parents[1] / "children"
needs_cgroup = pytest.mark.skipif(bool(cgroup.why_not()), reason=f"no memory cgroup here: {cgroup.why_not()}")
needs_v1 = pytest.mark.skipif(not any("/memory" in str(home) for home in cgroup.homes()), reason="needs a version 1 memory hierarchy")
x86 = pytest.mark.skipif(platform.machine() != "x86_64" or sys.platform != "linux", reason="x86-64 instructions")
linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux only")

NULL_READ = "import ctypes; ctypes.string_at(0)"
CUT_FILE = """
    import mmap, os, tempfile
    file = tempfile.TemporaryFile()
    file.truncate(8192)
    view = mmap.mmap(file.fileno(), 8192)
    file.truncate(0)
    view[5000]
"""
EXECUTE = """
    import ctypes, mmap
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("{code}"))
    ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
"""
UNKNOWN_INSTRUCTION = EXECUTE.format(code="0f0b")  # ud2
DIVISION_BY_ZERO = EXECUTE.format(code="31c9 31c0 99 f7f9")  # xor ecx, ecx; xor eax, eax; cdq; idiv ecx
DOUBLE_FREE = """
    import ctypes
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(2000)
    libc.malloc(16)
    libc.free(block)
    libc.free(block)
"""
FORBIDDEN_CALL = """
    import ctypes, struct
    libc = ctypes.CDLL(None, use_errno=True)
    kill, allow = 0x80000000, 0x7FFF0000  # of the process, everything else
    load, equal, ret = 0x20, 0x15, 0x06
    program = struct.pack("HBBI" * 4, load, 0, 0, 0, equal, 0, 1, {number}, ret, 0, 0, kill, ret, 0, 0, allow)
    buffer = ctypes.create_string_buffer(program)
    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
    assert libc.prctl(22, 2, ctypes.byref(Filter(4, ctypes.addressof(buffer)))) == 0  # seccomp
    libc.syscall({number})
"""
OVER_THE_FILE_LIMIT = """
    import os, signal, tempfile
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    file = tempfile.TemporaryFile()
    while True:
        os.write(file.fileno(), b"x" * 65536)
"""
WRITES_TO_A_HELPER = """
    import signal, subprocess, tempfile
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    helper = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=tempfile.TemporaryFile())
    while True:
        helper.stdin.write(b"x" * 65536)
"""
CLOSED_PIPE = """
    import os, signal
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    reading, writing = os.pipe()
    os.close(reading)
    os.write(writing, b"x")
"""


@pytest.mark.parametrize(
    ("program", "name"),
    [
        pytest.param(NULL_READ, "SIGSEGV", id="null pointer"),
        pytest.param(CUT_FILE, "SIGBUS", id="mapped file cut", marks=linux),
        pytest.param(UNKNOWN_INSTRUCTION, "SIGILL", id="unknown instruction", marks=x86),
        pytest.param(DIVISION_BY_ZERO, "SIGFPE", id="integer division", marks=x86),
        pytest.param(DOUBLE_FREE, "SIGABRT", id="double free", marks=linux),
        pytest.param(FORBIDDEN_CALL.format(number=39), "SIGSYS", id="forbidden system call", marks=x86),  # getpid
        pytest.param("import signal, time; signal.alarm(1); time.sleep(30)", "SIGALRM", id="alarm"),
        pytest.param(CLOSED_PIPE, "SIGPIPE", id="closed pipe"),
        pytest.param("import os, signal; os.kill(os.getpid(), signal.SIGHUP)", "SIGHUP", id="hang-up"),
    ],
)
def test_each_signal_of_the_kernel_and_of_libc_is_told_by_name(observe: Observe, program: str, name: str) -> None:
    seen = observe(program)
    assert (seen.exit.signal, seen.exit.ended_by) == (name, "itself"), seen.output_tail
    assert judge.outcome(seen).signature == name
    assert [(death.role, death.signal, death.part) for death in seen.deaths] == [("main", name, "initiating")]


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_an_uncaught_exception_of_cpp_ends_by_abort_and_its_words_are_kept(observe: Observe, tmp_path: Path) -> None:
    source = tmp_path / "throws.cpp"
    source.write_text('#include <stdexcept>\nint main() { throw std::runtime_error("lost"); }')
    subprocess.run(["g++", "-o", tmp_path / "throws", source], check=True)
    seen = observe([str(tmp_path / "throws")])
    assert seen.exit.signal == "SIGABRT"
    assert any("std::runtime_error" in line for line in seen.output_tail)


def test_processor_time_over_its_limit_is_told_from_a_wall_clock_limit(observe: Observe) -> None:
    seen = observe("while True: pass", rlimits={"RLIMIT_CPU": (1, 3)})
    assert (seen.exit.signal, seen.exit.ended_by) == ("SIGXCPU", "itself")
    assert [(limit.name, limit.had) for limit in seen.limits] == [("cpu_time", 1)]


def test_a_file_over_its_limit_is_told(observe: Observe) -> None:
    seen = observe(OVER_THE_FILE_LIMIT, rlimits={"RLIMIT_FSIZE": (MIB, MIB)})
    assert seen.exit.signal == "SIGXFSZ"


def test_who_writes_to_a_helper_that_met_its_file_limit_only_follows(observe: Observe) -> None:
    seen = observe(WRITES_TO_A_HELPER, rlimits={"RLIMIT_FSIZE": (MIB, MIB)})
    assert (seen.exit.signal, judge.first_signal(seen)) == ("SIGPIPE", "SIGXFSZ")
    assert judge.outcome(seen).signature == "worker SIGXFSZ"


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_a_signal_from_another_process_is_not_taken_for_our_own(observe: Observe, name: str) -> None:
    number = getattr(signal, name)
    seen = observe(f"import os, subprocess, time; subprocess.Popen(['kill', '-{number}', str(os.getpid())]); time.sleep(30)")
    assert (seen.exit.signal, seen.exit.ended_by, seen.memory.oom_kills or 0) == (name, "itself", 0)
    assert judge.outcome(seen).signature == name


def _needs_trace() -> None:
    if why_not := watch().why_not:
        pytest.skip(why_not)


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGALRM"])
def test_a_signal_that_the_kernel_usually_raises_has_a_sender_when_a_process_sent_it(observe: Observe, name: str) -> None:
    _needs_trace()
    number = getattr(signal, name)
    seen = observe(f"import os, subprocess, time; subprocess.Popen(['kill', '-{number}', str(os.getpid())]); time.sleep(30)")
    assert [(one.from_pid > 0, one.by_timer) for one in seen.signals_sent if one.signal == name and not one.by_tool] == [(True, False)]


TIMER = """
import ctypes, struct, time
libc, timer = ctypes.CDLL(None), ctypes.c_void_p()
event = struct.pack("=Qii", 0, {number}, 0).ljust(64, bytes(1))  # struct sigevent: its value, the signal, SIGEV_SIGNAL
libc.timer_create(time.CLOCK_MONOTONIC, event, ctypes.byref(timer))
libc.timer_settime(timer, 0, struct.pack("=4q", 0, 0, 0, 300_000_000), None)
while True: pass
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
def test_a_signal_of_a_timer_that_the_program_set_is_nobody_elses(observe: Observe, name: str) -> None:
    _needs_trace()
    seen = observe(TIMER.format(number=int(getattr(signal, name))))
    assert seen.exit.signal == name
    assert [(one.from_pid, one.by_timer) for one in seen.signals_sent if one.signal == name and not one.by_tool] == [(0, True)]


# ------------------------------------------------------------------ memory
GROWS = "x = []\nwhile True: x.append(b'x' * (4 << 20))"


@needs_cgroup
def test_a_kernel_oom_names_the_pid_in_the_log(observe: Observe) -> None:
    seen = observe(GROWS, memory=96 * MIB)
    assert (seen.exit.signal, seen.memory.oom_kills) == ("SIGKILL", 1)
    assert [(death.oom, death.part) for death in seen.deaths] == [(True, "initiating")]
    assert judge.outcome(seen).signature == "SIGKILL:memory"


@needs_v1
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a group")
def test_a_kernel_oom_in_a_group_that_the_child_made_below_ours_is_seen(observe: Observe) -> None:
    """Ours counts nothing then."""
    program = f"""
        import os
        from pathlib import Path
        own = next(line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line)
        nested = Path("/sys/fs/cgroup/memory") / own.strip("/") / "mine"
        nested.mkdir()
        (nested / "memory.limit_in_bytes").write_text(str({64 * MIB}))
        (nested / "cgroup.procs").write_text(str(os.getpid()))
        x = []
        while True: x.append(b"x" * (4 << 20))
    """
    seen = observe(program, memory=1024 * MIB)
    assert (seen.exit.signal, seen.memory.oom_kills) == ("SIGKILL", 1)
    assert judge.outcome(seen).signature == "SIGKILL:memory"


@needs_v1
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to take the OOM killer away")
@pytest.mark.parametrize("forked", [False, True], ids=["alone", "in a child"])
def test_who_waits_for_room_below_a_memory_limit_without_an_oom_killer_died_of_memory_and_is_not_waited_for_as_for_a_disk(
    observe: Observe, forked: bool
) -> None:
    program = f"""
        import os
        from pathlib import Path
        own = next(line.split(":", 2)[2] for line in Path("/proc/self/cgroup").read_text().splitlines() if ":memory:" in line)
        (Path("/sys/fs/cgroup/memory") / own.strip("/") / "memory.oom_control").write_text("1")
        print("step 1", flush=True)
        if not {forked} or os.fork() == 0:
            x = []
            while True: x.append(b"x" * (4 << 20))
        os.wait()
    """
    seen = observe(program, memory=96 * MIB, limits=Limits(idle_s=2.0, stall_s=40.0, wall_s=60.0))
    assert (seen.exit.ended_by, seen.memory.oom_kills) == ("idle", 0)
    assert "memory limit" in classes(seen).values()
    assert judge.outcome(seen).signature == "SIGKILL:memory"


# ------------------------------------------------------------------ a death behind the parent's
WORKER_DIES = """
    import multiprocessing, os, signal, sys, time
    def work():
        {death}
    if __name__ == "__main__":
        worker = multiprocessing.get_context("fork").Process(target=work)
        worker.start()
        worker.join()
        raise RuntimeError("worker is gone")
"""


@pytest.mark.parametrize(
    ("death", "name"),
    [("os.kill(os.getpid(), 9)", "SIGKILL"), ("import ctypes; ctypes.string_at(0)", "SIGSEGV")],
    ids=["killed", "crashed"],
)
@linux
def test_a_workers_death_behind_the_parents_exception_is_the_one_that_began_it(observe: Observe, death: str, name: str) -> None:
    seen = observe(WORKER_DIES.format(death=death))
    first = initiating(seen.deaths)
    assert first is not None and (first.role, first.signal) == ("worker", name)
    assert [(d.role, d.part) for d in seen.deaths] == [("worker", "initiating"), ("main", "cascade")]
    assert (seen.exit.returncode, seen.python_error and seen.python_error.type) == (1, "RuntimeError")
    assert judge.outcome(seen).signature == {"SIGKILL": "worker SIGKILL"}.get(name, name)


@linux
def test_without_the_hook_a_worker_is_still_told_from_a_helper(observe: Observe) -> None:
    seen = observe(WORKER_DIES.format(death="time.sleep(0.8); os.kill(os.getpid(), 9)"), hook=False)
    if not judge_can_see_others(seen):
        pytest.skip("no process events here")
    assert [(d.role, d.signal, d.part) for d in seen.deaths] == [("worker", "SIGKILL", "initiating"), ("main", None, "cascade")]


@linux
def test_an_unwatched_attempt_is_followed_ended_and_tidied_up_all_the_same(observe: Observe) -> None:
    """The control: nothing is collected but output, progress and exit."""
    program = "import os, sys; print('step 1', flush=True); os.fork() == 0 and os.execvp('sleep', ['sleep', '60']); sys.exit(3)"
    seen = observe(program, watch=False, hook=False, core=False)
    assert (seen.exit.returncode, seen.progress.last_step, seen.survivors_ended, seen.memory.samples) == (3, 1, 1, 0)
    hung = observe("import time; print('step 1', flush=True); time.sleep(60)", watch=False, hook=False, limits=Limits(idle_s=1))
    assert judge.outcome(hung).signature == "hang"


@needs_cgroup
def test_a_worker_that_memory_ended_gives_the_attempt_its_signature(observe: Observe) -> None:
    seen = observe(WORKER_DIES.format(death="x = []\n        while True: x.append(b'x' * (4 << 20))"), memory=128 * MIB)
    first = initiating(seen.deaths)
    assert first is not None and (first.role, first.signal, first.oom) == ("worker", "SIGKILL", True)
    assert judge.outcome(seen).signature == "SIGKILL:memory"


def test_workers_that_a_failing_parent_ends_did_not_begin_it(observe: Observe) -> None:
    program = """
        import multiprocessing, time
        if __name__ == "__main__":
            multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True).start()
            time.sleep(0.3)
            raise ValueError("mine")
    """
    seen = observe(program)
    assert judge.outcome(seen).signature == "exit 1:ValueError"
    assert {(death.role, death.part) for death in seen.deaths} >= {("main", "initiating")}
    assert all(death.part == "teardown" for death in seen.deaths if death.role == "worker")


def test_a_short_lived_grandchild_that_nobody_saw_alive_is_found(observe: Observe) -> None:
    if not judge_can_see_others(observe("import os; os._exit(3)")):
        pytest.skip("no process events here")
    seen = observe("import subprocess, sys; subprocess.run(['sh', '-c', 'sh -c \"kill -SEGV $$\"; exit 0']); sys.exit(4)")
    assert [(death.signal, death.role) for death in seen.deaths if death.role != "main"] == [("SIGSEGV", "other")]


def judge_can_see_others(seen: Observation) -> bool:
    return not any(missing.what.startswith("how other processes") for missing in seen.not_collected)


# ------------------------------------------------------------------ exits
def test_os_exit_is_named_with_its_place(observe: Observe) -> None:
    seen = observe("import os\ndef leave(): os._exit(7)\nleave()")
    assert (seen.exit.returncode, [(call.call, call.status) for call in seen.exit_calls][-1]) == (7, ("os._exit", "7"))
    assert judge.outcome(seen).signature == "exit 7"


def test_status_zero_half_way_is_a_failure(observe: Observe) -> None:
    seen = observe("import os; print('step 3/9', flush=True); os._exit(0)", finished="training finished")
    assert judge.outcome(seen).signature == "exit 0 before it had finished"


def test_a_hang_after_the_finished_line_is_told_from_one_before_it(observe: Observe) -> None:
    program = "import threading, time; print('step 1'); print('training finished', flush=True); time.sleep(60)"
    seen = observe(program, finished="training finished", limits=Limits(idle_s=1.2))
    assert judge.outcome(seen).signature == "hang after it had finished"


# ------------------------------------------------------------------ unruly children
def test_a_child_that_stops_itself_is_idle_and_is_ended(observe: Observe) -> None:
    seen = observe("import os, signal; print('step 1', flush=True); os.kill(os.getpid(), signal.SIGSTOP)", limits=Limits(idle_s=1.2))
    assert seen.exit.ended_by == "idle"
    assert [process.state for process in seen.processes if process.role == "main"] == ["T"]


def test_a_child_that_ignores_every_signal_is_ended_all_the_same(observe: Observe) -> None:
    program = """
        import signal, time
        for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        print("step 1", flush=True)
        time.sleep(60)
    """
    seen = observe(program, limits=Limits(idle_s=1.2))
    assert (seen.exit.ended_by, seen.exit.signal) == ("idle", "SIGKILL")


@linux
def test_a_child_that_takes_another_name_and_folder_stays_the_main_process(observe: Observe) -> None:
    program = """
        import ctypes, os, time
        ctypes.CDLL(None).prctl(15, b"a) R (b c", 0, 0, 0)
        os.chdir("/")
        print("step 1", flush=True)
        time.sleep(60)
    """
    seen = observe(program, limits=Limits(idle_s=1.2))
    assert [(process.role, process.name, process.state) for process in seen.processes] == [("main", "a) R (b c", "S")]


def test_a_child_that_closes_its_output_goes_on_and_is_followed_to_its_end(observe: Observe) -> None:
    seen = observe("import os, time; print('step 1', flush=True); os.close(1); os.close(2); time.sleep(1); os._exit(5)")
    assert (seen.exit.returncode, seen.progress.last_step) == (5, 1)


@linux
def test_five_hundred_forks_are_followed_and_none_is_left(observe: Observe) -> None:
    program = """
        import os, time
        for n in range(500):
            if os.fork() == 0:
                time.sleep(60)
        print("step 1", flush=True)
    """
    seen = observe(program)
    assert (seen.exit.returncode, seen.survivors_ended) == (0, 500)


@pytest.mark.parametrize(
    "gigabytes", [pytest.param(0.5, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.nightly)], ids=["half a GB", "5 GB"]
)
def test_a_flood_of_output_neither_fills_the_disk_nor_stops_the_sampler(observe: Observe, tmp_path: Path, gigabytes: float) -> None:
    times = int(gigabytes * 1024)
    program = f"import os\nblock = b'x' * 1023 * 1024 + b'\\n'\nfor n in range({times}): os.write(1, block)\nprint('step 7')"
    seen = observe(program, limits=Limits(wall_s=300))
    kept = (tmp_path / "attempts" / seen.attempt / "stdout.log").stat().st_size
    assert (seen.exit.returncode, seen.progress.last_step) == (0, 7)
    assert kept < 20 * MIB and seen.dropped_output_bytes + kept > gigabytes * 1e9
    assert seen.memory.samples >= 3


def test_colours_and_a_bar_of_binary_rubbish_leave_readable_last_lines(observe: Observe) -> None:
    program = r"""
        import os
        os.write(1, b"\x1b[2J\x1b[31mstep 1/9\x1b[0m\r\x00\xff\xfe\x1b]0;title\x07\n")
        os.write(1, "step 2/9 \u2588\u2588\r".encode() * 3)
        os.write(1, b"\nlast words\n")
    """
    seen = observe(program)
    assert seen.progress.last_step == 2
    assert seen.output_tail[-1] == "last words"
    assert all(line.isprintable() or "\ufffd" in line for line in seen.output_tail)


# ------------------------------------------------------------------ native stacks
def no_core_files() -> str:
    plan = cores.plan(Path("/tmp"))
    return plan.why_not


needs_cores = pytest.mark.skipif(bool(no_core_files()), reason=f"no core files here: {no_core_files()}")
needs_reader = pytest.mark.skipif(not any(native_stacks.program(name) for name in ("pystack", "gdb")), reason="needs pystack or gdb")
CRASHES_IN_PLACE = """
    import ctypes
    def innermost():
        ctypes.string_at(0)
    def outermost():
        innermost()
    outermost()
"""


@needs_cores
@needs_reader
@pytest.mark.parametrize("hook", [True, False], ids=["with the hook", "bare"])
def test_a_core_gives_native_and_python_frames_and_is_removed(observe: Observe, tmp_path: Path, hook: bool) -> None:
    """With the hook faulthandler's own frames lie on top of the crash; they are not shown."""
    seen = observe(CRASHES_IN_PLACE, stacks=True, hook=hook)
    top = seen.native_stack[0]
    assert "strlen" in top.function and top.library.startswith("libc") and top.trust == "symbol"
    assert any("_ctypes" in frame.library for frame in seen.native_stack)
    if native_stacks.program("pystack") or native_stacks.program("py-spy"):
        python = [frame.function for frame in seen.native_stack if frame.kind == "python"]
        assert python == ["string_at", "innermost", "outermost", "<module>"]
    assert list((tmp_path / "cwd").iterdir()) == []
    assert not list((tmp_path / "attempts" / seen.attempt).glob("core*"))


@needs_cores
@pytest.mark.skipif(not native_stacks.program("gdb"), reason="needs gdb")
def test_without_pystack_gdb_gives_the_native_frames(observe: Observe, monkeypatch: pytest.MonkeyPatch) -> None:
    found = native_stacks.program
    monkeypatch.setattr(native_stacks, "program", lambda name: None if name == "pystack" else found(name))
    seen = observe(CRASHES_IN_PLACE, stacks=True)
    assert "strlen" in seen.native_stack[0].function
    assert any("_ctypes" in frame.library for frame in seen.native_stack)


@needs_cores
def test_without_any_reader_the_reason_is_given(observe: Observe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native_stacks, "program", lambda name: None)
    seen = observe(CRASHES_IN_PLACE, stacks=True)
    assert seen.native_stack == []
    (why,) = [missing.why for missing in seen.not_collected if missing.what == "native stack"]
    assert why == "pystack: not installed; gdb: not installed; py-spy: not installed"


MANY_MAPPINGS = """
import ctypes, mmap
kept = []
try:
    while True:
        kept.append(mmap.mmap(-1, 4096, flags=mmap.MAP_SHARED))
except OSError:
    ctypes.string_at(0)
"""


@needs_cores
@pytest.mark.parametrize("stacks", [False, True], ids=["notes only", "whole"])
def test_a_core_whose_list_of_files_the_kernel_left_out_is_read_and_removed(observe: Observe, tmp_path: Path, stacks: bool) -> None:
    """Tens of thousands of mappings make that list too long: the core is ours all the same, and would block all later ones."""
    seen = observe(MANY_MAPPINGS, stacks=stacks)
    assert (seen.exit.signal, [fault.address for fault in seen.faults if fault.source == "core"]) == ("SIGSEGV", [0])
    (used,) = [bound.used for settings in seen.settings for bound in settings.bounds if bound.name == "maps"]
    assert used is not None and used >= 60_000
    assert not list((tmp_path / "cwd").glob("core*"))


@needs_cores
def test_a_core_that_was_cut_off_says_so_and_still_gives_the_libraries(observe: Observe) -> None:
    seen = observe(CRASHES_IN_PLACE, stacks=True, rlimits={"RLIMIT_CORE": (5 * MIB, 5 * MIB)})
    assert {library.seen for library in seen.libraries} <= {"core"}
    assert [missing.why for missing in seen.not_collected if missing.what == "native stack"] == ["the core was cut off at 5 MiB"]


@needs_cores
def test_no_core_is_made_where_the_specification_forbids_it(observe: Observe) -> None:
    seen = observe(CRASHES_IN_PLACE, stacks=True, rlimits={"RLIMIT_CORE": (0, 0)})
    assert (seen.exit.signal, seen.exit.core_dumped) == ("SIGSEGV", False)
    assert [missing.why for missing in seen.not_collected if missing.what == "core"] == ["limits.core is 0 bytes"]


@needs_cores
@needs_reader
def test_a_crashed_workers_core_is_read_though_the_parent_ends_by_an_exception(observe: Observe, tmp_path: Path) -> None:
    seen = observe(WORKER_DIES.format(death="import ctypes; ctypes.string_at(0)"), stacks=True)
    if not judge_can_see_others(seen):
        pytest.skip("no process events here")
    assert seen.exit.returncode == 1 and "strlen" in seen.native_stack[0].function
    assert list((tmp_path / "cwd").iterdir()) == []


@needs_cores
def test_the_core_of_a_program_that_changed_its_folder_is_found_and_removed(observe: Observe, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere"
    other.mkdir()
    observe(f"import os, time; os.chdir({str(other)!r}); time.sleep(1.2); os.abort()")
    assert list(other.iterdir()) == []


LOADER = """
    import os, torch
    from torch.utils.data import DataLoader
    class Rows(torch.utils.data.Dataset):
        def __len__(self): return 64
        def __getitem__(self, at):
            if at == 40:
                {death}
            return torch.ones(4)
    if __name__ == "__main__":
        for step, _ in enumerate(DataLoader(Rows(), batch_size=4, num_workers=2)):
            print("step", step + 1, flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("death", "name"),
    [("os.kill(os.getpid(), 9)", "SIGKILL"), ("import ctypes; ctypes.string_at(0)", "SIGSEGV")],
    ids=["killed", "crashed"],
)
def test_a_data_loaders_worker_is_found_whatever_its_parent_raises(observe: Observe, death: str, name: str) -> None:
    """RuntimeError in one run, ConnectionResetError in the next: the parent's exception is no signature."""
    pytest.importorskip("torch")
    seen = observe(LOADER.format(death=death))
    if not judge_can_see_others(seen):
        pytest.skip("no process events here")
    first = initiating(seen.deaths)
    assert first is not None and (first.role, first.signal) == ("worker", name), (seen.deaths, seen.output_tail)
    assert judge.outcome(seen).signature == {"SIGKILL": "worker SIGKILL"}.get(name, name)
