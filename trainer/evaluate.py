"""Recall on the validation pairs, exact, without an index: only the rank of the right document is needed."""

from __future__ import annotations

import torch
from torch import Tensor

from trainer.data import Floats, Pairs
from trainer.model import QueryTower, encode

RECALL_AT = (10, 100, 500)
BLOCK = 8192  # documents scored at a time: 25 MB of 768 values
TIE = 1e-5  # a copy of the right document in the bank must not count against it


def recall(tower: QueryTower, pairs: Pairs, bank: Floats, queries: int) -> dict[str, float]:
    """recall@k of the first `queries` validation pairs among all validation documents and the bank.

    The rank of a query's document is the number of documents whose cosine is higher by more than TIE.
    """
    encoded = encode(tower, pairs.x_val[:queries])
    own = torch.tensor(pairs.y_val[:queries], device=encoded.device)
    limit = (encoded * own).sum(1, keepdim=True) + TIE
    rank = count_above(encoded, limit, pairs.y_val) + count_above(encoded, limit, bank)
    return {f"recall@{k}": int((rank < k).sum()) / len(rank) for k in RECALL_AT}


def count_above(queries: Tensor, limit: Tensor, documents: Floats) -> Tensor:
    """(n,) how many of the documents (m, dim) have a cosine above the query's limit (n, 1)."""
    above = torch.zeros(len(queries), device=queries.device)  # float32 counts exactly up to 16 million
    for start in range(0, len(documents), BLOCK):
        # No name for the scores: it would keep one block of them while the next is computed.  Summing booleans takes 12 times as long.
        above += (queries @ torch.tensor(documents[start : start + BLOCK], device=queries.device).T).gt_(limit).sum(1)
    return above
