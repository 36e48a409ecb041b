"""What watching memory costs: `python -m benchmarks.sampling [--main-gib 6] [--peers PYTHON]`.

One tree of nine processes, the main one large and with eight forked workers, is sampled by this project, by psrecord
and by memory_profiler in turn; then the main process runs a loop like a training step, with and without the sampler.
The peers are installed into a throwaway environment, or taken from an interpreter that has them.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import psutil

from benchmarks.record import save
from matrix.records import Attempt, Trial
from matrix.runner.attempt import JUDGE_S, LOOK_S, Job, run
from matrix.runner.launcher import Guardian
from matrix.runner.patience import Limits
from matrix.runner.sampler import Sampler

ROUNDS, SAMPLES = 7, 100  # samples of ours a round; the peers take a fifth of that
PAIRS, WINDOW_S = 40, 0.8
WATCHED_S = 9.0  # within the first ten seconds, which are sampled at 100 Hz
WANTED = {"over psrecord": 30, "over memory_profiler": 50, "percent of a core at 100 Hz": 1.5}

TREE = """
import os, sys, time
held = bytearray(b"x") * int(float(sys.argv[1]) * 2**30)
for _ in range(8):
    if os.fork() == 0:
        time.sleep(3600)
        os._exit(0)
print("ready", flush=True)
if sys.argv[2] == "sleep":
    time.sleep(float(sys.argv[3]))
import numpy
a = numpy.ones((256, 768), "float32")
b = numpy.ones((768, 768), "float32")
while sys.argv[2] == "loop":
    wall, cpu = time.monotonic(), time.process_time()
    for _ in range(3):
        c = a @ b
    churn = numpy.ones(2_000_000, "float32")  # fresh pages, as a training step takes them
    print(wall, time.monotonic() - wall, time.process_time() - cpu, flush=True)
"""
PSRECORD = """
import sys, time, psrecord as p
log = sys.argv[2]
began = time.process_time()
p.monitor(int(sys.argv[1]), logfile=log, duration=float(sys.argv[3]), include_children=True)
used = time.process_time() - began
print(used / (sum(1 for _ in open(log)) - 1))
"""
MEMORY_PROFILER = """
import sys, time, memory_profiler as m
m.memory_usage(int(sys.argv[1]), interval=0.01, timeout=0.02, include_children=True)
began = time.process_time()
got = m.memory_usage(int(sys.argv[1]), interval=0.01, timeout=0.01 * int(sys.argv[2]), include_children=True)
print((time.process_time() - began) / len(got))
"""
VERSIONS = """
import importlib.metadata, json
print(json.dumps({name: importlib.metadata.version(name) for name in ("psrecord", "memory_profiler", "psutil")}))
"""


class Tree:
    """The nine processes."""

    def __init__(self, gib: float, mode: str) -> None:
        argv = [sys.executable, "-c", TREE, str(gib), mode, "3600"]
        env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # more threads than free cores would wait for each other
        self.child = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True)
        assert self.child.stdout and self.child.stdout.readline() == "ready\n"
        self.pids = {self.child.pid, *(each.pid for each in psutil.Process(self.child.pid).children())}

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.pids - {self.child.pid}:
            psutil.Process(pid).kill()
        self.child.kill()
        self.child.communicate()


def ours(tree: Tree, folder: Path) -> float:
    """CPU seconds of one sample, its rows written; of all processes, as the peers do it, not only of those that change."""
    with mock.patch.multiple("matrix.runner.sampler", FULL_EVERY=1, FULL_AT_REST=1):
        sampler = Sampler(folder / "memory.csv")
        sampler.look(0.0, tree.pids, tree.child.pid)
        began = time.thread_time()
        for at in range(SAMPLES):
            sampler.sample(at / 1000, at)
        sampler.settle()
        used = time.thread_time() - began
        sampler.close()
    return used / SAMPLES


def peer(python: str, program: str, *arguments: object) -> float:
    return float(subprocess.check_output([python, "-c", program, *map(str, arguments)], text=True).split()[-1])


def one_sample(gib: float, python: str, folder: Path) -> dict[str, Any]:
    """Milliseconds of CPU for one sample of the tree, in turns."""
    taken: dict[str, list[float]] = {"ours": [], "psrecord": [], "memory_profiler": []}
    with Tree(gib, "sleep") as tree:
        ours(tree, folder)
        for _ in range(ROUNDS):
            taken["ours"].append(ours(tree, folder))
            taken["psrecord"].append(peer(python, PSRECORD, tree.child.pid, folder / "psrecord.log", 1))
            taken["memory_profiler"].append(peer(python, MEMORY_PROFILER, tree.child.pid, SAMPLES // 5))
    times = {name: round(statistics.median(values) * 1e3, 4) for name, values in taken.items()}
    ratios = {
        f"over {name}": round(statistics.median(b / a for a, b in zip(taken["ours"], taken[name], strict=True)), 1)
        for name in ("psrecord", "memory_profiler")
    }
    return {"CPU ms a sample": times, "cheaper by": ratios}


def whole_attempt(gib: float, folder: Path) -> dict[str, Any]:
    """CPU of a real attempt's supervisor while the child sleeps, all of its work included: a long one less a short one."""
    with Guardian() as guardian:
        _attempt(0.1, folder / "warm", guardian, 0.5)
        (short, short_s, _), (long, long_s, samples) = (_attempt(gib, folder / str(s), guardian, s) for s in (1.0, WATCHED_S - 2))
    return {"percent of a core": round(100 * (long - short) / (long_s - short_s), 2), "samples": samples, "wall_s": round(long_s, 1)}


def _attempt(gib: float, folder: Path, guardian: Guardian, seconds: float) -> tuple[float, float, int]:
    """(CPU seconds of this process, seconds of the child, samples)."""
    argv = [sys.executable, "-c", TREE, str(gib), "sleep", str(seconds)]
    attempt = Attempt(id="0001-0", trial=Trial(id=1, cell={}), argv=argv, env={}, cwd="/", key="", program="")
    began = time.process_time()
    seen = run(Job(attempt=attempt, folder=folder, limits=Limits()), guardian, stop=threading.Event())
    return time.process_time() - began, seen.wall_s, seen.memory.samples


def at_100_hz(gib: float, folder: Path) -> dict[str, Any]:
    """The sampler in a loop that has nothing else to do; PSS begins after the first second, so short stretches have none."""
    with Tree(gib, "sleep") as tree:
        plain = [_loop(tree, folder, 0.95) for _ in range(10)]
        shares = _loop(tree, folder, WATCHED_S)
    return {
        "percent of a core, waking up alone": round(statistics.median(_waking() for _ in range(5)), 2),
        "percent of a core, samples and looks": round(statistics.median(used for used, _ in plain), 2),
        "the lowest of ten stretches": round(min(used for used, _ in plain), 2),
        "Hz": round(statistics.median(rate for _, rate in plain), 1),
        "percent of a core with PSS": round(shares[0], 2),
        "Hz with PSS": round(shares[1], 1),
    }


def _waking() -> float:
    """Percent of a core that this machine takes for a thread that wakes up a hundred times and does nothing."""
    began, cpu = time.monotonic(), time.thread_time()
    for _ in range(100):
        time.sleep(0.01)
    return 100 * (time.thread_time() - cpu) / (time.monotonic() - began)


def _loop(tree: Tree, folder: Path, seconds: float) -> tuple[float, float]:
    """(percent of a core, samples a second) once the processes are known."""
    sampler = Sampler(folder / "memory.csv")
    for _ in range(3):
        sampler.look(0.0, tree.pids, tree.child.pid)
        time.sleep(0.02)
    began, cpu, next_look, poll = time.monotonic(), time.thread_time(), LOOK_S, select.poll()
    while (now := time.monotonic() - began) < seconds:
        if now >= next_look:
            sampler.look(now, tree.pids, tree.child.pid)
            next_look = now + LOOK_S
        if now >= sampler.next_s:
            sampler.sample(now, 1)
        sampler.wait(poll.poll, began, min(next_look, now + JUDGE_S), 1)
    sampler.settle()
    used = time.thread_time() - cpu
    sampler.close()
    return 100 * used / seconds, sampler.samples / seconds


# ------------------------------------------------------------------ does it slow the program down?
def slow_down(gib: float, folder: Path) -> dict[str, Any]:
    """Time of an iteration with the sampler over that without it, in alternating windows of one process, the order by chance."""
    rng, windows = random.Random(0), list[tuple[bool, float, float]]()
    with Tree(gib, "loop") as tree:
        lines: list[str] = []
        reader = threading.Thread(target=lambda: lines.extend(tree.child.stdout or []), daemon=True)
        reader.start()
        sampler = Sampler(folder / "memory.csv")
        time.sleep(1.0)
        for _ in range(PAIRS):
            for on in rng.sample([True, False], 2):
                began = time.monotonic()
                _window(sampler, tree, on)
                windows.append((on, began, time.monotonic()))
        sampler.close()
    reader.join()
    iterations = [tuple(map(float, line.split())) for line in lines if len(line.split()) == 3]
    figures = {name: _paired(windows, iterations, column) for name, column in (("wall", 1), ("CPU", 2))}
    return {"pairs": PAIRS, "window_s": WINDOW_S, "iterations": len(iterations), **figures}


def _window(sampler: Sampler, tree: Tree, on: bool) -> None:
    """At 100 Hz throughout; the time that PSS reading waits for goes on between windows."""
    end = time.monotonic() + WINDOW_S
    if on:
        sampler.look(time.monotonic(), tree.pids, tree.child.pid)
    while (now := time.monotonic()) < end:
        if on:
            sampler.sample(now, 1)
        time.sleep(0.01)


def _paired(windows: list[tuple[bool, float, float]], iterations: list[tuple[float, ...]], column: int) -> dict[str, float]:
    logs = []
    for first, second in zip(windows[::2], windows[1::2], strict=True):
        on, off = (first, second) if first[0] else (second, first)
        times = [
            [each[column] for each in iterations if began + 0.05 <= each[0] and each[0] + each[1] <= end] for _, began, end in (on, off)
        ]
        if all(times):
            logs.append(math.log(statistics.median(times[0]) / statistics.median(times[1])))
    low, high = _bootstrap(logs, statistics.median)
    return {"ratio": round(math.exp(statistics.median(logs)), 4), "low_95": round(math.exp(low), 4), "high_95": round(math.exp(high), 4)}


def _bootstrap(values: list[float], figure: Callable[[list[float]], float]) -> tuple[float, float]:
    rng = random.Random(1)
    drawn = sorted(figure(rng.choices(values, k=len(values))) for _ in range(2000))
    return drawn[49], drawn[1949]


def peers_python(given: str | None, folder: Path) -> str:
    if given:
        return given
    venv.create(folder / "peers", with_pip=True)
    python = str(folder / "peers/bin/python")
    subprocess.run([python, "-m", "pip", "install", "-q", "psrecord", "memory_profiler"], check=True)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--main-gib", type=float, default=6.0, help="of the main process (default 6); 2 where twice that is not free")
    parser.add_argument("--peers", help="a Python that has psrecord and memory_profiler; default: a new throwaway environment")
    options = parser.parse_args()
    gib = options.main_gib if psutil.virtual_memory().available > 2 * options.main_gib * 2**30 else 2.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        python = peers_python(options.peers, folder)
        figures = {
            "main_gib": gib,
            "processes": 9,
            "peers": json.loads(subprocess.check_output([python, "-c", VERSIONS], text=True)),
            "load": round(psutil.getloadavg()[0], 1),
            "one sample": one_sample(gib, python, folder),
            "100 Hz": at_100_hz(gib, folder),
            "a whole attempt": whole_attempt(min(gib, 1.0), folder),
            "slow-down of a loop": slow_down(min(gib, 2.0), folder),
            "load at the end": round(psutil.getloadavg()[0], 1),
            "wanted": WANTED,
        }
    save("sampling", figures)


if __name__ == "__main__":
    main()
