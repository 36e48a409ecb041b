"""Suspect: the checkpoint.  A run is really killed with SIGKILL and resumed, and must go on as if nothing had happened."""

from __future__ import annotations

import pytest

from reproducers.stand import Stand, Suspect, one_thread


def suspect(*further: str) -> Suspect:
    return Suspect(
        name="checkpoint, kill and resume",
        asks="does a run that is killed and resumed start over, die, or compute something else?",
        program="checkpoint_resume",
        arguments=further,
        env=one_thread(),
        cure="write a checkpoint beside the old one, flush it and rename it; keep optimiser, gradients, random state and order in it",
        patience_s=60.0,  # a step is a whole run of the trainer
    )


def test_a_run_that_is_killed_and_resumed_is_cleared(stand: Stand) -> None:
    stand.clears(suspect())


@pytest.mark.control
def test_half_a_checkpoint_is_seen(stand: Stand) -> None:
    observation, report = stand.convicts(suspect("--damage"))
    assert (observation.exit.returncode, observation.progress.last_step) == (1, 2)
    assert "the trainer ended with status 2 (--resume)" in report
    assert any("checkpoint.pt: damaged or no checkpoint" in line for line in observation.output_tail)
