"""Suspect: two OpenMP runtimes in one process.  numpy, torch and FAISS of this machine each compute, so each starts its own."""

from __future__ import annotations

import pytest

from reproducers.stand import Stand, Suspect, threads_of_their_own

pytestmark = pytest.mark.quick


def suspect(env: dict[str, str] | None = None) -> Suspect:
    return Suspect(
        name="two OpenMP runtimes",
        asks="do numpy, torch and FAISS bring OpenMP runtimes that abort each other?",
        program="faiss_with_torch",
        arguments=("--steps", "2"),
        env={**threads_of_their_own(), **(env or {})},
        cure="one runtime: torch and FAISS from the same channel (both from PyPI, or both from conda-forge). "
        "KMP_DUPLICATE_LIB_OK=TRUE only hides it and may give wrong results",
    )


def test_the_openmp_runtimes_of_this_machine_are_cleared(stand: Stand) -> None:
    stand.clears(suspect())


@pytest.mark.control
def test_a_second_runtime_in_the_first_search_is_seen_even_when_the_override_is_inherited(stand: Stand) -> None:
    planted = stand.plant("omp-conflict", when="mining")
    observation, report = stand.convicts(suspect({**planted, "KMP_DUPLICATE_LIB_OK": "TRUE"}))
    assert (observation.exit.signal, observation.progress.last_step) == ("SIGABRT", 1)
    assert "OMP: Error #15" in report
    assert [registration.library for registration in observation.omp_registrations] == ["libiomp5.so"]
