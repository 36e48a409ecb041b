"""Run one small program under the real supervisor and look at what was observed."""

from __future__ import annotations

import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from matrix.records import Attempt, Observation, Trial
from matrix.runner.attempt import Job, run
from matrix.runner.launcher import Guardian
from matrix.runner.patience import Limits
from tests.matrix.command_line import PATIENCE_S

Observe = Callable[..., Observation]


@pytest.fixture
def guardian() -> Iterator[Guardian]:
    with Guardian() as started:
        yield started


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    """A job for Python source text (or an argv list); keyword arguments go to Attempt or to Job, whichever has them."""
    count = iter(range(1, 1000))

    def build(
        program: str | list[str], *, env: dict[str, str] | None = None, memory: int | None = None, limits: Limits | None = None, **more: Any
    ) -> Job:
        name = f"{next(count):04d}-00000000"
        argv = [sys.executable, "-c", textwrap.dedent(program)] if isinstance(program, str) else program
        cwd = tmp_path / "cwd"
        cwd.mkdir(exist_ok=True)
        attempt = Attempt(
            id=name,
            trial=Trial(id=1, cell={}, probes=more.pop("probes", {})),
            argv=argv,
            env=env or {},
            cwd=str(cwd),
            key="k",
            program="p",
            memory_limit_bytes=memory,
            cpus=more.pop("cpus", None),
        )
        return Job(attempt=attempt, folder=tmp_path / "attempts" / name, limits=limits or Limits(wall_s=PATIENCE_S), **more)

    return build


@pytest.fixture
def observe(guardian: Guardian, job: Callable[..., Job]) -> Observe:
    def go(program: str | list[str], **options: Any) -> Observation:
        return run(job(program, **options), guardian, stop=threading.Event())

    return go
