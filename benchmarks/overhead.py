"""What the engine adds to one attempt, in three settings, each interleaved with what it is compared with: `python -m benchmarks.overhead`.

Unwatched: 1,000 attempts of `true` with 2 jobs against `xargs -P 2`.  Isolated: cgroup, sampler and guardian over a bare
Popen + wait; `true` has ended before the sampler's first look, which is 10 ms after the start.  Everything: hook, cgroup,
sampler, kernel log, core, on a short healthy Python program.

What a matrix does besides its attempts (choosing the next one, judging, the verdict) is not part of these figures.  The CPU
time of the tool, of its guardian and of the children is given beside the rate, because the rate of a busy machine says little.

All of it twice: with the run folder in memory, which is what the engine itself costs, and on this disk.  An attempt makes three to
eleven files and folders, and what the kernel takes for a new one differs thirtyfold on one and the same disk: ext4 without a journal
passes over every inode that was freed within the last minutes (`recently_deleted`), so that tests or benchmarks which have just
removed their files make the next ones dear.  The figure for one new file is given beside.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.record import save, spread
from matrix.executors.local import LocalPool
from matrix.records import Attempt, Trial
from matrix.runner.attempt import Job, run
from matrix.runner.launcher import Guardian
from matrix.runner.patience import Limits

ROUNDS, BLOCK, BLOCKS = 40, 100, 10
FILES = 200
GIB = 1 << 30
MEMORY, RUNS = Path("/dev/shm"), Path("runs")
TRUE, PYTHON = ["true"], [sys.executable, "-c", "print('step 1')"]
UNWATCHED: dict[str, Any] = {"hook": False, "core": False, "watch": False}
WANTED = {"unwatched_rate_against_xargs_at_least": 0.5, "isolated_added_ms_at_most": 5, "everything_added_ms_at_most": 40}


def job(argv: list[str], folder: Path, number: int, memory: int | None = GIB, **options: Any) -> Job:
    name = f"{number:05d}-0"
    cell = Trial(id=number, cell={})
    attempt = Attempt(id=name, trial=cell, argv=argv, env={}, cwd=str(folder), key="", program="", memory_limit_bytes=memory)
    return Job(attempt=attempt, folder=folder / name, limits=Limits(), **options)


def popen(argv: list[str]) -> float:
    began = time.perf_counter()
    subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).wait()
    return time.perf_counter() - began


def attempt(wanted: Job, guardian: Guardian) -> float:
    began = time.perf_counter()
    seen = run(wanted, guardian, stop=threading.Event())
    took = time.perf_counter() - began
    if seen.exit.returncode:
        raise SystemExit(f"the program was not started, or failed: {seen.exit}")
    return took


def added(argv: list[str], folder: Path, guardian: Guardian, first: int, **options: Any) -> dict[str, Any]:
    popen(argv), attempt(job(argv, folder, first, **options), guardian)  # warm
    pairs = [(popen(argv), attempt(job(argv, folder, first + 1 + n, **options), guardian)) for n in range(ROUNDS)]
    plain, ours = zip(*pairs, strict=True)
    return {
        "Popen + wait": spread(plain),
        "attempt": spread(ours),
        "added_median_ms": round(statistics.median(b - a for a, b in pairs) * 1e3, 2),
    }


def xargs() -> float:
    began = time.perf_counter()
    words = "\n".join(map(str, range(BLOCK)))
    subprocess.run(["xargs", "-P", "2", "-n", "1", "true"], input=words, text=True, check=True)
    return time.perf_counter() - began


def cpu_of(guardian: int) -> dict[str, float]:
    """CPU seconds so far of this process, of the guardian, and of its children that have ended."""
    fields = Path(f"/proc/{guardian}/stat").read_text().rpartition(")")[2].split()
    own, children = (sum(map(int, fields[at : at + 2])) / os.sysconf("SC_CLK_TCK") for at in (11, 13))
    return {"tool": time.process_time(), "guardian": own, "children": children}


def pool_of_two(pool: LocalPool, folder: Path, first: int) -> float:
    began = time.perf_counter()
    waiting = iter(range(first, first + BLOCK))
    for number in waiting:
        pool.submit(job(TRUE, folder, number, None, **UNWATCHED))
        if not pool.free:
            pool.wait()
    while pool.running:
        pool.wait()
    return time.perf_counter() - began


def rates(folder: Path) -> dict[str, Any]:
    with LocalPool(2) as pool:
        pool_of_two(pool, folder, 0)  # warm
        before = cpu_of(pool.guardian_pid)
        pairs = [(xargs(), pool_of_two(pool, folder, BLOCK * (1 + n))) for n in range(BLOCKS)]
        used = {name: after - before[name] for name, after in cpu_of(pool.guardian_pid).items()}
    return {
        "xargs_per_s": round(BLOCK / statistics.median(a for a, _ in pairs)),
        "attempts_per_s": round(BLOCK / statistics.median(b for _, b in pairs)),
        "ratio_median": round(statistics.median(a / b for a, b in pairs), 2),
        "cpu_ms_an_attempt": {name: round(1e3 * seconds / (BLOCK * BLOCKS), 2) for name, seconds in used.items()},
        "load": round(psutil.getloadavg()[0], 1),
    }


def a_new_file(folder: Path) -> float:
    """CPU seconds that the kernel takes to make one."""
    began = time.thread_time()
    for number in range(FILES):
        os.close(os.open(folder / f"new{number}", os.O_CREAT | os.O_WRONLY))
    return (time.thread_time() - began) / FILES


def figures(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"a_new_file_cpu_us": round(1e6 * a_new_file(folder)), "unwatched, 2 jobs": rates(folder)}
    with Guardian() as guardian:
        found["isolated"] = added(TRUE, folder, guardian, 90_000, hook=False, core=False)
        found["everything"] = added(PYTHON, folder, guardian, 91_000)
    return found


def places() -> Iterator[tuple[str, Path]]:
    if MEMORY.is_dir():
        yield "in memory", MEMORY
    RUNS.mkdir(exist_ok=True)
    yield "on disk", RUNS.resolve()  # a child is started elsewhere than here


def main() -> None:
    found = {}
    for name, place in places():
        with tempfile.TemporaryDirectory(dir=place, prefix="overhead-") as folder:
            found[name] = figures(Path(folder))
    save("overhead", {"rounds": ROUNDS, "attempts": BLOCK * BLOCKS, **found, "wanted": WANTED})


if __name__ == "__main__":
    main()
