"""Each probe on a real child: what the child has of it, what the check says, and what becomes of it when the child takes it back."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrix.records import Observation, ProbeResult
from matrix.runner import cgroup
from matrix.runner.probes import machine
from matrix.runner.probes.change import Change, Prepared
from matrix.runner.probes.watch import Watch
from tests.matrix.conftest import Observe

CHILDREN = Path(__file__).parents[1] / "children"
TELLS = str(CHILDREN / "tells_what_it_has.py")
MIB = 1 << 20
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
needs_cgroup = pytest.mark.skipif(bool(cgroup.why_not()), reason=f"no memory cgroup here: {cgroup.why_not()}")
two_processors = pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda _: [0])(0)) < 2, reason="one processor only")
pytestmark = linux

Told = dict[str, Any]


@pytest.fixture(autouse=True)
def _thread_counts_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children inherit what there is when the guardian starts, and the tests' own configuration sets these."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)


def told(seen: Observation, folder: Path) -> Told:
    """What the child saw from inside."""
    text = (folder / "attempts" / seen.attempt / "stdout.log").read_text()
    found: Told = json.loads(text)
    return found


def only(seen: Observation) -> ProbeResult:
    (result,) = seen.probes
    return result


def without(name: str, seen: Observation) -> list[str]:
    """Why that probe is listed as not collected."""
    return [missing.why for missing in seen.not_collected if missing.what == f"probe {name}"]


HAS: dict[str, Callable[[Told], bool]] = {
    "one_core": lambda it: len(it["cpus"]) == 1 and it["env"].get("OMP_NUM_THREADS") == str(len(os.sched_getaffinity(0))),
    "one_thread": lambda it: {it["env"].get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")} == {"1"},
    "larger_stacks": lambda it: it["limits"]["STACK"] >= 64 * MIB and it["env"].get("OMP_STACKSIZE") == f"{it['limits']['STACK'] >> 10}K",
    "poisoned_heap": lambda it: (it["env"].get("MALLOC_PERTURB_"), it["env"].get("PYTHONMALLOC")) == ("165", "debug"),
    "checked_heap": lambda it: (
        any(name.startswith("libc_malloc_debug.so") for name in it["files"]) and it["env"].get("MALLOC_CHECK_") == "3"
    ),
    "one_arena": lambda it: it["env"].get("MALLOC_ARENA_MAX") == "1",
    "no_huge_pages": lambda it: (it["huge_pages"], it["env"].get("NUMPY_MADVISE_HUGEPAGE")) == ("0", "0"),
    "plain_instructions": lambda it: it["env"].get("ATEN_CPU_CAPABILITY") == "default",
    "runtime_override": lambda it: it["env"].get("KMP_DUPLICATE_LIB_OK") == "TRUE",
    "own_session": lambda it: it["output"].endswith("(deleted)") and it["sessions"][0] == it["sessions"][1],
    "ignore_sighup": lambda it: int(signal.SIGHUP) in it["ignored"],
    "default_sigpipe": lambda it: int(signal.SIGPIPE) not in it["ignored"],
}


@two_processors
def test_without_a_probe_the_child_has_none_of_it(observe: Observe, tmp_path: Path) -> None:
    plain = observe([sys.executable, TELLS])
    it = told(plain, tmp_path)
    assert [name for name, has in HAS.items() if has(it)] == []
    assert plain.probes == []


@two_processors
@pytest.mark.parametrize("name", HAS)
def test_the_child_has_what_the_check_says_that_it_has(
    observe: Observe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    probed = observe([sys.executable, TELLS], probes={name: ""})
    assert HAS[name](told(probed, tmp_path))
    assert only(probed).held is True, only(probed).how


def test_with_one_arena_what_is_freed_between_blocks_in_use_goes_back_to_the_system(observe: Observe) -> None:
    command = [sys.executable, str(CHILDREN / "shrinks_its_buffers.py")]
    plain, probed = observe(command), observe(command, probes={"one_arena": ""})
    kept, given_back = (float(metric.last) for seen in (plain, probed) for metric in seen.metrics if metric.name == "resident")
    if kept < 30:
        pytest.skip("this C library gives it back by itself")
    assert given_back < kept / 2


@two_processors
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("one_core", "was allowed the processors"),
        ("one_thread", "set it to 3"),
        ("one_arena", "set it to 9"),
        ("runtime_override", "removed it"),
        ("raised_nofile", "had 50"),
        ("ignore_sighup", "did not ignore SIGHUP"),
        ("default_sigpipe", "ignores or handles SIGPIPE again"),
    ],
)
def test_what_the_program_takes_back_did_not_hold_and_is_not_collected(observe: Observe, name: str, why: str) -> None:
    seen = observe([sys.executable, TELLS, "again"], probes={name: ""}, rlimits={"RLIMIT_NOFILE": (100, 100)})
    assert seen.exit.returncode == 0
    assert only(seen).held is False
    assert why in only(seen).how
    assert without(name, seen) == [only(seen).how]


def test_huge_pages_stay_refused_by_the_kernel_when_the_program_asks_its_allocator_for_them(observe: Observe) -> None:
    seen = observe(
        [sys.executable, "-c", "import os, time; os.environ['NUMPY_MADVISE_HUGEPAGE'] = '1'; time.sleep(0.5)"], probes={"no_huge_pages": ""}
    )
    assert only(seen).held is True, only(seen).how


def test_a_wrapper_that_starts_the_program_with_another_value_is_seen_at_its_exec(observe: Observe) -> None:
    script = f"OMP_NUM_THREADS=7 {sys.executable} -S -c 'import time; time.sleep(0.5)'"
    seen = observe(["sh", "-c", f"{script}; true"], probes={"one_thread": ""})
    assert only(seen).held is False
    assert "was started with OMP_NUM_THREADS=7" in only(seen).how


def test_a_program_that_cannot_be_started_proves_nothing(observe: Observe) -> None:
    seen = observe(["no-such-program-anywhere"], probes={"one_thread": ""})
    assert only(seen).held is None


def test_several_probes_at_once_are_checked_one_by_one(observe: Observe, tmp_path: Path) -> None:
    probes = {"one_thread": "", "one_core": "0", "larger_stacks": str(32 * MIB), "runtime_override": "", "memory_x2": ""}
    seen = observe([sys.executable, TELLS], probes=probes)
    assert {result.name: result.held for result in seen.probes} == dict.fromkeys(probes, True) | {"memory_x2": False}
    assert [result.setting for result in seen.probes] == list(probes.values())
    it = told(seen, tmp_path)
    assert (it["cpus"], it["env"]["OMP_NUM_THREADS"], it["limits"]["STACK"]) == ([0], "1", 32 * MIB)
    assert without("memory_x2", seen) == ["no memory limit of ours (limits.memory) to change"]


def test_attempt_json_names_the_probes_beside_the_unprobed_values(observe: Observe, tmp_path: Path) -> None:
    seen = observe("pass", probes={"runtime_override": ""}, env={"OMP_NUM_THREADS": "2"})
    written = json.loads((tmp_path / "attempts" / seen.attempt / "attempt.json").read_text())
    assert (written["trial"]["probes"], written["env"]) == ({"runtime_override": ""}, {"OMP_NUM_THREADS": "2"})


# ------------------------------------------------------------------ fates that change
FILES = "files = [open('/dev/null') for _ in range(150)]; print('step 1')"


def test_emfile_is_survived_with_raised_nofile(observe: Observe) -> None:
    tight = {"RLIMIT_NOFILE": (100, 100)}
    died, lived = observe(FILES, rlimits=tight), observe(FILES, rlimits=tight, probes={"raised_nofile": ""})
    assert (died.exit.returncode, died.python_error and died.python_error.type) == (1, "OSError")
    assert (lived.exit.returncode, only(lived).held) == (0, True)


DEEP = """
import itertools, os
chain = iter([1, 2])
for _ in range(100_000):
    chain = itertools.islice(chain, 2)
next(chain)  # recursion in C
os._exit(0)
"""


def test_a_stack_overflow_is_survived_with_larger_stacks(observe: Observe) -> None:
    tight = {"RLIMIT_STACK": (MIB, MIB)}
    died, lived = observe(DEEP, rlimits=tight, core=False), observe(DEEP, rlimits=tight, probes={"larger_stacks": ""})
    assert died.exit.signal == "SIGSEGV"
    assert (lived.exit.returncode, only(lived).held) == (0, True)


@pytest.mark.slow
def test_a_limit_of_processor_time_is_survived_when_it_is_raised(observe: Observe) -> None:
    burns = "import time\nwhile time.process_time() < 1.2: pass"
    tight = {"RLIMIT_CPU": (1, 1000)}
    died, lived = observe(burns, rlimits=tight, core=False), observe(burns, rlimits=tight, probes={"raised_cpu_time": ""})
    assert died.exit.signal == "SIGXCPU"
    assert (lived.exit.returncode, only(lived).held) == (0, True)


def test_a_limit_of_address_space_is_survived_when_it_is_raised(observe: Observe) -> None:
    takes = "import mmap; x = mmap.mmap(-1, 3 << 30)"
    tight = {"RLIMIT_AS": (2 << 30, resource.RLIM_INFINITY)}
    died, lived = observe(takes, rlimits=tight), observe(takes, rlimits=tight, probes={"raised_address_space": ""})
    assert (died.python_error and died.python_error.type) == "OSError"
    assert (lived.exit.returncode, only(lived).held) == (0, True)


@needs_cgroup
def test_an_oom_kill_is_survived_with_twice_the_memory_and_not_with_half_of_it(observe: Observe) -> None:
    takes = "x = bytearray(150 << 20)\nfor at in range(0, len(x), 4096): x[at] = 1"
    died, lived = observe(takes, memory=128 * MIB), observe(takes, memory=128 * MIB, probes={"memory_x2": ""})
    assert (died.exit.signal, died.memory.oom_kills) == ("SIGKILL", 1)
    assert (lived.exit.returncode, lived.memory.limit_bytes, only(lived).held) == (0, 256 * MIB, True)
    died = observe(takes, memory=256 * MIB, probes={"memory_half": ""})
    assert (died.exit.signal, died.memory.oom_kills, only(died).held) == ("SIGKILL", 1, True)


@pytest.mark.skipif(not cgroup.can_limit_pids(), reason="no pids cgroup here")
def test_a_limit_of_threads_is_survived_when_it_is_raised(observe: Observe) -> None:
    starts = """
    import threading
    done = threading.Event()
    threads = [threading.Thread(target=done.wait) for _ in range(30)]
    try:
        for thread in threads: thread.start()
    finally:
        done.set()
    """
    died, lived = observe(starts, pids=20), observe(starts, pids=20, probes={"raised_pids": ""})
    assert (died.exit.returncode, died.python_error and died.python_error.type) == (1, "RuntimeError")
    assert (lived.exit.returncode, only(lived).held) == (0, True)


@pytest.mark.skipif(not cgroup.can_limit_cpu(), reason="no cpu cgroup here")
def test_under_a_slower_clock_the_same_work_is_held_back(observe: Observe) -> None:
    burns = "import time\nwhile time.process_time() < 0.15: pass"
    seen = observe(burns, probes={"slower_clock": "0.04"})  # less than a busy machine would give it
    assert only(seen).held is True, only(seen).how
    assert seen.exit.cpu_s is not None
    assert seen.wall_s > 2 * seen.exit.cpu_s  # the kernel's quota, not the machine's load, bounds it from below
    idle = observe("pass", probes={"slower_clock": "2"})
    assert (only(idle).held, without("slower_clock", idle)) == (False, [only(idle).how])


def test_an_environment_that_is_empty_is_believed_at_the_second_look_only() -> None:
    """Between the end of one program and the first instruction of the next a process has none; no look may take that for an answer."""
    watch = Watch(Prepared(total=Change(env={"MX_PROBED": "1"})), token="")
    with subprocess.Popen(["sleep", "30"], env={}) as bare, subprocess.Popen(["sleep", "30"], env={"MX_PROBED": "1"}) as told:
        try:
            time.sleep(0.2)  # both have become their programs
            watch.look(0.0, {bare.pid, told.pid})
            assert {pid: seen.environ for pid, seen in watch.seen.items()} == {told.pid: {"MX_PROBED": "1"}}
            watch.look(1.0, {bare.pid, told.pid})
            assert watch.seen[bare.pid].environ == {}
        finally:
            bare.kill()
            told.kill()


def test_a_hangup_is_survived_when_it_is_ignored(observe: Observe) -> None:
    hangs_up = ["sh", "-c", "kill -HUP $$; sleep 0.3; echo step 1"]
    assert observe(hangs_up).exit.signal == "SIGHUP"
    lived = observe(hangs_up, probes={"ignore_sighup": ""})
    assert (lived.exit.returncode, only(lived).held) == (0, True)


def test_a_broken_pipe_ends_python_as_it_ends_others_when_sigpipe_has_its_default(observe: Observe) -> None:
    breaks = "import os; read, write = os.pipe(); os.close(read); os.write(write, b'x')"
    assert observe(breaks).exit.returncode == 1
    seen = observe(breaks, probes={"default_sigpipe": ""})
    assert (seen.exit.signal, only(seen).held) == ("SIGPIPE", True)
    shell = ["sh", "-c", "sleep 0.3; kill -PIPE $$; echo step 1"]
    assert observe(shell).exit.signal == "SIGPIPE"
    lived = observe(shell, probes={"ignore_sigpipe": ""})
    assert (lived.exit.returncode, only(lived).held) == (0, True)


def test_output_to_a_file_is_followed_and_capped_like_that_of_a_pipe(observe: Observe, tmp_path: Path) -> None:
    program = "import sys\nfor n in range(3): print('step', n, flush=True)\nsys.stderr.write('last words')\nprint('x' * (40 << 20))"
    seen = observe(program, probes={"own_session": ""}, pty=True)
    assert (seen.progress.last_step, only(seen).held) == (2, True)
    assert "last words" in (tmp_path / "attempts" / seen.attempt / "stderr.log").read_text()
    assert seen.dropped_output_bytes > MIB


WORKER = str(CHILDREN / "starts_a_worker.py")


@pytest.mark.parametrize(("method", "how"), [("spawn", "fork"), ("forkserver", "default")])
def test_another_start_method_stands_in_for_fork(observe: Observe, method: str, how: str) -> None:
    seen = observe([sys.executable, WORKER, how], probes={f"start_{method}": ""})
    assert only(seen).held is True, only(seen).how
    assert seen.output_tail[-1] == method
    assert not [fork for fork in seen.forks if fork.start_method == "fork"]


def test_os_fork_is_not_replaced_and_the_check_says_so(observe: Observe) -> None:
    seen = observe([sys.executable, WORKER, "os.fork"], probes={"start_spawn": ""})
    assert (seen.exit.returncode, only(seen).held) == (0, False)
    assert "os.fork() was called 1 times" in only(seen).how


def test_a_preloaded_library_is_gone_with_a_clean_preload(observe: Observe, tmp_path: Path) -> None:
    library = machine.malloc_debug_library()
    if library is None:
        pytest.skip("no library to preload")
    env = {"LD_PRELOAD": library}
    name = Path(library).resolve().name
    assert name in told(observe([sys.executable, TELLS], env=env), tmp_path)["files"]
    seen = observe([sys.executable, TELLS], env=env, probes={"clean_preload": ""})
    assert only(seen).held is True, only(seen).how
    assert (name in told(seen, tmp_path)["files"], "LD_PRELOAD" in told(seen, tmp_path)["env"]) == (False, False)


def test_memory_that_was_never_written_is_not_zero_on_a_poisoned_heap(observe: Observe) -> None:
    looks = """
    import ctypes
    malloc = ctypes.CDLL(None).malloc
    malloc.restype = ctypes.c_void_p
    print(ctypes.string_at(malloc(100_000), 100_000).count(0xFF ^ 165))
    """
    seen = observe(looks, probes={"poisoned_heap": ""})
    assert (seen.output_tail, only(seen).held) == (["100000"], True)


def test_the_checked_heap_ends_an_overrun_where_the_block_is_freed(observe: Observe) -> None:
    overruns = """
    import ctypes
    api = ctypes.pythonapi  # linked with malloc and free; a look-up by name would find the C library's own
    api.PyMem_RawMalloc.restype = ctypes.c_void_p
    api.PyMem_RawFree.argtypes = [ctypes.c_void_p]
    block = api.PyMem_RawMalloc(24)
    ctypes.memset(block + 24, 1, 1)
    api.PyMem_RawFree(block)
    import os; os._exit(0)
    """
    seen = observe(overruns, probes={"checked_heap": ""}, core=False)
    if without("checked_heap", seen):
        pytest.skip(without("checked_heap", seen)[0])
    assert (seen.exit.signal, only(seen).held) == ("SIGABRT", True)
