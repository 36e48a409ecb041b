"""Suspect: the bank of recent negatives.  One that grows, or keeps the graph of what it holds, ends a run after hours."""

from __future__ import annotations

import pytest

from reproducers.judging import growth
from reproducers.stand import Stand, Suspect, one_thread


def suspect(*further: str) -> Suspect:
    return Suspect(
        name="the memory bank",
        asks="does the bank of recent documents grow, or hold on to the graph behind them?",
        program="memory_bank",
        arguments=further,
        env=one_thread(),
        rules=(growth(100_000),),
        cure="a ring of fixed size instead of a list that is concatenated, and detach() of everything that goes into it",
    )


def test_the_memory_bank_is_cleared(stand: Stand) -> None:
    stand.clears(suspect())


@pytest.mark.control
def test_a_bank_that_keeps_every_document_is_seen_to_grow(stand: Stand) -> None:
    observation, report = stand.convicts(suspect("--unbounded"))
    assert observation.exit.returncode == 0  # nothing died: only its memory tells
    assert observation.curve is not None
    assert observation.curve.per_step is not None
    assert observation.curve.per_step.value > 200_000  # 128 documents of 3 kB a step
    assert "100 kB are allowed" in report


@pytest.mark.control
def test_documents_that_are_not_detached_are_seen(stand: Stand) -> None:
    observation, _ = stand.convicts(suspect("--attached"))
    assert observation.python_error is not None
    assert "backward through the graph a second time" in observation.python_error.message
    assert observation.progress.last_step == 1
