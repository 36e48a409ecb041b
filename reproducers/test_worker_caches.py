"""Suspect: the chunks that workers keep.  Each worker has a cache of its own, so the caches multiply with the workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproducers.stand import Stand, Suspect, no_memory_limit, one_thread

LIMIT_BYTES = 600_000_000


def suspect(pairs: Path, workers: int, cache_mb: int) -> Suspect:
    return Suspect(
        name="caches of the workers",
        asks="do workers' caches multiply until they meet the memory limit?",
        program="workers",
        arguments=(str(pairs), "--workers", str(workers), "--chunk", "256", "--chunk-cache-mb", str(cache_mb), "--steps", "30"),
        env=one_thread(),
        cure="workers times cache must fit beside the parent: fewer workers, or a smaller --chunk-cache-mb; estimate tells before the run",
        memory_bytes=LIMIT_BYTES,
        patience_s=40.0,
    )


def test_two_workers_with_small_caches_are_cleared(stand: Stand, pairs: Path) -> None:
    stand.clears(suspect(pairs, workers=2, cache_mb=16), missing=no_memory_limit())


@pytest.mark.control
def test_caches_that_fit_once_but_not_six_times_are_seen_as_a_kernel_oom_kill_of_a_worker(stand: Stand, pairs: Path) -> None:
    assert stand.asks(suspect(pairs, workers=1, cache_mb=120))[1].kind == "cleared"
    observation, report = stand.convicts(suspect(pairs, workers=6, cache_mb=120), missing=no_memory_limit())
    assert observation.memory.oom_kills
    first = next(death for death in observation.deaths if death.part == "initiating")
    assert (first.role, first.signal) == ("worker", "SIGKILL")
    assert "kernel OOM kills at a limit of 600 MB" in report
