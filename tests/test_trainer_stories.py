"""The stories of the trainer's memory and of its device, end to end through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from reproducers.faults import FAULTS
from tests.test_stories import ROOT, replay

cannot_plant = FAULTS["device-overrun"].why_not()


def observations(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("attempts/*/observation.json"))]


@pytest.mark.slow
@pytest.mark.skipif(cannot_plant is not None, reason=f"the device cannot be made here: {cannot_plant}")
def test_accumulation_on_one_device_has_its_threshold_found_and_the_cpu_cleared(tmp_path: Path) -> None:
    verdict, folder = replay("accumulation_device", tmp_path)
    assert verdict["ranking"][0]["culprit"] == {"device": ["standin"], "accum": [16, 32]}
    assert (verdict["fix"]["kind"], verdict["fix"]["verified"]) in (("avoids", True), ("cures", True))
    assert verdict["fix"]["set"] in ({"device": "cpu"}, {"accum": 8}, {"accum": 4}, {"accum": 1})
    ended = {(o["trial"]["cell"]["device"], o["exit"]["signal"]) for o in observations(folder)}
    assert ended <= {("standin", "SIGSEGV"), ("standin", None), ("cpu", None)}
    assert "memory_working_set" in {entry["cause"] for entry in verdict["ruled_out"]}


@pytest.mark.nightly
@pytest.mark.skipif(sys.platform != "linux", reason="needs a memory cgroup")
def test_workers_whose_caches_multiply_are_told_by_the_kernels_own_counter_and_by_the_estimate(tmp_path: Path) -> None:
    verdict, folder = replay("dataloader_limit", tmp_path)
    seen = observations(folder)
    if seen[0]["memory"]["isolation"] not in ("cgroup-v1", "cgroup-v2"):
        pytest.skip("no memory cgroup can be made here")
    first = verdict["ranking"][0]
    assert (first["cause"], first["culprit"]) == ("memory_worker_multiplication", {"workers": [8]})
    assert verdict["fix"]["set"] in ({"workers": 4}, {"workers": 2}, {"workers": 0})
    dead = [o for o in seen if o["trial"]["cell"]["workers"] == 8]
    assert all(o["memory"]["oom_kills"] for o in dead)
    limit = dead[0]["memory"]["limit_bytes"]
    for observation in seen:
        cell, charged = observation["trial"]["cell"], observation["curve"]["peak_bytes"]
        config = next((folder / "attempts" / observation["attempt"]).rglob("config.yaml"))
        predicted = anonymous_mb(config) * 1e6
        if cell["workers"] == 8:
            assert predicted > limit
        else:
            assert predicted < limit
            assert predicted == pytest.approx(charged, rel=0.15)


def anonymous_mb(config: Path) -> float:
    """Of the predicted peak."""
    done = subprocess.run([sys.executable, "-m", "trainer", "estimate", str(config)], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("predicted peak"))
    return float(line.split()[3])
