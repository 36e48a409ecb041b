"""Suspect: queries of 100 vectors and more.  What one step keeps for its backward pass grows with the length."""

from __future__ import annotations

import pytest

from matrix.spec.devices import why_unavailable
from reproducers.stand import Stand, Suspect, no_memory_limit, one_thread

LIMIT_BYTES = 700_000_000  # torch, the tower and its optimiser take 300 MB of it


def suspect(device: str, batch: int = 4) -> Suspect:
    return Suspect(
        name=f"long sequences on {device}",
        asks="does a step with queries of 120 vectors die, or need more memory than 700 MB with a small micro-batch?",
        program="gru",
        arguments=("--device", device, "--sequence", "120", "--bs", str(batch), "--steps", "6"),
        env=one_thread(),
        cure="smaller micro-batches with more accumulation, or --seq-len N for the first N vectors of each query",
        memory_bytes=LIMIT_BYTES if device == "cpu" else None,
    )


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_long_sequences_are_cleared(stand: Stand, device: str) -> None:
    stand.clears(suspect(device), missing=why_unavailable(device) or (no_memory_limit() if device == "cpu" else None))


@pytest.mark.control
def test_a_micro_batch_whose_activations_exceed_the_limit_is_seen(stand: Stand) -> None:
    observation, report = stand.convicts(suspect("cpu", batch=128), missing=no_memory_limit())
    assert (observation.exit.signal, observation.progress.last_step) == ("SIGKILL", None)
    assert observation.memory.oom_kills == 1
    assert "1 kernel OOM kills at a limit of 700 MB" in report
