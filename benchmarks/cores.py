"""From a core of some 190 MB to merged Python and native frames, the core's copies and removal included: `python -m benchmarks.cores`.

A torch process that holds fresh memory aborts below ten Python frames, its core is found, read with pystack and removed.
Reading is mostly another process's work, so the CPU time of both is given beside the wall time: on a busy machine they part.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.record import save, spread
from matrix.evidence import cores
from matrix.evidence.crash import Crash, examine

ROUNDS, HELD_MB = 7, 40
WANTED = {"median_ms_at_most": 600}
PROGRAM = """
import os, sys, torch
held = torch.ones(int(sys.argv[1]) << 18)
def below(frames):
    return below(frames - 1) if frames else os.abort()
below(10)
"""


def die(folder: Path) -> int:
    """Pid of a process that left its core in the folder."""
    argv = ["sh", "-c", 'ulimit -c unlimited; exec "$0" "$@"', sys.executable, "-c", PROGRAM, str(HELD_MB)]
    with subprocess.Popen(argv, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.DEVNULL) as child:
        pass
    return child.pid


def read(folder: Path) -> tuple[float, float, int, Crash]:
    """Seconds of wall and of CPU, bytes of the core, what was read."""
    plan = cores.plan(folder, full=True)
    pid = die(folder)
    size = max((path.stat().st_size for path in folder.glob("core*")), default=0)
    before, began = _cpu(), time.perf_counter()
    crash = examine(plan, [pid], {}, folder, since_unix_s=0.0)
    return time.perf_counter() - began, _cpu() - before, size, crash


def _cpu() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        read(Path(name))  # warm
        rounds = [read(Path(name)) for _ in range(ROUNDS)]
    crash = rounds[-1][3]
    if not crash.stack:
        sys.exit(f"no stack could be read here: {'; '.join(missing.why for missing in crash.missing)}")
    figures: dict[str, Any] = {
        "core_mb": round(statistics.median(size for _, _, size, _ in rounds) / 1e6),
        "wall": spread([wall for wall, _, _, _ in rounds]),
        "CPU": spread([cpu for _, cpu, _, _ in rounds]),
        "frames": {kind: sum(frame.kind == kind for frame in crash.stack) for kind in ("python", "native")},
        "load": round(psutil.getloadavg()[0], 1),
        "wanted": WANTED,
    }
    save("cores", figures)


if __name__ == "__main__":
    main()
