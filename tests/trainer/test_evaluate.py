from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

from trainer.evaluate import recall
from trainer.model import QueryTower, encode


def unit(rng: np.random.Generator, *shape: int) -> Any:
    vectors = rng.standard_normal(shape, np.float32)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def test_recall_is_what_sorting_all_documents_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y, others = unit(rng, 200, 1, 8), unit(rng, 200, 8), unit(rng, 900, 8)
    tower = QueryTower(8, 4)
    monkeypatch.setattr("trainer.evaluate.BLOCK", 64)
    pairs: Any = types.SimpleNamespace(x_val=x, y_val=y)
    scores = encode(tower, x[:50]).numpy() @ np.concatenate([y, others]).T
    ranks = [(-scores[i]).argsort().tolist().index(i) for i in range(50)]
    expected = {f"recall@{k}": float(np.mean([rank < k for rank in ranks])) for k in (10, 100, 500)}
    assert 0 < expected["recall@100"] < 1
    assert recall(tower, pairs, others, 50) == pytest.approx(expected, abs=0.021)  # one query may be a tie


def test_copies_of_the_right_document_do_not_count_against_it_and_nearer_documents_do() -> None:
    rng = np.random.default_rng(0)
    x, y, tower = unit(rng, 1, 1, 8), unit(rng, 1, 8), QueryTower(8, 4)
    pairs: Any = types.SimpleNamespace(x_val=x, y_val=y)
    nearer = encode(tower, x).numpy()
    assert recall(tower, pairs, np.repeat(y, 50, axis=0), 1) == {"recall@10": 1, "recall@100": 1, "recall@500": 1}
    assert recall(tower, pairs, np.repeat(nearer, 50, axis=0), 1) == {"recall@10": 0, "recall@100": 1, "recall@500": 1}
