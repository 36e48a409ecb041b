"""The stand: one suspect in a child of its own, run and observed by the same runner as the matrix, and then judged."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import sys
import time
from pathlib import Path
from typing import Literal

import pytest

from matrix.executors.local import LocalPool
from matrix.records import Attempt, Observation, Trial
from matrix.runner.attempt import Job
from matrix.runner.patience import Limits
from reproducers.faults import CannotPlant, plant

ROOT = Path(__file__).resolve().parents[1]
COULD_NOT_RUN = 77  # exit status of a suspect that this machine cannot run; its last line says why


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suspect:
    name: str  # for people
    program: str  # module in reproducers.suspects
    cure: str  # what to do when it is convicted
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    memory_bytes: int | None = None  # None: no limit
    patience_s: float = 20.0  # without a step before it counts as hung


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgement:
    kind: Literal["cleared", "convicted", "could not run"]
    reason: str  # why it could not run; else ""


@dataclasses.dataclass(frozen=True)
class Stand:
    """The fixture of the tests."""

    pool: LocalPool
    request: pytest.FixtureRequest
    tmp_path: Path

    def clears(self, suspect: Suspect) -> None:
        """Pass when the suspect is cleared, fail with a crash report when it is convicted, skip when it could not run."""
        observation = question(suspect, self.pool, self.tmp_path / "attempt")
        judgement = judge(observation)
        self.request.node.user_properties.append(("suspect", (suspect.name, judgement.kind)))
        if judgement.kind == "convicted":
            evidence = self._keep_evidence(suspect)
            pytest.fail(crash_report(suspect, observation, evidence), pytrace=False)
        if judgement.kind == "could not run":
            pytest.skip(f"could not run: {judgement.reason}")

    def convicts(self, suspect: Suspect) -> tuple[Observation, str]:
        """For controls, which plant the fault: the check must see it.  The observation and the crash report."""
        folder = self.tmp_path / "attempt"
        observation = question(suspect, self.pool, folder)
        judgement = judge(observation)
        if judgement.kind == "could not run":
            pytest.skip(f"could not run: {judgement.reason}")
        assert judgement.kind == "convicted", "the planted fault was not seen"
        return observation, crash_report(suspect, observation, folder)

    def plant(self, fault: str, when: str) -> dict[str, str]:
        """The environment that plants a fault; skips where that cannot be done."""
        try:
            return plant(fault, when=when, cache=self.tmp_path / "plant")
        except CannotPlant as reason:
            pytest.skip(f"could not be planted: {reason}")

    def _keep_evidence(self, suspect: Suspect) -> Path:
        name = re.sub(r"[^a-z0-9]+", "-", suspect.name.lower()).strip("-")
        kept = self.request.config.invocation_params.dir / "runs" / "reproducers" / name / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.tmp_path / "attempt", kept)
        return kept


def threads_of_their_own() -> dict[str, str]:
    """As many threads as the libraries take when nobody limits them.  The tests' own limit of one would hide what is looked for."""
    cpus = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), cpus)


def question(suspect: Suspect, pool: LocalPool, folder: Path) -> Observation:
    """Run the suspect once; what was collected is in `folder`.  Raises RunnerError when the surroundings fail."""
    attempt = Attempt(
        id=f"0001-{suspect.program}",
        trial=Trial(id=1, cell={"suspect": suspect.name}, purpose="control"),
        argv=[sys.executable, "-m", f"reproducers.suspects.{suspect.program}", *suspect.arguments],
        env=suspect.env,
        cwd=str(ROOT),
        key=suspect.name,
        program=suspect.program,
        memory_limit_bytes=suspect.memory_bytes,
    )
    limits = Limits(wall_s=120.0, startup_s=60.0, idle_s=suspect.patience_s, stall_s=1.5 * suspect.patience_s)
    pool.submit(Job(attempt=attempt, folder=folder, limits=limits, progress=r"step (?P<step>\d+)", finished="suspect finished", core=False))
    observation = pool.wait()
    if observation is None:
        raise RuntimeError(f"the runner gave no observation of {attempt.id}; see {folder}")
    return observation


def judge(observation: Observation) -> Judgement:
    """Cleared: exit 0 after its last line.  Could not run: what it needs is missing here.  Everything else is a conviction."""
    end, error = observation.exit, observation.python_error
    if end.start_error:
        return Judgement(kind="could not run", reason=end.start_error)
    if end.ended_by == "interrupt":
        return Judgement(kind="could not run", reason="interrupted")
    if end.returncode == COULD_NOT_RUN:
        return Judgement(kind="could not run", reason=observation.progress.last_line)
    if error and error.type == "ModuleNotFoundError":
        return Judgement(kind="could not run", reason=error.message)
    whole = end.returncode == 0 and observation.progress.finished_line
    return Judgement(kind="cleared" if whole else "convicted", reason="")


def crash_report(suspect: Suspect, observation: Observation, folder: Path) -> str:
    """What a person needs to know of the death, in a few lines."""
    memory, last = observation.memory, observation.progress.last_step
    lines = {
        "program": f"python -m reproducers.suspects.{suspect.program} {' '.join(suspect.arguments)}".rstrip(),
        "ended": f"{_ending(observation)} after {observation.wall_s:.1f} s",
        "last step": "none" if last is None else str(last),
        "memory": f"{(memory.peak_tree_rss_bytes or 0) / 1e6:.0f} MB at most"
        + (f", {memory.oom_kills} kernel OOM kills at a limit of {(memory.limit_bytes or 0) / 1e6:.0f} MB" if memory.oom_kills else ""),
        "stack": "; ".join(_stack(observation)[:3]) or "none could be had",
        "said": _said(observation)[:200],
        "cure": suspect.cure,
        "evidence": str(folder),
    }
    return f"CONVICTED: {suspect.name}\n" + "\n".join(f"  {name + ':':<10} {text}" for name, text in lines.items())


def _ending(observation: Observation) -> str:
    end = observation.exit
    if end.ended_by in ("startup", "idle", "stall", "wall"):
        states = ", ".join(f"{seen.role} {seen.pid} {seen.state} {seen.wchan}".rstrip() for seen in observation.processes)
        return f"it hung ({end.ended_by}: {states}) and was ended by us"
    if end.ended_by != "itself":
        return f"ended by us ({end.ended_by})"
    return f"{end.signal} (status {end.returncode})" if end.signal else f"exit status {end.returncode}"


def _stack(observation: Observation) -> list[str]:
    """Innermost frames: of the crash, or of the process that hangs the deepest in the tree."""
    return observation.crash_stack or next((seen.stack for seen in reversed(observation.processes) if seen.stack), [])


def _said(observation: Observation) -> str:
    """The first line that speaks of an error, else the last line."""
    return next((line for line in observation.output_tail if "error" in line.lower()), observation.progress.last_line)
