"""Suspect: FAISS by itself, without torch in the process."""

from __future__ import annotations

import pytest

from reproducers.stand import Stand, Suspect, threads_of_their_own

pytestmark = pytest.mark.quick


def suspect(env: dict[str, str] | None = None) -> Suspect:
    return Suspect(
        name="FAISS alone",
        asks="does FAISS die without torch in the process?",
        program="faiss_alone",
        env={**threads_of_their_own(), **(env or {})},
        cure="another build of FAISS (pip wheel or conda package), or mining without FAISS",
    )


def test_faiss_alone_is_cleared(stand: Stand) -> None:
    stand.clears(suspect())


@pytest.mark.control
def test_a_native_fault_in_the_first_search_is_seen(stand: Stand) -> None:
    observation, _ = stand.convicts(suspect(stand.plant("bad-pointer", when="mining")))
    assert (observation.exit.signal, observation.progress.last_step) == ("SIGSEGV", None)
