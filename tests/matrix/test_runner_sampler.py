"""What the sampler sees of real processes, what it costs, and how large its file gets."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from matrix.runner import cgroup
from matrix.runner.curve_file import HEADER, CurveFile
from matrix.runner.sampler import FAST_S, FULL_AT_REST, SAMPLE_COSTS, SLOW_S, Pace, Sampler
from tests.matrix.conftest import Observe

MIB = 1 << 20
REMEMBERS = str(Path(__file__).parents[1] / "children" / "remembers.py")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
needs_cgroup = pytest.mark.skipif(bool(cgroup.why_not()), reason=f"no memory cgroup here: {cgroup.why_not()}")


# ------------------------------------------------------------------ what is seen
@needs_cgroup
@pytest.mark.slow
def test_forked_workers_share_their_pages_and_pss_says_so(observe: Observe) -> None:
    """Four processes hold the same 40 MiB: RSS counts them four times, PSS and the group's own count once."""
    memory = observe([sys.executable, REMEMBERS, "forks", "150"]).memory
    assert [process.role for process in memory.processes].count("worker") == 3
    assert [process.role for process in memory.processes].count("main") == 1
    assert memory.peak_tree_rss_bytes and memory.peak_tree_pss_bytes and memory.peak_group_bytes
    assert memory.peak_tree_rss_bytes > 2.5 * memory.peak_tree_pss_bytes
    assert memory.peak_tree_pss_bytes == pytest.approx(memory.peak_group_bytes, rel=0.4)


@pytest.mark.parametrize("hook", [True, False])
def test_workers_stay_workers_when_the_main_process_goes_first(hook: bool, observe: Observe) -> None:
    """A killed parent gives back its memory for a while, and what a new helper is for is asked meanwhile."""
    program = """
        import ctypes, multiprocessing, os, subprocess, sys, threading, time
        def late():
            time.sleep(0.8)
            subprocess.Popen(["sleep", "5"])
            time.sleep(0.8)
            os._exit(3)
        workers = [multiprocessing.get_context("fork").Process(target=time.sleep, args=(9,)) for _ in range(2)]
        for worker in workers: worker.start()
        time.sleep(0.8)
        threading.Thread(target=late).start()
        ctypes.CDLL(None).syscall(60, 0)  # the main thread ends alone: the process looks as it does while the kernel takes it apart
    """
    seen = observe(program, hook=hook)
    assert sorted(process.role for process in seen.memory.processes) == ["main", "other", "worker", "worker"]


def test_the_peak_of_a_process_is_the_kernels_own(observe: Observe) -> None:
    """80 MiB for a millisecond, between two samples."""
    seen = observe("x = bytearray(b'x') * (80 << 20); del x; import time; print('step 1', flush=True); time.sleep(0.7)")
    (main,) = seen.memory.processes
    assert main.peak_rss_bytes > 80 * MIB > main.anon_bytes


@pytest.mark.slow
def test_what_a_process_holds_is_told_by_kind(observe: Observe, tmp_path: Path) -> None:
    mapped = tmp_path / "mapped"
    mapped.write_bytes(b"x" * (20 * MIB))
    seen = observe(
        f"""
        import mmap, os, threading, time
        anon = bytearray(b"x") * ({30 * MIB})
        shared = mmap.mmap(-1, {10 * MIB}); shared.write(b"x" * {10 * MIB})
        file = mmap.mmap(os.open({str(mapped)!r}, os.O_RDONLY), 0, prot=mmap.PROT_READ); sum(file[::4096])
        descriptors = [os.open("/dev/null", os.O_RDONLY) for _ in range(50)]
        for _ in range(3): threading.Thread(target=time.sleep, args=(3,)).start()
        print("step 1", flush=True)
        time.sleep(3)
        os._exit(0)  # not by way of an interpreter that frees all first: a look may come meanwhile
        """,
        rlimits={"RLIMIT_NOFILE": (99, 99)},
    )
    (main,) = seen.memory.processes
    assert (main.role, main.threads, main.descriptor_limit) == ("main", 4, 99)
    assert 30 * MIB < main.anon_bytes < 50 * MIB
    assert 10 * MIB <= main.shmem_bytes < 11 * MIB
    assert 20 * MIB < main.file_bytes < 40 * MIB
    assert main.descriptors and 53 <= main.descriptors < 70
    assert main.minor_faults > 7000
    assert main.uss_bytes and main.pss_bytes and 40 * MIB < main.uss_bytes <= main.pss_bytes


def test_free_space_is_the_least_that_was_seen(observe: Observe) -> None:
    seen = observe(
        """
        import os, time
        path = f"/dev/shm/{os.environ['MATRIX_ATTEMPT']}"
        with open(path, "wb") as sink: sink.write(b"x" * (30 << 20))
        time.sleep(0.8)
        os.unlink(path)
        time.sleep(0.7)
        """
    )
    space = os.statvfs("/dev/shm")
    assert seen.memory.shm_free_bytes and seen.memory.shm_free_bytes < space.f_bavail * space.f_frsize - 20 * MIB
    assert seen.memory.temp_free_bytes and seen.memory.cwd_free_bytes


def test_a_rank_is_read_from_the_environment(observe: Observe, tmp_path: Path) -> None:
    seen = observe(["env", "RANK=3", sys.executable, "-c", "import time; time.sleep(1.2)"])
    assert [process.rank for process in seen.memory.processes] == [3]
    assert ",main,3,host,rss," in (tmp_path / "attempts" / seen.attempt / "memory.csv").read_text()


def test_the_watchdog_does_not_end_forked_processes_that_share_their_pages(observe: Observe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cgroup, "create", lambda *_: None)
    seen = observe([sys.executable, REMEMBERS, "forks", "60"], memory=120 * MIB)
    assert seen.memory.peak_tree_rss_bytes and seen.memory.peak_tree_rss_bytes > 120 * MIB
    assert (seen.exit.ended_by, seen.exit.returncode) == ("itself", 0)


# ------------------------------------------------------------------ what it costs
def test_what_is_dear_is_done_less_often() -> None:
    pace = Pace(SAMPLE_COSTS)
    pace.spent(1.0, FAST_S, 0.0001)
    assert pace.next_s == pytest.approx(1.01)
    pace.spent(1.0, FAST_S, 0.01)
    assert pace.next_s == pytest.approx(1.66)


@pytest.fixture
def sampler(tmp_path: Path) -> Iterator[Sampler]:
    made = Sampler(tmp_path / "memory.csv")
    made.look(0.0, {os.getpid()}, os.getpid())
    yield made
    made.close()


def test_samples_are_dense_in_the_first_seconds_and_thinner_later(sampler: Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    sampler.sample(0.5, None)
    assert sampler.next_s == pytest.approx(0.5 + FAST_S)
    sampler.sample(100.0, None)
    assert sampler.next_s == pytest.approx(100.0 + SLOW_S)


def test_the_shares_of_a_process_are_not_read_again_before_a_hundred_times_their_cost(sampler: Sampler, tmp_path: Path) -> None:
    for at in range(100):
        sampler.sample(2.0 + at * 0.0001, None)
    sampler.look(3.0, {os.getpid()}, os.getpid())
    assert (tmp_path / "memory.csv").read_text().count(",pss,") == 1


def test_the_shares_of_a_large_process_are_not_read_in_its_first_seconds(sampler: Sampler, tmp_path: Path) -> None:
    held = bytearray(b"x") * (300 * MIB)  # whose first reading would cost some 7 ms, or 1 % of 0.7 s
    sampler.sample(0.2, None)
    sampler.settle()
    sampler._shares.next_s = 0.0
    for at, wanted in ((0.3, 0), (2.0, 1)):
        sampler.sample(at, None)
        sampler.look(at, {os.getpid()}, os.getpid())
        assert (tmp_path / "memory.csv").read_text().count(",pss,") == wanted
    assert len(held) == 300 * MIB


def test_a_process_that_does_not_change_keeps_its_last_figure_and_one_that_begins_to_is_followed(tmp_path: Path) -> None:
    grows = "import sys, time\nfor line in sys.stdin:\n    held = bytearray(b'x') * (50 << 20)\n    print('grown', flush=True)"
    with subprocess.Popen([sys.executable, "-c", grows], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin and child.stdout
        time.sleep(0.3)
        sampler = Sampler(tmp_path / "memory.csv")
        sampler.look(0.0, {os.getpid(), child.pid}, os.getpid())
        for at in range(20):
            sampler.sample(at / 100, None)
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == "grown\n"
        for at in range(20, 20 + FULL_AT_REST):
            sampler.sample(at / 100, None)
        sampler.close()
        child.stdin.close()
    rows = [line.split(",") for line in (tmp_path / "memory.csv").read_text().splitlines() if f",{child.pid}," in line and ",rss," in line]
    assert [row[0] for row in rows] == [f"{at / 100:.3f}" for at in range(20 + FULL_AT_REST)]
    assert int(rows[-1][-1]) - int(rows[0][-1]) > 40 * MIB


def test_a_process_that_is_gone_leaves_the_others_alone(sampler: Sampler) -> None:
    child = os.fork()
    if child == 0:
        os.execvp("sleep", ["sleep", "30"])
    sampler.look(1.0, {os.getpid(), child}, os.getpid())
    os.kill(child, 9)
    os.waitpid(child, 0)
    sampler.sample(1.5, 1)
    sampler.look(2.0, {os.getpid()}, os.getpid())
    sampler.sample(2.5, 2)
    sampler.settle()
    assert sampler.samples == 2
    assert {process.pid for process in sampler.processes(None)} >= {os.getpid()}


# ------------------------------------------------------------------ while it waits
def test_a_wait_goes_on_sampling_until_something_happens(sampler: Sampler, tmp_path: Path) -> None:
    waits: list[float] = []

    def poll(milliseconds: float) -> list[tuple[int, int]]:
        waits.append(milliseconds)
        time.sleep(milliseconds / 1000)
        return [(5, select.POLLIN)] if len(waits) == 4 else []

    began_s = time.monotonic()
    sampler.sample(0.0, None)
    assert sampler.wait(poll, began_s, 3600.0, 7) == [(5, select.POLLIN)]
    sampler.settle()
    assert sampler.samples == len(waits) == 4
    sampler.close()
    rows = [line.split(",") for line in (tmp_path / "memory.csv").read_text().splitlines() if ",rss," in line]
    assert [row[1] for row in rows] == ["", "7", "7", "7"]
    assert all(int(row[-1]) > MIB for row in rows)


def test_a_wait_ends_when_it_is_time_for_more_than_a_light_sample(sampler: Sampler) -> None:
    began_s = time.monotonic()
    sampler.sample(0.0, None)
    assert sampler.wait(select.poll().poll, began_s, 3600.0, None) == []
    sampler.settle()
    assert sampler.samples == FULL_AT_REST
    assert sampler.wait(select.poll().poll, began_s, 0.0, None) == []


@pytest.mark.parametrize("until_s", [0.35, 1.0, 7.0])
def test_a_wait_lasts_no_longer_than_it_may_however_large_the_tree_and_rare_its_samples(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch, until_s: float
) -> None:
    """Who comes back late takes the rest for time in which nobody looked, and no limit counts that."""
    now, waits = [100.0], list[float]()

    def poll(milliseconds: float) -> list[tuple[int, int]]:
        waits.append(milliseconds)
        now[0] += milliseconds / 1000
        return []

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    sampler.sample(0.0, None)
    sampler._least_s = sampler.next_s = 0.3
    assert sampler.wait(poll, 100.0, until_s, None) == []
    assert now[0] <= 100.0 + until_s + 1e-9
    assert sum(waits) > 0


def test_a_wait_ends_with_the_event_and_leaves_the_next_sample_due(sampler: Sampler) -> None:
    reader, writer = os.pipe()
    poll, began_s = select.poll(), time.monotonic()
    poll.register(reader, select.POLLIN)
    os.write(writer, b"x")
    sampler.sample(0.0, None)
    due_s = sampler.next_s
    assert sampler.wait(poll.poll, began_s, 3600.0, None) == [(reader, select.POLLIN)]
    assert sampler.next_s == due_s
    os.close(reader)
    os.close(writer)


def test_a_wait_in_which_a_process_goes_ends_and_the_next_sample_leaves_it_out(tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "30"]) as child:
        sampler = Sampler(tmp_path / "memory.csv")
        sampler.look(0.0, {os.getpid(), child.pid}, child.pid)
        began_s = time.monotonic()
        sampler.sample(0.0, None)
        child.kill()
    assert sampler.wait(select.poll().poll, began_s, 3600.0, None) == []
    sampler.sample(1.0, None)
    sampler.settle()
    assert sampler.samples == 2
    assert sampler.last_total and sampler.peak_total and sampler.last_total < sampler.peak_total
    sampler.close()


# ------------------------------------------------------------------ its file
def rows(time: float, rss: int) -> list[str]:
    return [f"{time:.3f},,7,main,,host,rss,{rss}\n", f"{time:.3f},,7,main,,host,shared,1\n"]


def test_a_day_of_samples_stays_small_keeps_its_end_whole_and_its_peak(tmp_path: Path) -> None:
    sink = CurveFile(tmp_path / "memory.csv", most_rows=2000)
    for at in range(100_000):
        sink.write(rows(at * 0.05, 900 if at == 31_234 else 100 + at % 7))
        if at % 5000 == 0:
            sink.write([f"{at * 0.05:.3f},,7,main,,host,threads,{at}\n"])
    sink.close()
    lines = (tmp_path / "memory.csv").read_text().splitlines(keepends=True)
    assert (lines[0], len(lines) <= 2001) == (HEADER, True)
    times = [float(text.split(",")[0]) for text in lines[1:] if ",rss," in text]
    assert times == sorted(times)
    assert times[0] < 60 and times[-1] == pytest.approx(99_999 * 0.05)
    assert max(b - a for a, b in pairwise(times[-200:])) < 0.06
    assert max(b - a for a, b in pairwise(times)) < 5000 / 100
    assert any(text.endswith("rss,900\n") for text in lines)
    assert sum(",threads," in text for text in lines) >= 15


def test_a_sample_is_never_torn_apart(tmp_path: Path) -> None:
    sink = CurveFile(tmp_path / "memory.csv", most_rows=101)
    for at in range(500):
        sink.write(rows(at * 0.05, at))
    sink.close()
    found = (tmp_path / "memory.csv").read_text()
    assert found.count(",rss,") == found.count(",shared,") > 20
