"""Suspect: DataLoader workers, with each start method, after torch has computed in the parent."""

from __future__ import annotations

from pathlib import Path

import pytest

from reproducers.stand import Stand, Suspect, threads_of_their_own


def suspect(start: str, pairs: Path, *further: str) -> Suspect:
    return Suspect(
        name=f"workers started with {start}",
        asks=f"do DataLoader workers that are started with {start} die or hang?",
        program="workers",
        arguments=(str(pairs), "--start", start, *further),
        env=threads_of_their_own(),
        cure="a start method that is cleared (trainer: --start-method), or --workers 0",
        patience_s=40.0,  # workers that are not forked import torch first
    )


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_workers_are_cleared(stand: Stand, pairs: Path, start: str) -> None:
    stand.clears(suspect(start, pairs))


@pytest.mark.control
def test_a_native_fault_in_a_worker_is_seen_and_is_not_taken_for_the_parents(stand: Stand, pairs: Path) -> None:
    observation, _ = stand.convicts(suspect("fork", pairs, "--crash-at", "100"))
    assert observation.exit.returncode == 1  # the parent raises an exception: what followed from the worker's death
    assert [(death.role, death.signal) for death in observation.deaths if death.part == "initiating"] == [("worker", "SIGSEGV")]
    assert (observation.progress.last_step or 0) <= 3  # row 100 is in the fourth micro-batch of 32, and workers load ahead
    assert observation.python_error  # torch's "killed by signal", a ConnectionResetError or an EOFError, by who notices first
