"""One attempt as it is asked for, and what a child of it is started with."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from matrix.evidence import cores
from matrix.evidence.used_files import Given
from matrix.records import Attempt
from matrix.runner import probes
from matrix.runner.patience import Limits
from matrix.runner.tree import MARK

HOOK = Path(__file__).with_name("hook")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """Everything the supervisor needs to run one attempt."""

    attempt: Attempt
    folder: Path
    limits: Limits
    progress: str | None = None  # pattern of a step; None: the common forms
    learnt: str = ""  # pattern of a step that an earlier run taught, see `Progress.learnt`
    finished: str | None = None  # pattern of the line that says that it has finished
    stop_after_step: int | None = None  # None: to its natural end
    stop_after_s: float | None = None  # after so long, once it has come to stop_beyond_step where it shows steps
    stop_beyond_step: int = 0
    writes: tuple[Path, ...] = ()  # each is replaced by a fresh copy, in a mount namespace of the child
    rlimits: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    pids: int | None = None  # most processes and threads; None: no limit
    pty: bool = False
    unbuffered: bool = True
    hook: bool = True
    core: bool = True
    watch: bool = True  # False: no cgroup, no samples, nothing of the kernel's; only started, limited, followed by its output, and ended
    stacks: bool = False  # a whole core for native stacks: slower by the size of the process
    files: Given = dataclasses.field(default_factory=Given)  # of the program, known before it runs
    asked_limits: dict[str, float | int | None] = dataclasses.field(default_factory=dict)  # as the specification has them


@dataclasses.dataclass(kw_only=True)
class Live:
    """What the live view may show of a running attempt; written by the supervisor only."""

    attempt: Attempt
    started_monotonic: float
    step: int | None = None
    total: int | None = None
    rss_bytes: int | None = None
    last_line: str = ""


def context(job: Job, temp: Path, inherited: Mapping[str, str]) -> probes.Context:
    """How that job is started without any probe."""
    return probes.Context(
        argv=job.attempt.argv,
        env=child_environment(inherited, job, "", temp),
        cwd=job.attempt.cwd,
        folder=job.folder,
        temp=str(temp),
        cpus=job.attempt.cpus,
        memory_limit_bytes=job.attempt.memory_limit_bytes,
        rlimits=job.rlimits,
        pids=job.pids,
        pty=job.pty,
        hook=job.hook,
        watch=job.watch,
    )


def probed(job: Job, change: probes.Change) -> Job:
    """The job with what its probes change; attempt.json keeps the unprobed values beside the names of the probes."""
    attempt = dataclasses.replace(
        job.attempt,
        env={**job.attempt.env, **change.env, **({"MATRIX_PROBED": "1"} if job.attempt.trial.probes else {})},
        cpus=change.cpus or job.attempt.cpus,
        memory_limit_bytes=change.memory_limit_bytes or job.attempt.memory_limit_bytes,
    )
    rlimits = {**job.rlimits, **change.rlimits}
    return dataclasses.replace(job, attempt=attempt, rlimits=rlimits, pids=change.pids or job.pids, pty=job.pty and not change.to_file)


def core_plan(job: Job) -> cores.CorePlan:
    """What becomes of its core."""
    if not job.core:
        return cores.CorePlan(folder=job.folder, why_not="not asked for")
    limit = job.rlimits.get("RLIMIT_CORE", (None,))[0]
    return cores.plan(Path(job.attempt.cwd), full=job.stacks, limit_bytes=limit)


def child_environment(inherited: Mapping[str, str], job: Job, token: str, temp: Path) -> dict[str, str]:
    """The inherited environment with the specification's changes, ours around it."""
    env = {**inherited, "TMPDIR": str(temp), **job.attempt.env, MARK: token}
    if job.unbuffered:
        env.setdefault("PYTHONUNBUFFERED", "1")
    if job.hook:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HOOK), env.get("PYTHONPATH")]))
        env["MATRIX_HOOK_DIR"] = str(job.folder.resolve())
    return env


def fresh_copy(path: Path, target: Path) -> Path:
    """A copy of a file or folder that the child may write."""
    if path.is_dir():
        shutil.copytree(path, target, symlinks=True)
    else:
        shutil.copy2(path, target)
    return target
