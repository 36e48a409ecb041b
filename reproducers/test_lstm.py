"""Suspect: the framework's LSTM, the alternative cell.  The bare model, as for the GRU."""

from __future__ import annotations

import pytest

from matrix.spec.devices import why_unavailable
from reproducers.stand import Stand, Suspect, one_thread


def suspect(device: str, env: dict[str, str] | None = None) -> Suspect:
    return Suspect(
        name=f"the framework's LSTM on {device}",
        asks="does the bare model die with the other cell?",
        program="gru",
        arguments=("--cell", "lstm", "--device", device, "--steps", "30"),
        env={**one_thread(), **(env or {})},
        cure="--cell gru, if that is cleared; another device or torch version, one at a time; then report it to torch with the evidence",
    )


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
def test_the_bare_lstm_is_cleared(stand: Stand, device: str) -> None:
    stand.clears(suspect(device), missing=why_unavailable(device))


@pytest.mark.control
def test_a_native_fault_before_the_first_gradient_is_seen(stand: Stand) -> None:
    observation, _ = stand.convicts(suspect("cpu", stand.plant("bad-pointer", when="backward")))
    assert (observation.exit.signal, observation.progress.last_step) == ("SIGSEGV", None)
