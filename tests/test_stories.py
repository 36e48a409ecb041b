"""The first story, end to end through the command line: the true cause is named, whatever the fault is called and whatever it prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reproducers.faults import FAULTS

ROOT = Path(__file__).parents[1]
cannot_plant = FAULTS["omp-conflict"].why_not()
needs_plant = pytest.mark.skipif(cannot_plant is not None, reason=f"the fault cannot be planted here: {cannot_plant}")

# A program with the shape of a trainer: something native is imported first, FAISS searches after some steps.
SEARCHES = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--bs", type=int, default=8)
p.add_argument("--search", default="yes")
a = p.parse_args()
import numpy, faiss
data = numpy.random.default_rng(0).standard_normal((64, 16)).astype("float32")
for step in range(1, 9):
    print("step", step, flush=True)
    if a.search == "yes" and step >= 5:
        faiss.knn(data[: a.bs], data, 3)
print("training finished", flush=True)
"""


def run(spec: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Run a specification from `folder`; the verdict."""
    path = folder / "spec.yaml"
    path.write_text(json.dumps(spec))  # JSON is YAML
    done = subprocess.run([sys.executable, "-m", "matrix", "run", str(path)], cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    (verdict,) = folder.rglob("verdict.json")
    return json.loads(verdict.read_text())


def planted(folder: Path, prefix: str, *, discard_stderr: bool) -> dict[str, Any]:
    """A specification of the planted conflict, with every name of the fault and of the axes chosen by the caller."""
    (folder / "job.py").write_text(SEARCHES)
    command = [
        sys.executable,
        "-m",
        "reproducers.faults",
        "omp-conflict",
        "--first",
        "numpy",
        "--rename",
        prefix,
        "--",
        sys.executable,
        "job.py",
    ]
    if discard_stderr:
        command = ["sh", "-c", 'exec "$@" 2>/dev/null', "sh", *command]
    return {
        "name": "story",
        "run": {"command": command, "env": {"PYTHONPATH": str(ROOT)}, "finished": "training finished"},
        "matrix": {
            "a1": {"choices": {"u": {"args": ["--search", "yes"]}, "v": {"args": ["--search", "no"]}}},
            "a2": {
                "choices": {"x": {}, "y": {"env": {f"{prefix.upper()}_RUNTIMES": "one"}}, "z": {"env": {"KMP_DUPLICATE_LIB_OK": "TRUE"}}}
            },
            "a3": {"flag": "--bs", "values": [8, 16]},
        },
        "limits": {"wall": "60s", "memory": "2GiB"},
        "executor": {"jobs": 1},
    }


@needs_plant
@pytest.mark.parametrize(
    ("prefix", "discard_stderr"), [("planted", False), ("planted", True), ("qzx", True)], ids=["said aloud", "stderr discarded", "renamed"]
)
def test_the_conflict_is_named_and_the_override_is_never_the_fix(tmp_path: Path, prefix: str, discard_stderr: bool) -> None:
    """Nothing in the specification says that the override hides: the two runtimes that are still loaded do."""
    verdict = run(planted(tmp_path, prefix, discard_stderr=discard_stderr), tmp_path)
    first = verdict["ranking"][0]
    assert (verdict["status"], first["cause"], first["grade"]) == ("diagnosed", "openmp_runtime_conflict", "confirmed")
    assert first["culprit"] == {"a1": ["u"], "a2": ["x"]}
    assert verdict["fix"]["set"] in ({"a2": "y"}, {"a1": "v"})
    assert (verdict["fix"]["kind"], verdict["fix"]["verified"]) == ("cures", True)
    hidden = [fix for fix in verdict["other_fixes"] if fix["kind"] == "hides"]
    assert [fix["set"] for fix in hidden] == [{"a2": "z"}]
    assert "still loaded" in hidden[0]["why"]
    assert "memory_working_set" in {entry["cause"] for entry in verdict["ruled_out"]}
    supports = {fact["file"] for fact in first["supports"]}
    assert "maps.txt" in supports
    assert ("stderr.log" in supports) == (not discard_stderr)


WORDS = "OMP: Error #15: Initializing libiomp5.so, but found libiomp5.so already initialized."


def test_a_healthy_program_that_prints_the_runtimes_words_is_accused_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        f"import sys\nfor n in range(1, 4): print('step', n)\nprint({WORDS!r}, file=sys.stderr)\nprint('training finished')\n"
    )
    spec = {
        "run": {"command": [sys.executable, "job.py"], "finished": "training finished"},
        "matrix": {"omp": {"choices": {"plain": {}, "duplicate_ok": {"env": {"KMP_DUPLICATE_LIB_OK": "TRUE"}}}}},
        "limits": {"wall": "60s"},
    }
    verdict = run(spec, tmp_path)
    assert (verdict["status"], verdict["ranking"][0]["cause"], verdict["fix"]) == ("healthy", "healthy", None)
    assert "openmp_runtime_conflict" not in {entry["cause"] for entry in verdict["ranking"]}


def test_a_program_that_prints_the_words_and_aborts_for_another_reason_is_not_taken_for_it(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        f"import ctypes, sys\nprint('step', 1, flush=True)\nprint({WORDS!r}, file=sys.stderr, flush=True)\n"
        "if sys.argv[1] == 'bad': ctypes.CDLL(None).abort()\nprint('training finished')\n"
    )
    spec = {
        "run": {"command": [sys.executable, "job.py"], "finished": "training finished"},
        "matrix": {"a1": {"choices": {"bad": {"args": ["bad"]}, "good": {"args": ["good"]}}}},
        "limits": {"wall": "60s"},
    }
    verdict = run(spec, tmp_path)
    assert verdict["ranking"][0]["cause"] != "openmp_runtime_conflict"
    assert verdict["ranking"][0]["culprit"] in ({}, {"a1": ["bad"]})
    assert "openmp_runtime_conflict" not in {entry["cause"] for entry in verdict["ranking"] if entry["probability"] > 0.05}


def replay(story: str, folder: Path) -> tuple[dict[str, Any], Path]:
    """Run a story of the repository, its data made where it is missing; the verdict and the run folder."""
    subprocess.run(["make", "data"], cwd=ROOT, check=True, capture_output=True)
    argv = [sys.executable, "-m", "matrix", "run", str(ROOT / f"{story}.yaml")]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    (run_folder,) = (folder / "runs" / story).iterdir()
    verdict = json.loads((run_folder / "verdict.json").read_text())
    assert verdict["complete"]
    return verdict, run_folder


@needs_plant
@pytest.mark.slow
def test_crash_isolation_ends_in_a_confirmed_verdict(tmp_path: Path) -> None:
    verdict, folder = replay("crash_isolation", tmp_path)
    first = verdict["ranking"][0]
    assert (verdict["status"], first["cause"], first["grade"]) == ("diagnosed", "openmp_runtime_conflict", "confirmed")
    assert first["culprit"] == {"mining": ["sync"], "omp": ["plain"]}
    assert verdict["fix"]["set"] in ({"omp": "one_runtime"}, {"mining": "off"})
    hidden = [fix for fix in verdict["other_fixes"] if fix["kind"] == "hides"]
    assert ([fix["set"] for fix in hidden], [bool(fix["why"]) for fix in hidden]) == ([{"omp": "duplicate_ok"}], [True])
    for name in ("report.md", "report.html", "launch.sh", "plan.json"):
        assert (folder / name).stat().st_size > 0


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2 or sys.platform != "linux", reason="the miner hangs with two threads, on Linux")
def test_forked_miner_is_told_from_its_own_hang(tmp_path: Path) -> None:
    verdict, _ = replay("forked_miner", tmp_path)
    first = verdict["ranking"][0]
    assert (verdict["status"], first["cause"], first["grade"]) == ("diagnosed", "fork_unsafe", "confirmed")
    assert first["culprit"] == {"mining": ["process"], "start": ["fork"], "threads": [2]}
    assert (verdict["fix"]["kind"], verdict["fix"]["verified"]) in (("cures", True), ("avoids", True))
    assert "hook.jsonl" in {fact["file"] for fact in first["supports"]}


@pytest.mark.slow
def test_a_healthy_trainer_is_bounded_and_accused_of_nothing(tmp_path: Path) -> None:
    verdict, _ = replay("healthy", tmp_path)
    assert (verdict["status"], verdict["fix"], verdict["failures"]) == ("healthy", None, [])
    assert {entry["cause"] for entry in verdict["ranking"]} == {"healthy", "unknown"}
    assert "95 % confidence" in verdict["status_text"]
