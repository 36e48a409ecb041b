"""Suspect: the framework's GRU.  100 iterations of the bare model, without data, mining or accumulation."""

from __future__ import annotations

import pytest

from matrix.spec.devices import why_unavailable
from reproducers.stand import Stand, Suspect, one_thread

pytestmark = pytest.mark.quick


def suspect(device: str, env: dict[str, str] | None = None) -> Suspect:
    return Suspect(
        name=f"the framework's GRU on {device}",
        asks="does the bare model die by itself, without data, mining and accumulation?",
        program="gru",
        arguments=("--device", device, "--steps", "100"),
        env={**one_thread(), **(env or {})},
        cure="try --cell lstm, another device, or another torch version, one at a time; then report it to torch with the evidence",
    )


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_the_bare_gru_is_cleared(stand: Stand, device: str) -> None:
    stand.clears(suspect(device), missing=why_unavailable(device))


@pytest.mark.control
def test_a_native_fault_before_the_first_gradient_is_seen(stand: Stand) -> None:
    observation, report = stand.convicts(suspect("cpu", stand.plant("bad-pointer", when="backward")))
    assert (observation.exit.signal, observation.progress.last_step) == ("SIGSEGV", None)
    assert "SIGSEGV" in report
