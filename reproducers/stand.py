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
from matrix.runner import cgroup
from matrix.runner.attempt import Job
from matrix.runner.patience import Limits
from reproducers.faults import CannotPlant, plant
from reproducers.judging import Judgement, Rule, ending, judge, said

ROOT = Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Suspect:
    name: str  # for people
    asks: str  # the question that a conviction answers with yes
    program: str  # module in reproducers.suspects
    cure: str  # what to do when it is convicted
    arguments: tuple[str, ...] = ()
    env: dict[str, str] = dataclasses.field(default_factory=dict)
    rules: tuple[Rule, ...] = ()  # what it may use although it finishes; see reproducers.judging
    memory_bytes: int | None = None  # None: no limit
    rlimits: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)  # "RLIMIT_NOFILE" -> (soft, hard)
    pids: int | None = None  # most processes and threads; None: no limit
    patience_s: float = 20.0  # without a step before it counts as hung


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the suspect report."""

    part: Literal["suspect", "control"]
    suspect: str
    test: str  # its name in words
    asks: str
    kind: str  # cleared | convicted | could not run; seen | not seen | could not be planted
    reason: str
    cure: str
    seconds: float | None  # of the child; None: none was started
    cpu_s: float | None  # used by the child and those it waited for; None: none was started, or unknown


@dataclasses.dataclass(frozen=True)
class Stand:
    """The fixture of the tests."""

    pool: LocalPool
    request: pytest.FixtureRequest
    tmp_path: Path

    def clears(self, suspect: Suspect, missing: str | None = None) -> None:
        """Pass when the suspect is cleared, fail with a crash report when it is convicted, skip when it could not run.

        `missing`: why this machine cannot run it, known without a child.
        """
        if missing:
            self._could_not_run(suspect, missing)
        observation, judgement = self.asks(suspect)
        if judgement.kind == "could not run":
            self._could_not_run(suspect, judgement.reason, observation)
        self._note(suspect, judgement.kind, judgement.reason, observation)
        if judgement.kind == "convicted":
            evidence = self._keep_evidence(suspect)
            pytest.fail(crash_report(suspect, observation, judgement, evidence), pytrace=False)

    def convicts(self, suspect: Suspect, missing: str | None = None) -> tuple[Observation, str]:
        """For controls, which plant the fault: the check must see it.  The observation and the crash report."""
        if missing:
            self._could_not_plant(suspect, missing)
        observation, judgement = self.asks(suspect)
        if judgement.kind == "could not run":
            self._could_not_plant(suspect, judgement.reason, observation)
        seen = "seen" if judgement.kind == "convicted" else "not seen"
        self._note(suspect, seen, judgement.reason, observation)
        assert seen == "seen", f"the planted fault was not seen: {judgement.reason}"
        return observation, crash_report(suspect, observation, judgement, self.folder)

    def asks(self, suspect: Suspect) -> tuple[Observation, Judgement]:
        """Run it and judge it; the report has no line for it.  The evidence is in `self.folder`, which the next run takes."""
        shutil.rmtree(self.folder, ignore_errors=True)
        observation = question(suspect, self.pool, self.folder)
        return observation, judge(observation, suspect.rules)

    @property
    def folder(self) -> Path:
        return self.tmp_path / "attempt"

    def plant(self, fault: str, when: str | None = None, first: str = "torch") -> dict[str, str]:
        """The environment that plants a fault (see reproducers.faults.plant); skips where that cannot be done."""
        try:
            return plant(fault, when=when, first=first, cache=self.tmp_path / "plant")
        except CannotPlant as reason:
            pytest.skip(f"could not be planted: {reason}")

    def _could_not_run(self, suspect: Suspect, reason: str, observation: Observation | None = None) -> None:
        self._note(suspect, "could not run", reason, observation)
        pytest.skip(f"could not run: {reason}")

    def _could_not_plant(self, suspect: Suspect, reason: str, observation: Observation | None = None) -> None:
        self._note(suspect, "could not be planted", reason, observation)
        pytest.skip(f"could not be planted: {reason}")

    def _note(self, suspect: Suspect, kind: str, reason: str, seen: Observation | None) -> None:
        part: Literal["suspect", "control"] = "control" if self.request.node.get_closest_marker("control") else "suspect"
        row = Row(
            part=part, suspect=suspect.name, test=in_words(self.request.node.name), asks=suspect.asks,
            kind=kind, reason=reason, cure=suspect.cure,
            seconds=seen.wall_s if seen else None, cpu_s=seen.exit.cpu_s if seen else None,
        )  # fmt: skip
        self.request.node.user_properties.append(("row", dataclasses.asdict(row)))

    def _keep_evidence(self, suspect: Suspect) -> Path:
        name = re.sub(r"[^a-z0-9]+", "-", suspect.name.lower()).strip("-")
        kept = self.request.config.invocation_params.dir / "runs" / "reproducers" / name / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.folder, kept)
        return kept


def in_words(test: str) -> str:
    return test.removeprefix("test_").replace("_", " ")


def threads_of_their_own() -> dict[str, str]:
    """As many threads as the libraries take when nobody limits them.  The tests' own limit of one would hide what is looked for."""
    cpus = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), cpus)


def one_thread() -> dict[str, str]:
    """For suspects that have nothing to do with threads: half the CPU time on two cores."""
    return dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def no_memory_limit() -> str | None:
    """Why no limit that the kernel itself enforces can be set here; None: it can."""
    reason = cgroup.why_not()
    return f"it needs a memory limit that counts like the kernel's ({reason})" if reason else None


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
    limits = Limits(wall_s=300.0, startup_s=120.0, idle_s=suspect.patience_s, stall_s=1.5 * suspect.patience_s)
    job = Job(
        attempt=attempt, folder=folder, limits=limits, progress=r"^step (?P<step>\d+)", finished="suspect finished",
        core=False, rlimits=suspect.rlimits, pids=suspect.pids,
    )  # fmt: skip
    pool.submit(job)
    observation = pool.wait()
    if observation is None:
        raise RuntimeError(f"the runner gave no observation of {attempt.id}; see {folder}")
    return observation


def crash_report(suspect: Suspect, observation: Observation, judgement: Judgement, folder: Path) -> str:
    """What a person needs to know of the conviction, in a few lines."""
    memory, last = observation.memory, observation.progress.last_step
    lines = {
        "asked": suspect.asks,
        "found": judgement.reason,
        "program": f"python -m reproducers.suspects.{suspect.program} {' '.join(suspect.arguments)}".rstrip(),
        "ended": f"{ending(observation)} after {observation.wall_s:.1f} s",
        "last step": "none" if last is None else str(last),
        "memory": f"{(memory.peak_tree_rss_bytes or 0) / 1e6:.0f} MB at most"
        + (f", {memory.oom_kills} kernel OOM kills at a limit of {(memory.limit_bytes or 0) / 1e6:.0f} MB" if memory.oom_kills else ""),
        "stack": "; ".join(_stack(observation)[:3]) or "none could be had",
        "said": said(observation)[:200],
        "cure": suspect.cure,
        "evidence": str(folder),
    }
    return f"CONVICTED: {suspect.name}\n" + "\n".join(f"  {name + ':':<10} {text}" for name, text in lines.items())


def _stack(observation: Observation) -> list[str]:
    """Innermost frames: of the crash, or of the process that hangs the deepest in the tree."""
    return observation.crash_stack or next((seen.stack for seen in reversed(observation.processes) if seen.stack), [])
