"""Each planted fault in a plain Python program, run and observed as the matrix does it: it ends as the fault says of itself."""

from __future__ import annotations

import gzip
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.executors.local import LocalPool
from matrix.records import Attempt, Observation, Trial
from matrix.runner import cgroup
from matrix.runner.attempt import Job
from matrix.runner.patience import Limits
from reproducers.faults import FAULTS, CannotPlant, plant

# Steps for as long as nothing happens to it; sums an array that it hands to a function of the standard library.
PROGRAM = """
import array, math, sys, time
values = array.array("d", [1.0, 2.0])
for step in range(1, int(sys.argv[1]) + 1):
    print(f"step {step} loss={math.fsum(values)}", flush=True)
    time.sleep(0.01)
print("finished", flush=True)
"""
FORKS = """
import multiprocessing
workers = [multiprocessing.get_context("fork").Process(target=input) for _ in range(2)]
print("step 1", flush=True)
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
"""
SPENDS = "import itertools\nprint('step 1', flush=True)\nfor _ in itertools.count():\n    pass\n"
READS = "import gzip, sys\nprint('step 1', flush=True)\ngzip.open(sys.argv[1]).read()\n"
LIMIT_BYTES = 160 << 20

needs_a_memory_limit = pytest.mark.skipif(bool(cgroup.why_not()), reason=f"no memory limit can be had: {cgroup.why_not()}")


@pytest.fixture(scope="module")
def pool() -> Iterator[LocalPool]:
    with LocalPool(1) as made:
        yield made


class Bench:
    def __init__(self, pool: LocalPool, folder: Path) -> None:
        self.pool, self.folder, self.number = pool, folder, itertools.count()

    def run(
        self,
        fault: str,
        *,
        when: str | None = None,
        amount: int | None = None,
        file: Path | None = None,
        program: str = PROGRAM,
        arguments: tuple[str, ...] = ("60",),
        limit_bytes: int | None = None,
        descriptors: int | None = None,
        env: dict[str, str] | None = None,
        idle_s: float = 60.0,
        stall_s: float = 90.0,
    ) -> Observation:
        try:
            planted = plant(fault, when=when, amount=amount, file=file, cache=self.folder / "plants")
        except CannotPlant as reason:
            pytest.skip(f"could not be planted: {reason}")
        attempt = Attempt(
            id="0001-x",
            trial=Trial(id=1, cell={"plant": fault}),
            argv=[sys.executable, "-c", program, *arguments],
            env={**planted, **(env or {})},
            cwd=str(self.folder),
            key=fault,
            program="x",
            memory_limit_bytes=limit_bytes,
        )
        limits = Limits(wall_s=120.0, startup_s=60.0, idle_s=idle_s, stall_s=stall_s)
        bounds = {"RLIMIT_NOFILE": (descriptors, descriptors)} if descriptors else {}
        folder = self.folder / f"attempt-{next(self.number)}"
        self.pool.submit(Job(attempt=attempt, folder=folder, limits=limits, finished="^finished", rlimits=bounds, core=False))
        observation = self.pool.wait()
        assert observation is not None
        return observation


@pytest.fixture
def bench(pool: LocalPool, tmp_path: Path) -> Bench:
    return Bench(pool, tmp_path)


def ended(observation: Observation) -> tuple[str | int | None, int | None]:
    """Signal or status, and the last step."""
    end = observation.exit
    assert end.ended_by == "itself", end
    return end.signal or end.returncode, observation.progress.last_step


def said(observation: Observation) -> str:
    return "\n".join(observation.output_tail)


# ------------------------------------------------------------------ crashes in native code
@pytest.mark.parametrize(
    ("fault", "signal", "words"),
    [
        ("bad-index", "SIGSEGV", ""),
        ("heap-overrun", "SIGABRT", "free(): invalid"),
        ("double-free", "SIGABRT", "free(): double free detected"),
        ("old-view", "SIGSEGV", ""),
        ("bad-instruction", "SIGILL", ""),
        ("deep-recursion", "SIGSEGV", ""),
        ("shrunk-file", "SIGBUS", ""),
    ],
)
def test_a_native_fault_ends_the_program_by_its_signal_before_the_print_that_was_named(
    bench: Bench, fault: str, signal: str, words: str
) -> None:
    observation = bench.run(fault, when="print:4")
    assert ended(observation) == (signal, 3)
    assert words in said(observation)


@pytest.mark.slow
def test_threads_that_share_a_vector_crash_and_one_thread_alone_does_not(bench: Bench) -> None:
    crash, step = ended(bench.run("thread-race", when="print:4", amount=60, env={"OMP_NUM_THREADS": "4"}))
    assert (crash in {"SIGSEGV", "SIGABRT"}, step) == (True, 3)
    assert ended(bench.run("thread-race", when="print:4", env={"OMP_NUM_THREADS": "1"})) == (0, 60)


@pytest.mark.slow
def test_a_recursion_that_the_stack_has_room_for_is_survived(bench: Bench) -> None:
    assert ended(bench.run("deep-recursion", when="print:4", amount=4)) == (0, 60)


@pytest.mark.slow
def test_a_time_is_a_moment_in_any_program_and_the_harm_comes_in_its_main_thread(bench: Bench) -> None:
    observation = bench.run("bad-index", when="seconds:0.1", arguments=("6000",))
    signal, step = ended(observation)
    assert signal == "SIGSEGV"
    assert step is not None
    assert any("<string>" in frame for frame in observation.crash_stack)  # the program's own, which only its main thread has


# ------------------------------------------------------------------ hangs
def test_locks_in_opposite_order_put_the_program_to_sleep(bench: Bench) -> None:
    observation = bench.run("lock-order", when="print:4", idle_s=4.0)
    assert (observation.exit.ended_by, observation.progress.last_step) == ("idle", 3)
    [main] = [seen for seen in observation.processes if seen.role == "main"]
    assert (main.state, main.threads) == ("S", 2)


def test_a_remote_that_does_not_answer_puts_the_program_to_sleep(bench: Bench) -> None:
    observation = bench.run("silent-remote", when="print:4", idle_s=4.0)
    assert (observation.exit.ended_by, observation.progress.last_step) == ("idle", 3)
    [main] = observation.processes
    assert (main.state, main.threads) == ("S", 1)


def test_references_that_are_given_back_too_often_end_the_interpreter(bench: Bench) -> None:
    observation = bench.run("spent-reference", when="print:4")
    signal, step = ended(observation)
    assert (signal, (step or 0) >= 3) == ("SIGABRT", True)
    assert "none_dealloc" in said(observation)


def test_an_iteration_that_never_converges_keeps_the_program_busy(bench: Bench) -> None:
    observation = bench.run("busy-spin", when="print:4", stall_s=3.0)
    assert (observation.exit.ended_by, observation.progress.last_step) == ("stall", 3)
    assert observation.processes[0].state == "R"


def test_a_worker_that_was_forked_while_a_lock_was_held_hangs_and_its_parent_with_it(bench: Bench) -> None:
    observation = bench.run("forked-lock", when="print:4", idle_s=4.0)
    assert (observation.exit.ended_by, observation.progress.last_step) == ("idle", 3)
    assert sorted((seen.state, seen.threads) for seen in observation.processes) == [("S", 1), ("S", 1)]
    [fork] = observation.forks
    assert (fork.threads_alive, fork.start_method) == (2, "fork")


# ------------------------------------------------------------------ memory
@needs_a_memory_limit
@pytest.mark.parametrize(("fault", "amount"), [("big-step", 400), ("kept-memory", 40), ("kept-files", 20), ("arena-retention", 40)])
def test_memory_beyond_the_limit_makes_the_kernel_kill_the_program(bench: Bench, fault: str, amount: int) -> None:
    observation = bench.run(fault, when="print:4", amount=amount, limit_bytes=LIMIT_BYTES)
    signal, step = ended(observation)
    assert (signal, observation.memory.oom_kills) == ("SIGKILL", 1)
    assert step is not None
    assert step == 3 if fault == "big-step" else step > 3


@needs_a_memory_limit
@pytest.mark.slow
def test_one_arena_gives_freed_memory_to_the_next_thread(bench: Bench) -> None:
    observation = bench.run(
        "arena-retention", when="print:4", amount=40, limit_bytes=LIMIT_BYTES, env={"MALLOC_ARENA_MAX": "1"}, arguments=("20",)
    )
    assert ended(observation) == (0, 20)


@needs_a_memory_limit
def test_workers_that_fill_caches_of_their_own_exceed_a_limit_that_each_would_keep(bench: Bench) -> None:
    observation = bench.run("worker-copies", amount=120, program=FORKS, limit_bytes=LIMIT_BYTES)
    assert observation.memory.oom_kills
    assert [death.role for death in observation.deaths if death.oom]
    assert all(death.role != "main" for death in observation.deaths if death.oom)


# ------------------------------------------------------------------ limits
def test_descriptors_that_nobody_closes_run_out(bench: Bench) -> None:
    observation = bench.run("descriptor-leak", when="print:4", descriptors=64)
    assert observation.python_error is not None
    assert (observation.python_error.type, "Too many open files" in observation.python_error.message) == ("OSError", True)
    signal, step = ended(observation)
    assert signal == 1
    assert step is not None
    assert step > 4


@pytest.mark.slow
def test_a_limit_on_processor_time_ends_a_program_that_uses_it(bench: Bench) -> None:
    observation = bench.run("cpu-limit", when="print:1", amount=1, program=SPENDS)
    assert ended(observation) == ("SIGXCPU", 1)


def test_a_full_shm_is_a_bus_error_in_a_mount_that_nobody_else_sees(bench: Bench) -> None:
    signal, step = ended(bench.run("full-shm", when="print:4", amount=4))
    assert signal == "SIGBUS"
    assert step is not None
    assert 4 < step < 9  # four files of 1 MiB, less what the mount needs for itself
    assert list(Path("/dev/shm").glob("planted_*")) == []


# ------------------------------------------------------------------ figures and input
def test_a_number_of_the_programs_array_becomes_nan(bench: Bench) -> None:
    observation = bench.run("nan", when="call:math:fsum:4")
    assert ended(observation) == (0, 60)
    assert [(metric.name, metric.first_bad, metric.first_bad_step) for metric in observation.metrics] == [("loss", "nan", 4)]


def test_a_call_without_floats_says_that_nothing_could_be_planted(bench: Bench) -> None:
    observation = bench.run("nan", when="call:time:sleep:2")
    assert ended(observation) == (125, 2)
    assert "nan could not be planted: the call was given no array of floats" in said(observation)


def test_a_call_that_no_module_has_says_that_nothing_could_be_planted(bench: Bench) -> None:
    observation = bench.run("bad-index", when="call:array:zeros")
    assert ended(observation) == (125, None)
    assert "the call array:zeros cannot be waited for" in said(observation)


def test_a_damaged_file_is_refused_by_its_reader_and_stays_as_it_is(bench: Bench, tmp_path: Path) -> None:
    bank = tmp_path / "bank.gz"
    bank.write_bytes(gzip.compress(os.urandom(10_000)))
    whole = bank.read_bytes()
    observation = bench.run("damaged-file", file=bank, program=READS, arguments=(str(bank),))
    assert observation.python_error is not None
    assert observation.python_error.type.rpartition(".")[2] in {"BadGzipFile", "error"}
    assert bank.read_bytes() == whole


# ------------------------------------------------------------------ endings
def test_another_process_ends_the_program(bench: Bench) -> None:
    observation = bench.run("outside-signal", when="print:4")
    signal, _ = ended(observation)
    assert signal == "SIGTERM"


def test_a_library_ends_the_program_with_status_0_and_what_was_not_flushed_is_lost(bench: Bench) -> None:
    observation = bench.run("library-exit", when="print:4")
    assert ended(observation) == (0, 3)
    assert (observation.exit.left_by, observation.progress.finished_line) == ("native code", False)


def test_a_function_that_no_library_has_ends_the_program_at_its_first_call(bench: Bench) -> None:
    observation = bench.run("lost-symbol", when="print:4")
    assert ended(observation) == (127, 3)
    assert "undefined symbol: added_in_the_next_version" in said(observation)


def test_an_exception_is_an_exception(bench: Bench) -> None:
    observation = bench.run("python-exception", when="print:4")
    assert ended(observation) == (1, 3)
    assert observation.python_error is not None
    assert observation.python_error.type == "RuntimeError"


# ------------------------------------------------------------------ no fault
def test_a_plant_that_is_switched_off_changes_nothing(bench: Bench) -> None:
    assert ended(bench.run("bad-index", when="print:4", env={"PLANTED_FAULT": "off"})) == (0, 60)


def test_every_fault_that_needs_no_framework_is_run_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    elsewhere = {"omp-conflict", "bad-pointer", "device-overrun"}  # test_faults.py, test_device_overrun.py
    assert {name for name in FAULTS if f'"{name}"' in text} >= FAULTS.keys() - elsewhere
