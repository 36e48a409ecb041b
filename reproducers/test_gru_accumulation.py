"""Suspect: gradient accumulation.  The same model with 16 micro-batches an update; on a GPU the cache is given back after each."""

from __future__ import annotations

import pytest

from matrix.spec.devices import why_unavailable
from reproducers.stand import Stand, Suspect


def suspect(device: str, env: dict[str, str] | None = None) -> Suspect:
    return Suspect(
        name=f"gradient accumulation on {device}",
        asks="does it die only when micro-batches are accumulated, with the device's cache cleared in between?",
        program="gru",
        arguments=("--device", device, "--steps", "64", "--accum", "16", "--empty-cache"),
        env={"OMP_NUM_THREADS": "1", **(env or {})},
        cure="fewer accumulation steps with a larger micro-batch, and no cache clearing between micro-batches; cpu if it is clean there",
    )


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_accumulation_is_cleared(stand: Stand, device: str) -> None:
    stand.clears(suspect(device), missing=why_unavailable(device))


@pytest.mark.control
def test_a_native_fault_in_the_second_update_is_seen(stand: Stand) -> None:
    observation, _ = stand.convicts(suspect("cpu", stand.plant("bad-pointer", when="step:2")))
    assert (observation.exit.signal, observation.progress.last_step) == ("SIGSEGV", 31)
