"""Suspect: the number of micro-batches in an update, on each device.  A fault of one device shows above a threshold, on no other."""

from __future__ import annotations

import pytest

from matrix.spec.devices import why_unavailable
from reproducers.stand import Stand, Suspect, one_thread


def suspect(device: str, accum: int, *further: str, env: dict[str, str] | None = None) -> Suspect:
    return Suspect(
        name=f"accumulation {accum} on {device}",
        asks=f"does {device} die with {accum} micro-batches in an update?",
        program="gru",
        arguments=("--device", device, "--accum", str(accum), "--steps", "32", "--bs", "8", *further),
        env={**one_thread(), **(env or {})},
        cure="the largest number of micro-batches that is cleared on this device, with larger micro-batches; cpu if it is clean there",
    )


@pytest.mark.parametrize("accum", [1, 4, 16, 32])
@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_a_device_with_accumulation_is_cleared(stand: Stand, device: str, accum: int) -> None:
    stand.clears(suspect(device, accum), missing=why_unavailable(device))


@pytest.mark.control
def test_a_driver_that_overruns_its_table_above_a_threshold_is_seen_and_cleared_below_it(stand: Stand) -> None:
    planted = stand.plant("device-overrun")
    observation, _ = stand.convicts(suspect("planted", 32, "--empty-cache", env=planted))
    assert (observation.exit.signal, observation.progress.last_step) == ("SIGSEGV", 12)
    assert stand.asks(suspect("planted", 4, "--empty-cache", env=planted))[1].kind == "cleared"
