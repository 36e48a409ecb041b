"""Suspect: each available device.  The same step there and on the CPU must agree."""

from __future__ import annotations

import pytest

from matrix.spec.devices import why_unavailable
from reproducers.stand import Stand, Suspect, one_thread


def suspect(device: str, *further: str) -> Suspect:
    return Suspect(
        name=f"the device {device}",
        asks=f"does {device} die in a training step, or compute something else than a CPU?",
        program="device",
        arguments=(device, *further),
        env=one_thread(),
        cure="another driver or torch version; a memory test of the device (nvidia-smi -q -d ECC tells its errors); cpu meanwhile",
    )


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_a_device_is_cleared(stand: Stand, device: str) -> None:
    stand.clears(suspect(device), missing=why_unavailable(device))


@pytest.mark.control
def test_one_flipped_bit_in_a_weight_is_seen(stand: Stand) -> None:
    observation, report = stand.convicts(suspect("cpu", "--flip-bit"))
    assert (observation.exit.returncode, observation.progress.last_step) == (1, None)
    assert "the gradients of cpu and cpu are" in report
