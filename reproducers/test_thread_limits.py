"""Suspect: the limit on threads (pids of the container, ulimit -u).  Can a job start the threads that its libraries and workers take?"""

from __future__ import annotations

import pytest

from matrix.runner import cgroup
from reproducers.stand import Stand, Suspect, threads_of_their_own

WORKERS = 8


def suspect(pids: int | None = None) -> Suspect:
    return Suspect(
        name="the limit on threads",
        asks=f"is there a limit that torch, FAISS and {WORKERS} workers with as many threads would meet?",
        program="thread_limits",
        arguments=("--workers", str(WORKERS)),
        env=threads_of_their_own(),
        pids=pids,
        cure="a higher limit (docker --pids-limit, systemd TasksMax, ulimit -u); fewer workers; OMP_NUM_THREADS=1 in the workers",
    )


def test_a_job_with_workers_can_start_its_threads(stand: Stand) -> None:
    stand.clears(suspect())


@pytest.mark.control
def test_a_container_that_allows_too_few_threads_is_seen(stand: Stand) -> None:
    reason = cgroup.why_not()
    missing = f"it needs a limit on processes that the kernel keeps ({reason})" if reason else None
    observation, report = stand.convicts(suspect(pids=12), missing=missing)
    assert observation.exit.returncode != 0
    assert "pids-limit" in report
