"""The query tower.  The document tower is the identity: documents are vectors already."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer.data import Floats

ENCODE_ROWS = 256  # at sequence length 100 and 768 values: 79 MB of input


class QueryTower(nn.Module):
    """(batch, seq, dim) -> (batch, dim), unit length: the last states of both directions, one linear layer, L2 norm."""

    def __init__(self, dim: int = 768, hidden: int = 512, cell: str = "gru") -> None:
        super().__init__()
        recurrent = nn.GRU if cell == "gru" else nn.LSTM
        self.recurrent = recurrent(dim, hidden, batch_first=True, bidirectional=True)
        self.project = nn.Linear(2 * hidden, dim)

    def forward(self, x: Tensor) -> Tensor:
        _, state = self.recurrent(x)
        last = state[0] if isinstance(state, tuple) else state  # an LSTM has a cell state as well
        return nn.functional.normalize(self.project(torch.cat([last[0], last[1]], dim=1)), dim=1)


@torch.no_grad()
def encode(tower: QueryTower, x: Floats) -> Tensor:
    """Query vectors (n, dim) of x (n, seq, dim), on the tower's device; chunk by chunk, without gradients."""
    device = tower.project.weight.device
    chunks = [torch.tensor(x[start : start + ENCODE_ROWS], device=device) for start in range(0, len(x), ENCODE_ROWS)]
    return torch.cat([tower(chunk) for chunk in chunks])
