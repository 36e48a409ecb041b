"""Suspect: gradient accumulation.  The same model with 16 micro-batches an update; on a GPU the cache is given back after each."""

from __future__ import annotations

import pytest

from matrix.spec.devices import why_unavailable
from reproducers.stand import Stand, Suspect, one_thread


def suspect(device: str, env: dict[str, str] | None = None) -> Suspect:
    return Suspect(
        name=f"gradient accumulation on {device}",
        asks="does it die only when micro-batches are accumulated, with the device's cache cleared in between?",
        program="gru",
        arguments=("--device", device, "--steps", "64", "--accum", "16", "--empty-cache"),
        env={**one_thread(), **(env or {})},
        cure="fewer accumulation steps with a larger micro-batch, and no cache clearing between micro-batches; cpu if it is clean there",
    )


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_accumulation_is_cleared(stand: Stand, device: str) -> None:
    stand.clears(suspect(device), missing=why_unavailable(device))


@pytest.mark.control
def test_a_driver_whose_table_is_too_short_for_16_micro_batches_is_seen(stand: Stand) -> None:
    observation, _ = stand.convicts(suspect("planted", stand.plant("device-overrun")))
    assert (observation.exit.signal, observation.progress.last_step) == ("SIGSEGV", 12)  # places of the table
