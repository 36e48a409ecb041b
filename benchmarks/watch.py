"""What the flight recorder costs a run: `python -m benchmarks.watch` (some 6 minutes).

Two figures.  The recorder's processor time per second of the run as a share of a core, read from outside (/proc) over a stretch that
leaves out the first 15 s, and by the recorder itself over all of it; for one process that prints 20 steps a second, for eight with 150 MiB
each, and for one that prints without end.  And the slow-down of a program that computes: runs bare and watched take turns, and what
counts is the ratio, within each pair, of the processor time that the program itself needs for the same work, which the load of the
machine changes least.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.record import save

ROOT = Path(__file__).parents[1]
WATCH = [sys.executable, "-m", "matrix", "watch", "--"]
WANTED_PERCENT = 1.0
RUN_S, BEGIN_S = 75, 15
PAIRS = 8
STEPS = f"import time\nend = time.time() + {RUN_S}\nstep = 0\nwhile time.time() < end:\n step += 1; print('step', step, flush=True); "
ONE = STEPS + "time.sleep(0.05)"
EIGHT = f"""
import os, time
end = time.time() + {RUN_S}
for _ in range(7):
    if os.fork() == 0:
        break
held = bytearray(b"x") * (150 << 20)
step = 0
while time.time() < end:
    step += 1
    held += bytes(1000)
    print("step", step, flush=True)
    time.sleep(0.25)
"""
CHATTY = STEPS + "time.sleep(0.0005)"
WORK = """
import time
began = time.process_time()
for step in range(300):
    print("step", step, flush=True)
    total = sum(value * value for value in range(100_000))
print("seconds", time.process_time() - began)
"""


def shares(program: str, folder: Path) -> dict[str, Any]:
    """Percent of a core, once it runs and over all of it."""
    recorder = subprocess.Popen([*WATCH, sys.executable, "-c", program], cwd=folder, env=environment(), stdout=subprocess.DEVNULL)
    looking = psutil.Process(recorder.pid)
    time.sleep(BEGIN_S)
    before, began = own_cpu_s(looking), time.perf_counter()
    time.sleep(RUN_S - BEGIN_S - 10)
    outside = (own_cpu_s(looking) - before) / (time.perf_counter() - began)
    recorder.wait()
    run = max(folder.glob("runs/*/*/watch.json"), key=lambda path: path.stat().st_mtime).parent
    seen = json.loads((run / "watch.json").read_text())
    wall_s = json.loads(next(run.glob("attempts/*/observation.json")).read_text())["wall_s"]
    return {
        "percent of a core, after the first seconds": round(100 * outside, 2),
        "percent of a core, all of the run": round(100 * seen["cpu_s"] / wall_s, 2),
        "intervals stretched up to": round(seen["slowest"], 1),
        "wall_s": round(wall_s, 1),
        "load": round(psutil.getloadavg()[0], 1),
    }


def own_cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def seconds(argv: list[str], folder: Path) -> float:
    """The program's own processor time for its work."""
    done = subprocess.run(argv, cwd=folder, env=environment(), capture_output=True, text=True, check=True)
    return float(done.stdout.split()[-1])


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


def slow_down(folder: Path) -> dict[str, Any]:
    program = [sys.executable, "-c", WORK]
    pairs = []
    for number in range(PAIRS):
        order = [program, [*WATCH, *program]] if number % 2 else [[*WATCH, *program], program]
        took = [seconds(argv, folder) for argv in order]
        bare, watched = took if number % 2 else took[::-1]
        pairs.append(watched / bare)
    low, middle, high = statistics.quantiles(pairs, n=4)
    return {"pairs": PAIRS, "ratio_median": round(middle, 4), "ratio_quartiles": [round(low, 4), round(high, 4)]}


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        figures = {
            "one process, 20 steps a second": shares(ONE, folder),
            "eight processes of 150 MiB": shares(EIGHT, folder),
            "one process that prints without end": shares(CHATTY, folder),
            "slow-down, watched over bare": slow_down(folder),
        }
    save("watch", {**figures, "wanted_percent_at_most": WANTED_PERCENT})


if __name__ == "__main__":
    main()
