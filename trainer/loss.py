"""InfoNCE, and the ring of recent documents that serve as negatives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class FifoBank:
    """The most recent `size` documents.  A ring: a concatenated queue would copy the whole bank at every step."""

    def __init__(self, size: int, dim: int, device: torch.device) -> None:
        self.vectors = torch.zeros(size, dim, device=device)
        self.rows = torch.full((size,), -1, device=device)  # which training row each document belongs to
        self.head = 0  # where the next document goes
        self.filled = 0

    def push(self, vectors: Tensor, rows: Tensor) -> None:
        """Add (n, dim) documents of (n,) rows; the oldest give way."""
        size = len(self.vectors)
        vectors, rows = vectors[-size:], rows[-size:]
        places = torch.arange(self.head, self.head + len(vectors), device=self.rows.device) % size
        self.vectors[places] = vectors
        self.rows[places] = rows
        self.head = (self.head + len(vectors)) % size
        self.filled = min(size, self.filled + len(vectors))

    def state(self) -> dict[str, Any]:
        return {"vectors": self.vectors, "rows": self.rows, "head": self.head, "filled": self.filled}

    def restore(self, state: dict[str, Any]) -> None:
        self.vectors.copy_(state["vectors"])
        self.rows.copy_(state["rows"])
        self.head, self.filled = state["head"], state["filled"]

    def cosines(self, queries: Tensor, rows: Tensor) -> Tensor:
        """(batch, filled); -inf where the bank holds the query's own document, which an earlier epoch left there."""
        own = rows[:, None] == self.rows[None, : self.filled]
        return (queries @ self.vectors[: self.filled].T).masked_fill(own, -torch.inf)


def hard_cosines(queries: Tensor, documents: Tensor, present: Tensor) -> Tensor:
    """(batch, k) for documents (batch, k, dim), which are each query's own; -inf where `present` (batch, k) is false."""
    return torch.einsum("bd,bkd->bk", queries, documents).masked_fill(~present, -torch.inf)


def info_nce(queries: Tensor, documents: Tensor, others: list[Tensor], tau: float, margin: float) -> Tensor:
    """Mean cross entropy of each query's own document against all others, cosines over tau.

    queries, documents: (batch, dim), unit length; others: cosines (batch, m) with more negatives.  The margin is taken off the
    cosine of the positive, as in additive-margin softmax (Wang et al. 2018, arXiv:1801.05599).
    """
    own = torch.eye(len(queries), device=queries.device)
    logits = torch.cat([queries @ documents.T - margin * own, *others], dim=1) / tau
    return torch.nn.functional.cross_entropy(logits, torch.arange(len(queries), device=queries.device))
