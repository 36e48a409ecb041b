"""The planted faults of `reproducers/faults` as programs whose cause is known: one loop that is well, and one axis that takes the fault in.

    python -m benchmarks.zoo.planted [--only FAULT ...] [--max-runs 40] [--keep]

The names of all axes and values are neutral.  What is right: the cause that the fault names, and that axis (with another one where
the fault needs it).
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import record
from benchmarks.zoo.__main__ import PROGRAMS, judge, line, run, summarise
from benchmarks.zoo.truth import Truth
from reproducers.faults import CannotPlant, plant
from reproducers.faults.planting import FAULTS

PREFIX = "vendor"
LEFT_OUT = ("device-overrun",)  # needs torch in the program; it is a story of its own
MOMENTS = {"nan": "call:numpy.linalg:solve:9"}
BY_TIME = ("cpu-limit", "outside-signal", "thread-race")  # the others come at a step, as most faults do
AMOUNTS = {"descriptor-leak": 1000, "cpu-limit": 1}
ALSO = {"worker-copies": ("workers", 4), "thread-race": ("threads", 2)}  # dies from that value of another axis on


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="names of faults")
    parser.add_argument("--max-runs", type=int, default=40)
    parser.add_argument("--keep", action="store_true", help="keep the run folders, and say where they are")
    options = parser.parse_args()
    rows = []
    for fault in options.only or [name for name in FAULTS if name not in LEFT_OUT]:
        try:
            rows.append(score(fault, max_runs=options.max_runs, keep=options.keep))
            print(line(rows[-1]), flush=True)
        except CannotPlant as reason:
            print(f"{fault}: left out: {reason}", flush=True)
    summary = summarise(rows)
    print(json.dumps(summary))
    if not options.only:
        record.save("zoo_planted", {"summary": summary, "programs": rows})


def score(fault: str, *, max_runs: int, keep: bool) -> dict[str, Any]:
    """One fault, planted, run and judged.  Raises CannotPlant."""
    folder = Path(tempfile.mkdtemp(prefix="died-"))
    try:
        write(fault, folder, max_runs=max_runs)
        axis, least = ALSO.get(fault, ("", 0))
        truth = Truth(
            program=fault,
            causes=(FAULTS[fault].cause,),
            axes={"load": ["u", "v"], "threads": [1, 2], "workers": [0, 4]},
            known_bad={"load": "u", "workers": 4},
            dies=lambda cell: cell["load"] == "u" and (not axis or cell[axis] >= least),
        )
        names = {f"a{number}": name for number, name in enumerate(AXES, 1)}
        verdict, wall_s = run(folder)
        return {"program": fault, "wall_s": wall_s, "runs": verdict["runs"], **judge(truth, verdict, names)}
    finally:
        if keep:
            print(f"{fault}: {folder}", flush=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)


AXES: dict[str, dict[str, Any]] = {
    "bs": {"flag": "--bs", "values": [16, 32]},
    "accum": {"flag": "--accum", "values": [1, 4]},
    "shuffle": {"flag": "--shuffle", "values": [0, 1]},
    "load": {"choices": {"u": {}, "v": {"env": {f"{PREFIX.upper()}_FAULT": "off"}}}},
    "threads": {"values": [1, 2], "env": ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"]},
    "workers": {"flag": "--workers", "values": [0, 4]},
}
BAD = {"bs": 32, "accum": 1, "shuffle": 0, "load": "u", "threads": 2, "workers": 4}


def write(fault: str, folder: Path, *, max_runs: int) -> None:
    """The program, its data and its specification."""
    shutil.copy(PROGRAMS / "host.py", folder / "train.py")
    shutil.copy(PROGRAMS / "job.py", folder / "job.py")
    samples = np.random.default_rng(0).standard_normal((4096, 32), np.float32).tobytes()
    data = folder / "samples.bin"
    data.write_bytes(hashlib.sha256(samples).digest() + samples)
    more: dict[str, Any] = {"file": data} if FAULTS[fault].damages_file else {"first": "numpy"} if fault == "omp-conflict" else {}
    when = MOMENTS.get(fault) or (None if fault in BY_TIME or not FAULTS[fault].when else "print:8")
    env = plant(fault, when=when, amount=AMOUNTS.get(fault), rename=PREFIX, cache=folder / "vendor", **more)
    spec = {
        "name": "died",
        "run": {"command": [sys.executable, "train.py"], "finished": "training finished", "env": env},
        "matrix": {f"a{number}": axis for number, axis in enumerate(AXES.values(), 1)},
        "known_bad": {f"a{number}": BAD[name] for number, name in enumerate(AXES, 1)},
        "search": {"max_runs": max_runs, "seed": 0},
        "limits": {"wall": "90s", "startup": "30s", "idle": "8s", "stall": "12s", "memory": "400MiB"},
        "executor": {"jobs": 1},
    }
    (folder / "spec.yaml").write_text(json.dumps(spec, indent=1))  # JSON is YAML


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    main()
