"""The probes that bring a tool along (strace, valgrind), a file system, or meet a real conflict of runtimes."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from matrix.records import Observation, ProbeResult
from matrix.runner import cgroup
from matrix.runner.patience import Limits
from matrix.runner.probes import estimate_s
from matrix.runner.probes.traces import ends, heap_errors
from tests.matrix import machine_needs
from tests.matrix.conftest import Observe

ROOT = Path(__file__).parents[2]
CHILDREN = ROOT / "tests" / "children"
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


def only(seen: Observation) -> ProbeResult:
    (result,) = seen.probes
    return result


# ------------------------------------------------------------------ who ended it
def end_from_outside(log: Path, senders: list[subprocess.Popen[bytes]]) -> None:
    """SIGTERM to the pid that the child prints, from a process that stays to be seen."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if log.exists() and (words := log.read_text().split()):
            senders.append(subprocess.Popen(["/bin/sh", "-c", f"kill -TERM {words[0]}; exec sleep 60"]))
            return
        time.sleep(0.05)


@needs_strace
def test_a_signal_from_outside_is_told_with_its_sender(observe: Observe, tmp_path: Path) -> None:
    senders: list[subprocess.Popen[bytes]] = []
    log = tmp_path / "attempts" / "0001-00000000" / "stdout.log"
    outsider = threading.Thread(target=end_from_outside, args=(log, senders))
    outsider.start()
    seen = observe("import os, time; time.sleep(1); print(os.getpid(), flush=True); time.sleep(60)", probes={"who_ended_it": ""})
    outsider.join()
    (sender,) = senders
    sender.kill()
    sender.wait()
    assert (seen.exit.signal, only(seen).held) == ("SIGTERM", True)
    (sent,) = [sent for sent in seen.signals_sent if sent.signal == "SIGTERM"]
    assert (sent.from_pid, sent.to_pid) == (sender.pid, int(log.read_text().split()[0]))
    assert (sent.inside, sent.by_tool, sent.from_name in ("sh", "sleep")) == (False, False, True)


@needs_strace
def test_a_worker_that_is_killed_by_its_parent_names_the_parent(observe: Observe) -> None:
    kills = """
    import os, signal, subprocess, sys
    worker = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    worker.kill()
    worker.wait()
    print(os.getpid(), worker.pid)
    """
    seen = observe(kills, probes={"who_ended_it": ""})
    parent, worker = map(int, seen.output_tail[0].split())
    killed = [(sent.from_pid, sent.to_pid, sent.inside) for sent in seen.signals_sent if sent.signal == "SIGKILL"]
    assert (parent, worker, True) in killed
    assert (seen.exit.returncode, seen.survivors_ended) == (0, 0)


@needs_strace
def test_an_exit_in_native_code_is_told_with_the_place_that_called_it(observe: Observe) -> None:
    seen = observe([sys.executable, str(CHILDREN / "exits_in_c.py")], probes={"who_ended_it": ""})
    calls = [(call.status, call.where) for call in seen.exit_calls if call.call == "exit_group"]
    assert [status for status, _ in calls] == ["0"]
    assert "libffi" in calls[0][1] or not calls[0][1]  # this strace may not show stacks


STRACE_LOG = """\
10  1000.500000 kill(12, SIGTERM) = 0
12  1000.600000 --- SIGTERM {si_signo=SIGTERM, si_code=SI_USER, si_pid=10, si_uid=0} ---
12  1000.700000 --- SIGSEGV {si_signo=SIGSEGV, si_code=SEGV_MAPERR, si_addr=NULL} ---
12  1000.700001 +++ killed by SIGSEGV +++
10  1000.800000 tgkill(10, 11, SIGKILL) = 0
10  1001.250000 exit_group(9)           = ?
 > /usr/lib/x86_64-linux-gnu/libc.so.6(_exit+0x29) [0xd4409]
 > /usr/lib/x86_64-linux-gnu/libc.so.6(exit+0x1a) [0x3e69a]
 > /opt/lib/libgives.so(lib_gives_up+0x15) [0x111e]
 > /opt/bin/python3.11(_start+0x21) [0x1081]
10  10"""


def test_a_log_of_strace_is_read_to_its_torn_end(tmp_path: Path) -> None:
    log = tmp_path / "strace.log"
    log.write_text(STRACE_LOG)
    sent, exits = ends(log, started_unix_s=1000.0, pids={10, 12}, name_of=lambda pid: f"p{pid}")
    assert [(one.signal, one.to_pid, one.from_pid, one.from_name, one.inside, one.time_s) for one in sent] == [
        ("SIGTERM", 12, 10, "p10", True, 0.6),
        ("SIGSEGV", 12, 0, "", False, 0.7),
        ("SIGKILL", 10, 10, "p10", True, 0.8),
    ]
    assert [(call.pid, call.status, call.where, call.time_s) for call in exits] == [(10, "9", "lib_gives_up (libgives.so)", 1.25)]
    assert ends(tmp_path / "none", started_unix_s=0, pids=set(), name_of=str) == ([], [])


# ------------------------------------------------------------------ valgrind
OVERRUN = """
#include <stdlib.h>
static void fill(volatile char *block, int count) { for (int at = 0; at < count; at++) block[at] = 1; }
int main(void) { char *block = malloc(16); fill(block, 18); free(block); return 0; }
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None or shutil.which("cc") is None, reason="valgrind or a C compiler is not installed")
def test_valgrind_names_the_place_of_an_overrun_that_was_survived(observe: Observe, tmp_path: Path) -> None:
    (tmp_path / "overrun.c").write_text(OVERRUN)
    subprocess.run(["cc", "-g", "-O0", "-o", tmp_path / "overrun", tmp_path / "overrun.c"], check=True)
    seen = observe([str(tmp_path / "overrun")], probes={"valgrind": ""}, limits=Limits(wall_s=300))
    assert seen.exit.returncode == 0
    assert only(seen).held is not False, only(seen).how
    (error,) = seen.heap_errors
    assert error.what == "Invalid write of size 1"
    assert [frame.partition(" ")[0] for frame in error.frames] == ["fill", "main"]


FREED = """
#include <pthread.h>
#include <stdlib.h>
static void *drop(void *block) { free(block); return NULL; }
int main(int count, char **words) {
    char *block = malloc(16); pthread_t other;
    if (count > 1) { pthread_create(&other, NULL, drop, block); pthread_join(other, NULL); } else drop(block);
    volatile char kept = ((volatile char *)block)[3]; (void)kept;
    return 0;
}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None or shutil.which("cc") is None, reason="valgrind or a C compiler is not installed")
@pytest.mark.parametrize("threads", [False, True])
def test_valgrind_tells_which_thread_had_freed_what_is_read(threads: bool, observe: Observe, tmp_path: Path) -> None:
    (tmp_path / "freed.c").write_text(FREED)
    subprocess.run(["cc", "-g", "-O0", "-pthread", "-o", tmp_path / "freed", tmp_path / "freed.c"], check=True)
    seen = observe([str(tmp_path / "freed"), *(["x"] if threads else [])], probes={"valgrind": ""}, limits=Limits(wall_s=300))
    (error,) = seen.heap_errors
    assert (error.what, error.about) == ("Invalid read of size 1", "3 bytes inside a block of size 16 free'd")
    assert [frame.partition(" ")[0] for frame in error.freed_by[:2]] == ["free", "drop"]
    assert error.freed_by_other_thread == threads


def test_the_first_stack_of_each_error_of_valgrind_counts_and_leaks_do_not(tmp_path: Path) -> None:
    error = "==7== Invalid write of size 8\n==7==    at 0x10: fill (a.c:4)\n==7==    by 0x11: main (a.c:5)\n"
    origin = "==7==  Address 0x4a is 0 bytes after a block of size 16 alloc'd\n==7==    at 0x12: malloc (in /x.so)\n==7== \n"
    (tmp_path / "valgrind.7.log").write_text("==7== Memcheck\n" + error + origin + error + origin + "==7== HEAP SUMMARY:\n==7==    at 0x")
    (found,) = heap_errors(tmp_path)
    assert (found.pid, found.what, found.frames, found.times) == (7, "Invalid write of size 8", ["fill (a.c:4)", "main (a.c:5)"], 2)


def test_the_time_under_valgrind_is_estimated_before() -> None:
    low, high = estimate_s("valgrind", "", wall_s=10, cpu_s=4)
    assert 10 + 4 * 10 < low < high
    assert estimate_s("slower_clock", "0.5", wall_s=10, cpu_s=8) == (16, 26)
    assert estimate_s("runtime_override", "", wall_s=10, cpu_s=8)[0] == 10


# ------------------------------------------------------------------ places that are too small
IN_SMALL_PLACES = '''
import json, sys, threading
from pathlib import Path
from matrix.records import Attempt, Trial
from matrix.runner.attempt import Job, run
from matrix.runner.launcher import Guardian
from matrix.runner.patience import Limits

folder = Path(sys.argv[1])
SHM = """
import mmap, os
file = os.open('/dev/shm/x', os.O_CREAT | os.O_RDWR)
os.truncate(file, 16 << 20)
mmap.mmap(file, 16 << 20)[:] = bytes(16 << 20)
"""
TEMP = "import tempfile; file = tempfile.TemporaryFile(); file.write(bytes(16 << 20)); file.flush()"
told = []
with Guardian() as guardian:
    for number, (program, probes) in enumerate([(SHM, {}), (SHM, {"bigger_shm": ""}), (TEMP, {}), (TEMP, {"bigger_temp": ""})]):
        argv, env = [sys.executable, "-c", program], {"TMPDIR": str(folder / "small")}
        trial = Trial(id=1, cell={}, probes=probes)
        attempt = Attempt(id=str(number), trial=trial, argv=argv, env=env, cwd=str(folder), key="k", program="p")
        job = Job(attempt=attempt, folder=folder / str(number), limits=Limits(wall_s=60), core=False)
        seen = run(job, guardian, stop=threading.Event())
        told.append([seen.exit.signal or seen.exit.returncode, *[result.held for result in seen.probes]])
print(json.dumps(told))
'''


@pytest.mark.slow
@pytest.mark.skipif(bool(machine_needs.mounts()), reason=machine_needs.mounts() or "-")
def test_a_full_shm_and_a_full_temp_folder_are_survived_when_they_are_bigger(tmp_path: Path) -> None:
    (tmp_path / "small").mkdir()
    mounts = f"mount -t tmpfs -o size=8m tmpfs /dev/shm && mount -t tmpfs -o size=8m tmpfs {tmp_path}/small"
    argv = ["unshare", "-m", "sh", "-c", f'{mounts} && exec "$@"', "sh", sys.executable, "-c", IN_SMALL_PLACES, str(tmp_path)]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [["SIGBUS"], [0, True], [1], [0, True]]


HELD_BACK = """
import sys, threading
from pathlib import Path
from matrix.records import Attempt, Trial
from matrix.runner.attempt import Job, run
from matrix.runner.launcher import Guardian
from matrix.runner.patience import Limits

folder = Path(sys.argv[1])
argv = [sys.executable, "-c", "import time; open('started', 'w').close(); time.sleep(300)"]
trial = Trial(id=1, cell={}, probes={"slower_clock": "", "bigger_shm": str(1 << 20)})
attempt = Attempt(id="1", trial=trial, argv=argv, env={}, cwd=str(folder), key="k", program="p")
with Guardian() as guardian:
    run(Job(attempt=attempt, folder=folder / "1", limits=Limits(wall_s=300)), guardian, stop=threading.Event())
"""


@pytest.mark.skipif(not cgroup.can_limit_cpu(), reason="no cpu cgroup here")
def test_a_tool_that_is_killed_leaves_nothing_of_a_probe_behind(tmp_path: Path) -> None:
    tool = subprocess.Popen([sys.executable, "-c", HELD_BACK, str(tmp_path)], cwd=ROOT)
    mine = [home for home in cgroup.homes() if home.is_dir()]

    def groups() -> list[Path]:
        return [path for home in mine for path in home.glob(f"mx-{tool.pid}-*")]

    within(60, lambda: (tmp_path / "started").exists())
    assert len(groups()) >= 1
    tool.kill()
    tool.wait()
    within(60, lambda: not groups())
    assert "/dev/shm tmpfs rw,nosuid,nodev,relatime,size=1024k" not in Path("/proc/self/mounts").read_text()


def within(seconds: float, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# ------------------------------------------------------------------ a real conflict
@pytest.fixture
def two_runtimes(tmp_path: Path) -> list[str]:
    """Two copies of the LLVM/Intel OpenMP runtime: using both aborts."""
    try:
        files = importlib.metadata.files("intel-openmp") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the intel-openmp wheel is not installed")
    source = next((Path(str(file.locate())) for file in files if file.name == "libiomp5.so"), None)
    if source is None:
        pytest.skip("the intel-openmp wheel has no libiomp5.so for this platform")
    copies = [tmp_path / f"{name}.so" for name in "ab"]
    for copy in copies:
        shutil.copy(source, copy)
    return [str(copy) for copy in copies]


def test_error_15_is_survived_with_the_override(observe: Observe, two_runtimes: list[str]) -> None:
    argv = [sys.executable, str(CHILDREN / "uses_openmp_runtimes.py"), *two_runtimes]
    died, lived = observe(argv, core=False), observe(argv, probes={"runtime_override": ""})
    assert died.exit.signal == "SIGABRT"
    assert (lived.exit.returncode, only(lived).held) == (0, True)
