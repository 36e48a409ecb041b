"""Score the diagnosis on programs whose cause is known.

    python -m benchmarks.zoo [--only NAME ...] [--anonymise] [--max-runs 40] [--keep]

Each program is copied to a neutral name, given to `python -m matrix run`, and the verdict is compared with the truth:
cause (the first-ranked one), culprit (exactly the axes whose change alone ends it), values (exactly those that still die), fix
(survives by the truth and is minimal; not one that hides).  The Brier score is over the first-ranked cause.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.zoo.truth import TRUTHS, Truth

PROGRAMS = Path(__file__).parent / "programs"
BUDGET_S = 900.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="names of programs")
    parser.add_argument("--anonymise", action="store_true", help="call the axes a1, a2, ...")
    parser.add_argument("--max-runs", type=int, default=40)
    parser.add_argument("--keep", action="store_true", help="keep the run folders, and say where they are")
    options = parser.parse_args()
    wanted = [truth for truth in TRUTHS if not options.only or truth.program in options.only]
    rows = []
    for truth in wanted:
        rows.append(score(truth, anonymise=options.anonymise, max_runs=options.max_runs, keep=options.keep))
        print(line(rows[-1]), flush=True)
    summary = summarise(rows)
    print(json.dumps(summary))
    if not options.only:
        record.save("zoo_anonymised" if options.anonymise else "zoo", {"summary": summary, "programs": rows})


def score(truth: Truth, *, anonymise: bool, max_runs: int, keep: bool = False) -> dict[str, Any]:
    """One program, run and judged."""
    folder = Path(tempfile.mkdtemp(prefix="died-"))
    try:
        names = write(truth, folder, anonymise=anonymise, max_runs=max_runs)
        verdict, wall_s = run(folder)
        return {"program": truth.program, "wall_s": wall_s, "runs": verdict["runs"], **judge(truth, verdict, names)}
    finally:
        if keep:
            print(f"{truth.program}: {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)


def run(folder: Path) -> tuple[dict[str, Any], float]:
    """Run the specification in a folder: its verdict (an empty one unless the tool ended with status 0), and the seconds it took."""
    began = time.monotonic()
    with (folder / "matrix.log").open("wb") as sink:
        root = str(Path(__file__).parents[2])
        env = {**os.environ, "PYTHONPATH": root, "COLUMNS": "120"}
        argv = [sys.executable, "-m", "matrix", "run", "spec.yaml"]
        done = subprocess.run(argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, timeout=BUDGET_S)
    wall_s = round(time.monotonic() - began, 1)
    found = next(folder.rglob("verdict.json"), None)
    verdict = json.loads(found.read_text()) if found and done.returncode == 0 else {"ranking": [{}], "runs": 0}
    return verdict, wall_s


def write(truth: Truth, folder: Path, *, anonymise: bool, max_runs: int) -> dict[str, str]:
    """The program under another name, and its specification; the real names of the axes by those of the specification."""
    shutil.copy(PROGRAMS / f"{truth.program}.py", folder / "train.py")
    shutil.copy(PROGRAMS / "job.py", folder / "job.py")
    names = {f"a{number}" if anonymise else name: name for number, name in enumerate(truth.every_axis, 1)}
    axes = {
        alias: {"flag": f"--{name}", "values": truth.every_axis[name], "ordered": not isinstance(truth.every_axis[name][0], str)}
        for alias, name in names.items()
    }
    spec = {
        "name": "died",
        "run": {"command": [sys.executable, "train.py"], "finished": "training finished"},
        "matrix": axes,
        "known_bad": {alias: truth.bad[name] for alias, name in names.items()},
        "search": {"max_runs": max_runs, "seed": 0},
        "limits": {"wall": "60s", "startup": "20s", "idle": "8s", "stall": "12s", "memory": "2GiB"},
        "executor": {"jobs": 1},
    }
    (folder / "spec.yaml").write_text(json.dumps(spec, indent=1))  # JSON is YAML
    return names


def judge(truth: Truth, verdict: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    top = verdict["ranking"][0]
    culprit = {names[axis]: values for axis, values in (top.get("culprit") or {}).items()}
    fix = verdict.get("fix") or {}
    change = {names[axis]: value for axis, value in (fix.get("set") or {}).items()}
    right = top.get("cause") in truth.causes
    want = truth.culprit if truth.dies(truth.bad) else {}
    return {
        "truth": "|".join(truth.causes),
        "said": top.get("cause"),
        "grade": top.get("grade"),
        "cause": right,
        "culprit": set(culprit) == set(want),
        "values": {a: sorted(map(str, v)) for a, v in culprit.items()} == {a: sorted(map(str, v)) for a, v in want.items()},
        "fix": not fix if truth.causes == ("healthy",) else helps(truth, change, fix.get("kind")),
        "brier": round((float(top.get("probability", 0.0)) - right) ** 2, 4),
    }


def helps(truth: Truth, change: dict[str, Any], kind: str | None) -> bool:
    if kind == "hides" or not change or truth.dies({**truth.bad, **change}):
        return False
    return all(truth.dies({**truth.bad, **change, axis: truth.bad[axis]}) for axis in change)


def line(row: dict[str, Any]) -> str:
    marks = " ".join(key if row[key] else "-" * len(key) for key in ("cause", "culprit", "values", "fix"))
    return f"{row['program']:18s} {marks}  truth={row['truth']} said={row['said']} {row['grade']} runs={row['runs']} wall={row['wall_s']}s"


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    counts = {key: sum(bool(row[key]) for row in rows) for key in ("cause", "culprit", "values", "fix")}
    confirmed = [row for row in rows if row["grade"] == "confirmed"]
    return {
        "programs": len(rows),
        **counts,
        "confirmed": len(confirmed),
        "confirmed_wrong": sum(not row["cause"] for row in confirmed),
        "brier": round(statistics.mean(row["brier"] for row in rows), 4),
        "median_runs": statistics.median(row["runs"] for row in rows),
        "median_wall_s": statistics.median(row["wall_s"] for row in rows),
    }


if __name__ == "__main__":
    main()
