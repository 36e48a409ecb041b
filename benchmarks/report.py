"""How long the report of 2,000 attempts takes and how large its page is: `python -m benchmarks.report`."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.record import save
from benchmarks.run_folder import write_run

ATTEMPTS = 2000
WANTED_S, WANTED_BYTES = 10.0, 6_000_000


def report(run: Path) -> dict[str, float]:
    """One report in a fresh interpreter; the CPU seconds are what it costs on a machine that does nothing else."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-m", "matrix", "report", str(run)], check=True, stdout=subprocess.DEVNULL)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": round(wall, 2), "cpu_s": round(cpu, 2)}


def main() -> None:
    root = Path(tempfile.mkdtemp(prefix="mx-report-"))
    try:
        run = write_run(root / "runs/many/20260102-030405", ATTEMPTS)
        runs = [report(run) for _ in range(3)]
        figures: dict[str, Any] = {
            "attempts": ATTEMPTS,
            "reports": runs,
            "load_average": round(os.getloadavg()[0], 1),  # beside other work on the same processors the wall time says little
            "best_wall_s": min(found["wall_s"] for found in runs),
            "html_bytes": (run / "report.html").stat().st_size,
            "markdown_bytes": (run / "report.md").stat().st_size,
            "wanted": {"wall_s_below": WANTED_S, "html_bytes_below": WANTED_BYTES},
        }
    finally:
        shutil.rmtree(root)
    save("report", figures)


if __name__ == "__main__":
    main()
