"""The tool's own disk runs full: nothing half-written stays, and what was learnt meanwhile is as if it had not been full."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.matrix import machine_needs
from tests.matrix.command_line import TOOL, environment, specification

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.skipif(bool(machine_needs.mounts()), reason=machine_needs.mounts() or "-"),
]
JOB = """
import os, sys, time
for step in range(5):
    print("step", step, flush=True)
    print("x" * 20_000, flush=True)
    time.sleep(0.1)
if "--mode=bad" in sys.argv: os.abort()
print("done")
"""
SCRIPT = """
set -u
mkdir -p runs; mount -t tmpfs -o size=$1 tmpfs runs; shift
"$@"; echo $? >first
find runs -name '*.part' >parts
mount -o remount,size=200m runs
"$@" --resume; echo $? >second
cp -r runs/* .
"""


def told(folder: Path) -> tuple[str, list[str]]:
    """Cause, and the facts of every attempt about file systems."""
    (verdict,) = folder.glob("x/*/verdict.json")
    found = json.loads(verdict.read_text())
    observations = [json.loads(path.read_text()) for path in sorted(folder.glob("x/*/attempts/*/observation.json"))]
    return found["ranking"][0]["cause"], sorted({place["use"] for seen in observations for place in seen["filesystems"]})


@pytest.mark.parametrize("size", ["250k", "500k", "900k"])
def test_a_full_disk_of_the_tool_is_no_fact_about_the_program(tmp_path: Path, size: str) -> None:
    cause, uses = after_a_run_on(tmp_path / "small", size)
    assert (tmp_path / "small" / "first").read_text() == "3\n", "the disk was never full: the test has seen nothing"
    assert (tmp_path / "small" / "parts").read_text() == ""
    assert (tmp_path / "small" / "second").read_text() == "0\n"
    assert (cause, uses) == after_a_run_on(tmp_path / "roomy", "200m")


def after_a_run_on(folder: Path, size: str) -> tuple[str, list[str]]:
    folder.mkdir()
    (folder / "job.py").write_text(JOB)
    content = {
        "name": "x",
        "run": {"command": ["python", "job.py"], "progress": r"^step (?P<step>\d+)"},
        "matrix": {"mode": {"choices": {"good": {}, "bad": {"args": ["--mode=bad"]}}}},
        "known_bad": {"mode": "bad"},
        "executor": {"jobs": 1},
        "search": {"max_runs": 5},
    }
    specification(folder, content)
    words = ["unshare", "-m", "sh", "-c", SCRIPT, "sh", size, *TOOL, "run", "spec.yaml"]
    done = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, timeout=900)
    assert "Traceback" not in done.stderr, done.stderr
    return told(folder)
