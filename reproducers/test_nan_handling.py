"""Suspect: figures that are no numbers.  One in the data, or one that is computed, must stop the run at its step, with its name."""

from __future__ import annotations

import pytest

from reproducers.stand import Stand, Suspect, one_thread


def suspect(*further: str) -> Suspect:
    return Suspect(
        name="NaN and infinity",
        asks="does a NaN or an infinity pass through the trainer unnoticed?",
        program="nan_handling",
        arguments=further,
        env=one_thread(),
        cure="check what comes in, what the model makes, the loss, and each gradient before the update; stop at the first, and say where",
    )


def test_a_figure_that_is_no_number_stops_the_trainer(stand: Stand) -> None:
    stand.clears(suspect())


@pytest.mark.control
def test_a_trainer_without_checks_is_seen_to_train_on(stand: Stand) -> None:
    observation, report = stand.convicts(suspect("--unchecked"))
    assert observation.exit.returncode == 1
    assert "passed unnoticed" in report
    assert any("loss=nan" in line or "training finished" in line for line in observation.output_tail)
