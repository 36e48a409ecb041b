"""Suspect: graphs that outlive their micro-batch.  Accumulation needs the gradients of earlier ones, not their activations."""

from __future__ import annotations

import pytest

from reproducers.judging import growth
from reproducers.stand import Stand, Suspect, one_thread


def suspect(*further: str) -> Suspect:
    return Suspect(
        name="autograd in accumulation",
        asks="does memory grow with every micro-batch, because its graph is kept?",
        program="autograd_retention",
        arguments=further,
        env=one_thread(),
        rules=(growth(500_000),),
        cure="keep loss.item() and not the loss, no retain_graph, and no_grad() around what is not trained",
    )


def test_accumulation_keeps_no_graph(stand: Stand) -> None:
    stand.clears(suspect())


@pytest.mark.control
def test_losses_that_are_kept_with_their_graphs_are_seen_to_grow(stand: Stand) -> None:
    observation, report = stand.convicts(suspect("--keep-graphs"))
    assert observation.exit.returncode == 0
    assert observation.curve is not None
    assert observation.curve.per_step is not None
    assert observation.curve.per_step.value > 1_000_000  # a graph is 5 MB
    assert "500 kB are allowed" in report
