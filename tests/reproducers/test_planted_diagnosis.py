"""The diagnosis, told nothing of what was planted, names its cause: a fault of each of several families in a plain program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from matrix.runner import cgroup
from reproducers.faults import FAULTS

ROOT = Path(__file__).parents[2]
PROGRAM = """
import array, math, time
values = array.array("d", [1.0, 2.0])
for step in range(1, 121):
    print(f"step {step} loss={math.fsum(values):.3f}", flush=True)
    time.sleep(0.01)
print("training finished", flush=True)
"""
SPEC = """
name: planted
run:
  command: [python, -m, reproducers.faults, {fault}, --when, "print:60", --cache, plants, --, python, train.py]
  cwd: .
  finished: training finished
matrix:
  plant: {{choices: {{planted: {{}}, without: {{env: {{PLANTED_FAULT: "off"}}}}}}}}
  seed: {{choices: {{a: {{}}, b: {{}}}}}}
search: {{max_runs: 10, seed: 0}}
limits: {{wall: 120s, startup: 60s, idle: 3s, stall: 30s, memory: 300MiB}}
"""


def verdict(folder: Path, fault: str) -> dict[str, object]:
    (folder / "train.py").write_text(PROGRAM)
    (folder / "planted.yaml").write_text(SPEC.format(fault=fault))
    command = [sys.executable, "-m", "matrix", "run", "planted.yaml"]
    done = subprocess.run(command, cwd=folder, env={**_environment(), "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    [written] = folder.glob("runs/planted/*/verdict.json")
    found: dict[str, object] = json.loads(written.read_text(encoding="utf-8"))
    return found


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PLANTED_")}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param("double-free", marks=pytest.mark.slow),
        pytest.param("kept-memory", marks=pytest.mark.slow),
        pytest.param("library-exit", marks=pytest.mark.slow),
        *(
            pytest.param(name, marks=pytest.mark.nightly)
            for name in (
                "forked-lock",
                "lock-order",
                "lost-symbol",
                "shrunk-file",
                "deep-recursion",
                "old-view",
                "silent-remote",
                "kept-files",
            )
        ),
    ],
)
def test_the_diagnosis_names_the_planted_cause_and_the_axis_that_plants_it(tmp_path: Path, fault: str) -> None:
    if reason := FAULTS[fault].why_not() or (FAULTS[fault].family == "memory" and cgroup.why_not()):
        pytest.skip(f"could not be planted: {reason}")
    found = verdict(tmp_path, fault)
    [first, *_] = found["ranking"]  # type: ignore[misc]
    assert (first["cause"], first["culprit"]) == (FAULTS[fault].cause, {"plant": ["planted"]})
    assert found["fix"]["set"] == {"plant": "without"}  # type: ignore[index]
