"""How long each story of `make run` takes once everything is installed, from specification to report: `python -m benchmarks.run`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.record import save

ROOT = Path(__file__).parents[1]
STORIES = ("crash_isolation", "forked_miner", "healthy")
WANTED_FIRST_S, WANTED_ALL_S = 240, 360


def story(name: str) -> dict[str, Any]:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-m", "matrix", "run", f"{name}.yaml"], cwd=ROOT, check=True)
    wall = time.perf_counter() - began
    newest = max((ROOT / "runs" / name).glob("*/verdict.json"), key=lambda path: path.stat().st_mtime)
    verdict = json.loads(newest.read_text())
    first, fix = verdict["ranking"][0], verdict["fix"]
    return {
        "wall_s": round(wall, 1),
        "attempts": verdict["runs"],
        "status": verdict["status"],
        "cause": first["cause"],
        "grade": first["grade"],
        "culprit": first["culprit"],
        "fix": fix and fix["set"],
    }


def main() -> None:
    subprocess.run(["make", "data"], cwd=ROOT, check=True)
    figures = {name: story(name) for name in STORIES}
    total = sum(figure["wall_s"] for figure in figures.values())
    wanted = {"crash_isolation_at_most_s": WANTED_FIRST_S, "all_at_most_s": WANTED_ALL_S}
    save("run", {"stories": figures, "all_s": round(total, 1), "wanted": wanted})


if __name__ == "__main__":
    main()
