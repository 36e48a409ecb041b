"""The flight recorder under a real Slurm: one node on the loopback interface, set up for this module and taken down after it.

All jobs are submitted at once and wait for most of their time; the one that meets its time limit takes a minute and a half, for Slurm
counts in minutes.
"""

from __future__ import annotations

import dataclasses
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.matrix import slurm
from tests.matrix.command_line import ROOT, TOOL, observations, verdict
from tests.matrix.slurm import Slurm

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(slurm.why_not()), reason=slurm.why_not())]
CGROUPS = slurm.can_bound_memory()
STEPS = "import os, signal, sys, time\nfor step in range(1, 100_000):\n print('step', step, flush=True); time.sleep(0.1)\n "
KEEPS = """
import time
kept = []
for step in range(400):
    kept.append(bytearray(b"x") * (4 << 20))
    print("step", step, flush=True)
    time.sleep(0.03)
"""
PROGRAMS = {
    "out_of_memory": KEEPS,
    "crashes": STEPS + "step == 20 and os.kill(os.getpid(), signal.SIGSEGV)",
    "cancelled": STEPS + "pass",
    "late": STEPS + "step == 5 and signal.signal(signal.SIGTERM, lambda *_: print('saving', flush=True))",
    "ranks": STEPS + "step == 20 and (os.environ['SLURM_PROCID'] == '1' and os.abort() or sys.exit(0))",
}
SUBMITTED = {"late": ("-t", "1"), "ranks": ("-n", "2")}


@dataclasses.dataclass(frozen=True)
class Job:
    """One submitted job with its folder."""

    number: str
    folder: Path

    @property
    def said(self) -> str:
        path = self.folder / f"{self.number}.out"
        return path.read_text() if path.exists() else ""

    def runs(self) -> dict[str, Path]:
        """Run folders by their name."""
        return {path.parent.name: path for path in sorted(self.folder.glob("runs/*/*"))}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder, slurm.throwaway(Path(folder), cgroups=CGROUPS) as running:
        yield running


@pytest.fixture(scope="module")
def jobs(cluster: Slurm, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    return {name: submit(cluster, name, program, tmp_path_factory.mktemp(name)) for name, program in PROGRAMS.items()}


def submit(cluster: Slurm, name: str, program: str, folder: Path) -> Job:
    watched = shlex.join([*TOOL, "watch", "--name", name, "--", sys.executable, "-c", program])
    start = "srun" if name == "ranks" else "exec"
    (folder / "job.sh").write_text(f"#!/bin/bash\nexport PYTHONPATH={ROOT}\n{start} {watched}\n")
    return Job(cluster.submit("--mem=300", *SUBMITTED.get(name, ()), "job.sh", cwd=folder), folder)


def until_said(job: Job, words: str, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while words not in job.said:
        assert time.monotonic() < deadline, f"{words!r} is not in {job.said!r}"
        time.sleep(0.3)


def test_ranks_of_srun_are_kept_apart_by_their_folders_and_lines(cluster: Slurm, jobs: dict[str, Job]) -> None:
    job = jobs["ranks"]
    cluster.wait_for(job.number, "FAILED")
    assert set(job.runs()) == {"ranks_rank0", "ranks_rank1"}
    endings = {name: observations(run)[0].exit for name, run in job.runs().items()}
    assert (endings["ranks_rank0"].returncode, endings["ranks_rank1"].signal) == (0, "SIGABRT")
    assert "[watch rank 0] it ended well after step 20" in job.said
    assert "[watch rank 1] it died after step 20" in job.said


def test_a_crash_keeps_its_status_in_slurms_account(cluster: Slurm, jobs: dict[str, Job]) -> None:
    shown = cluster.wait_for(jobs["crashes"].number, "FAILED")
    assert shown["ExitCode"] == f"{128 + signal.SIGSEGV}:0"
    assert "[watch] it died after step 20" in jobs["crashes"].said


@pytest.mark.skipif(not CGROUPS, reason="Slurm cannot bound memory by cgroups here")
def test_slurms_memory_limit_is_known_and_its_own_count_of_the_kill_is_left_to_it(cluster: Slurm, jobs: dict[str, Job]) -> None:
    job = jobs["out_of_memory"]
    cluster.wait_for(job.number, "OUT_OF_MEMORY")
    (run,) = job.runs().values()
    seen = observations(run)[0]
    assert (seen.exit.signal, seen.memory.oom_kills, seen.memory.limit_bytes) == ("SIGKILL", 1, 300 << 20)
    assert verdict(run).ranking[0].cause == "memory_retention"
    near = [line for line in job.said.splitlines() if "WARNING: memory of the cgroup" in line]
    assert len(near) == len(set(near))


def test_a_cancelled_job_is_told_from_a_crash(cluster: Slurm, jobs: dict[str, Job]) -> None:
    job = jobs["cancelled"]
    until_said(job, "step 20")
    cluster.run("scancel", job.number)
    cluster.wait_for(job.number, "CANCELLED")
    (run,) = job.runs().values()
    first = verdict(run).ranking[0]
    assert first.cause == "external_signal"
    assert any(f"Slurm ended job {job.number} before the program had ended" in fact.fact for fact in first.supports)
    assert not (run / "next.yaml").exists()


def test_a_time_limit_is_named_before_it_is_met_and_when_the_kill_takes_the_recorder_too(cluster: Slurm, jobs: dict[str, Job]) -> None:
    job = jobs["late"]
    cluster.wait_for(job.number, "TIMEOUT")
    assert "WARNING: the job's time ends at" in job.said
    assert "still runs at step" in job.said
    (run,) = job.runs().values()
    seen = observations(run)[0]
    assert (seen.exit.ended_by, seen.exit.returncode) == ("nobody", None)
    assert seen.scheduler is not None and seen.scheduler.reason == "TimeLimit"
    assert f"Slurm ended job {job.number} because its time limit was reached" in verdict(run).status_text


@pytest.mark.nightly
def test_a_job_that_made_room_for_another_says_so(cluster: Slurm, tmp_path: Path) -> None:
    """After all others: it takes every processor of the node."""
    job = submit(cluster, "preempted", PROGRAMS["cancelled"], tmp_path)
    until_said(job, "step 20")
    other = cluster.submit("-p", "urgent", "-n", str(slurm.CPUS), "--wrap", "sleep 1", cwd=tmp_path)
    cluster.wait_for(other, "COMPLETED")
    (run,) = job.runs().values()
    supports = verdict(run).ranking[0].supports
    assert any("put it back into the queue: preempted by another job" in fact.fact for fact in supports)
    cluster.run("scancel", job.number)
