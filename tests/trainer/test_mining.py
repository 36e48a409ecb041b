from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest

from trainer.config import TrainConfig
from trainer.mining import HardNegatives, mine, search

FIXED = {"candidates": 40, "negatives": 3, "band_low": 0.1, "band_high": 0.6, "near_duplicate": 0.9}
CONFIG = TrainConfig(pairs=Path("p"), bank=Path("b"), threads=1, **FIXED)  # type: ignore[arg-type]


def unit(n: int, dim: int = 8, seed: int = 0) -> Any:
    vectors = np.random.default_rng(seed).standard_normal((n, dim), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("block", [7, 64, 1000])
def test_a_search_in_blocks_finds_the_largest_products(monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr("trainer.mining.BLOCK", block)
    bank, queries = unit(100), unit(25, seed=1)
    values, ids = search(bank, queries, 10, threads=1)
    products = queries @ bank.T
    np.testing.assert_array_equal(ids, np.argsort(-products, axis=1)[:, :10])
    np.testing.assert_allclose(values, -np.sort(-products, axis=1)[:, :10], rtol=1e-5)


def test_native_code_gets_aligned_values_from_a_bank_at_an_odd_address(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, queries = unit(100), unit(25, seed=1)
    odd = np.frombuffer(b"x" + bank.tobytes(), np.uint8)[1:].view(np.float32).reshape(bank.shape)
    assert not odd.flags.aligned
    expected = search(bank, queries, 5, 1)[1]
    knn, aligned = faiss.knn, []

    def recording(queries: Any, block: Any, *others: Any, **more: Any) -> Any:
        aligned.append(block.flags.aligned)
        return knn(queries, block, *others, **more)

    monkeypatch.setattr(faiss, "knn", recording)
    np.testing.assert_array_equal(search(odd, queries, 5, 1)[1], expected)
    assert aligned == [True]


def test_mined_documents_are_the_nearest_in_the_band_that_are_no_near_duplicates() -> None:
    bank, queries = unit(300), unit(20, seed=1)
    positives = bank[np.argsort(-(queries @ bank.T), axis=1)[:, 5]]  # a document of the bank, within the candidates
    config = dataclasses.replace(CONFIG, query_batch=6)
    mined = mine(bank, queries, positives, config)
    for row in range(20):
        cosines = queries[row] @ bank.T
        nearest = np.argsort(-cosines)[:40]
        allowed = [i for i in nearest if 0.1 <= cosines[i] <= 0.6 and bank[i] @ positives[row] < 0.9]
        assert mined[row].tolist() == (allowed + [-1] * 3)[:3]
    assert (mined >= 0).any()
    assert (mine(bank, queries, positives, dataclasses.replace(config, near_duplicate=2.0)) != mined).any()


def test_a_query_with_nothing_in_its_band_gets_nothing() -> None:
    bank = unit(50)
    mined = mine(bank, bank[:4], bank[:4], dataclasses.replace(CONFIG, band_low=0.9999, band_high=1.1))
    assert mined.tolist() == [[-1] * 3] * 4


def test_what_was_mined_serves_for_its_steps_and_no_longer() -> None:
    negatives = HardNegatives(5, 2, serves=10)
    rows = np.array([1, 3])
    negatives.put(rows, np.array([[7, 8], [9, -1]], np.int32), step=20)
    assert negatives.get(np.array([0, 1, 3]), 29).tolist() == [[-1, -1], [7, 8], [9, -1]]
    assert negatives.get(rows, 30).tolist() == [[-1, -1], [-1, -1]]
    assert negatives.stale(np.arange(5), 29).tolist() == [0, 2, 4]
    assert negatives.stale(rows, 30).tolist() == [1, 3]
