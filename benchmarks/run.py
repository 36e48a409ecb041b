"""How long `make run` takes once everything is installed, from specification to report: `python -m benchmarks.run`."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

from benchmarks.record import save

ROOT = Path(__file__).parents[1]
WANTED_S = 240


def main() -> None:
    began = time.perf_counter()
    subprocess.run(["make", "run"], cwd=ROOT, check=True)
    wall = time.perf_counter() - began
    newest = max((ROOT / "runs" / "crash_isolation").glob("*/verdict.json"), key=lambda path: path.stat().st_mtime)
    verdict = json.loads(newest.read_text())
    save(
        "run",
        {
            "make run": {"wall_s": round(wall, 1), "wanted_at_most_s": WANTED_S},
            "attempts": verdict["runs"],
            "status": verdict["status"],
            "cause": verdict["ranking"][0]["cause"],
            "fix": (verdict["fix"] or {}).get("set"),
        },
    )


if __name__ == "__main__":
    main()
