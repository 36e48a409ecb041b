"""What the engine adds to one attempt against a bare `subprocess.run` of the same command: `python -m benchmarks.overhead`.

Interleaved in one run.  `true` shows the fixed cost; a short Python program shows what the hook adds to a Python child.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.record import save, spread
from matrix.records import Attempt, Trial
from matrix.runner.attempt import Job, run
from matrix.runner.launcher import Guardian
from matrix.runner.patience import Limits

ROUNDS = 40
GIB = 1 << 30
COMMANDS = {"true": ["true"], "python": [sys.executable, "-c", "print('step 1')"]}


def bare(argv: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(argv, capture_output=True, stdin=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def supervised(argv: list[str], folder: Path, guardian: Guardian, number: int) -> float:
    attempt = Attempt(
        id=f"{number:04d}-0",
        trial=Trial(id=number, cell={}),
        argv=argv,
        env={},
        cwd=str(folder),
        key="",
        program="",
        memory_limit_bytes=GIB,
    )
    began = time.perf_counter()
    run(Job(attempt=attempt, folder=folder / attempt.id, limits=Limits()), guardian, stop=threading.Event())
    return time.perf_counter() - began


def measure(argv: list[str], folder: Path, guardian: Guardian, first: int) -> dict[str, object]:
    bare(argv), supervised(argv, folder, guardian, first)  # warm
    pairs = [(bare(argv), supervised(argv, folder, guardian, first + 1 + n)) for n in range(ROUNDS)]
    plain, ours = zip(*pairs, strict=True)
    added = statistics.median(b - a for a, b in pairs)
    return {
        "subprocess.run": spread(plain),
        "attempt": spread(ours),
        "added_median_ms": round(added * 1e3, 2),
        "ratio_median": round(statistics.median(b / a for a, b in pairs), 2),
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, Guardian() as guardian:
        figures = {name: measure(argv, Path(folder), guardian, 1000 * n) for n, (name, argv) in enumerate(COMMANDS.items())}
    save("overhead", {"rounds": ROUNDS, "everything on (cgroup, sampler, hook, core)": figures})


if __name__ == "__main__":
    main()
