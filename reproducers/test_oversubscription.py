"""Suspect: more threads than processors.  Workers that each take a thread per processor spend processor time on waiting.

Judged by processor time alone, never by the clock.  With torch from PyPI (libgomp, which spins before it sleeps) and two processors or
more this is convicted, so there a conviction is the truth about the machine.
"""

from __future__ import annotations

import os

import pytest

from reproducers import printed
from reproducers.stand import Stand, Suspect, threads_of_their_own

TIMES = 2.0


def suspect(name: str, env: dict[str, str] | None = None) -> Suspect:
    return Suspect(
        name=name,
        asks="do workers that each compute with a thread for every processor waste processor time on waiting for each other?",
        program="oversubscription",
        env={**threads_of_their_own(), **(env or {})},
        rules=(printed.last("times", TIMES, "{} times the processor time that the same work takes with one thread in each worker"),),
        cure="OMP_NUM_THREADS=1 in each worker (or processors divided by workers); OMP_WAIT_POLICY=passive where that cannot be",
    )


def _one_processor() -> str | None:
    alone = not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) == 1
    return "it needs two processors" if alone else None


def test_workers_with_a_thread_for_each_processor_waste_no_time(stand: Stand) -> None:
    stand.clears(suspect("workers times threads"), missing=_one_processor())


@pytest.mark.control
def test_threads_that_never_stop_spinning_are_seen(stand: Stand) -> None:
    planted = {"OMP_WAIT_POLICY": "active", "GOMP_SPINCOUNT": "infinite"}
    _, report = stand.convicts(suspect("threads that spin", planted), missing=_one_processor())
    assert "OMP_NUM_THREADS=1" in report


@pytest.mark.control
def test_threads_that_sleep_at_once_are_cleared_by_the_same_rule(stand: Stand) -> None:
    if reason := _one_processor():
        pytest.skip(reason)
    _, judgement = stand.asks(suspect("threads that sleep", {"OMP_WAIT_POLICY": "passive"}))
    assert judgement.kind == "cleared", judgement.reason
