"""What `matrix doctor` costs beside an empty Python, interleaved in one run: `python -m benchmarks.doctor`.

It looks into the environment that this runs in; the number of packages is in the result.  CPU seconds are those of all
its processes; wall seconds depend on what else runs, so the load average is kept beside them.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time

from benchmarks.record import save

ROUNDS = 7
WANTED_S = 5.0


def once(*argv: str) -> tuple[float, float, str]:
    """Wall seconds, CPU seconds, output."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, *argv], capture_output=True, text=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main() -> None:
    once("-m", "matrix", "doctor")  # warm
    empty, looks = [], []
    for _ in range(ROUNDS):
        empty.append(once("-c", "pass"))
        looks.append(once("-m", "matrix", "doctor", "--json"))
    told = json.loads(looks[-1][2])
    wall = [seconds for seconds, _, _ in looks]
    save(
        "doctor",
        {
            "rounds": ROUNDS,
            "packages": told["python"]["packages"],
            "checks": len(told["checks"]),
            "wall_s_median": round(statistics.median(wall), 2),
            "wall_s_most": round(max(wall), 2),
            "wall_s_wanted_at_most": WANTED_S,
            "cpu_s_median": round(statistics.median(cpu for _, cpu, _ in looks), 2),
            "cpu_s_of_an_empty_python": round(statistics.median(cpu for _, cpu, _ in empty), 3),
            "load_average": [round(load, 1) for load in os.getloadavg()],
        },
    )


if __name__ == "__main__":
    main()
