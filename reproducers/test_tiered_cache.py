"""Suspect: the three-tier cache of trainable vectors, while memory is short and its tiers shrink."""

from __future__ import annotations

import pytest

from reproducers.stand import Stand, Suspect, one_thread

pytestmark = pytest.mark.quick


def suspect(*further: str) -> Suspect:
    return Suspect(
        name="the three-tier cache under pressure",
        asks="does the cache lose or mix up vectors, or die, when its tiers have to shrink?",
        program="tiered_cache",
        arguments=further,
        env=one_thread(),
        cure="an --out of its own for each run; smaller --cache-l1-mb and --cache-l2-mb, so that the tiers need not shrink",
    )


def test_the_cache_under_pressure_is_cleared(stand: Stand) -> None:
    stand.clears(suspect())


@pytest.mark.control
def test_a_second_run_that_writes_to_the_same_file_is_seen(stand: Stand) -> None:
    observation, report = stand.convicts(suspect("--second-writer"))
    assert observation.exit.returncode == 1
    assert "vectors are not what was written last" in report
    assert observation.progress.last_step is not None
    assert observation.progress.last_step >= 15


@pytest.mark.control
def test_a_file_that_is_cut_while_it_is_mapped_is_seen(stand: Stand) -> None:
    observation, _ = stand.convicts(suspect("--truncate-at", "12"))
    assert (observation.exit.signal, observation.progress.last_step) == ("SIGBUS", 12)
