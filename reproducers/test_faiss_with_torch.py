"""Suspect: FAISS and torch in one process, by turns, with the threads that both take by themselves."""

from __future__ import annotations

import pytest

from reproducers.stand import Stand, Suspect, threads_of_their_own


def suspect(env: dict[str, str] | None = None) -> Suspect:
    return Suspect(
        name="FAISS with torch in one process",
        asks="does it die when torch trains and FAISS searches by turns, each with its own threads?",
        program="faiss_with_torch",
        env={**threads_of_their_own(), **(env or {})},
        cure="mine in a process of its own that is started with spawn; then look at the OpenMP suspect",
    )


def test_faiss_with_torch_is_cleared(stand: Stand) -> None:
    stand.clears(suspect())


@pytest.mark.control
def test_a_native_fault_in_the_first_search_after_training_is_seen(stand: Stand) -> None:
    observation, _ = stand.convicts(suspect(stand.plant("bad-pointer", when="mining")))
    assert (observation.exit.signal, observation.progress.last_step) == ("SIGSEGV", 1)
