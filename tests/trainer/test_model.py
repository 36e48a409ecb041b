from __future__ import annotations

import pytest
import torch

from trainer.model import QueryTower, encode


@pytest.mark.parametrize(("cell", "parameters"), [("gru", 4_725_504), ("lstm", 6_038_272)])
def test_the_default_tower_has_exactly_this_many_parameters(cell: str, parameters: int) -> None:
    # GRU: 2 directions x 3 gates x (768 x 512 + 512 x 512 + 2 x 512), LSTM: 4 gates; linear: 1024 x 768 + 768
    assert sum(parameter.numel() for parameter in QueryTower(cell=cell).parameters()) == parameters


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("seq", [1, 5])
def test_query_vectors_have_unit_length(cell: str, seq: int) -> None:
    vectors = QueryTower(8, 4, cell)(torch.randn(3, seq, 8))
    assert vectors.shape == (3, 8)
    torch.testing.assert_close(vectors.norm(dim=1), torch.ones(3))


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("place", [0, -1])
def test_both_ends_of_the_sequence_reach_both_directions(cell: str, place: int) -> None:
    x = torch.randn(1, 4, 8, requires_grad=True)
    tower = QueryTower(8, 4, cell)
    _, state = tower.recurrent(x)
    last = state[0] if cell == "lstm" else state
    for direction in (0, 1):
        (gradient,) = torch.autograd.grad(last[direction].sum(), x, retain_graph=True)
        assert gradient[0, place].abs().sum() > 0


def test_encoding_in_chunks_is_encoding_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tower, x = QueryTower(8, 4), torch.randn(10, 2, 8)
    monkeypatch.setattr("trainer.model.ENCODE_ROWS", 3)
    encoded = encode(tower, x.numpy())
    torch.testing.assert_close(encoded, tower(x).detach())
    assert not encoded.requires_grad
