from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trainer.config import SynthConfig
from trainer.npz import open_npz
from trainer.synth import synth


def make(folder: Path, **changes: int) -> dict[str, np.ndarray]:
    sizes = {"train": 50, "val": 20, "bank": 100, "dim": 16, "clusters": 5, **changes}
    synth(SynthConfig(out=folder, **sizes))  # type: ignore[arg-type]
    return {**open_npz(folder / "pairs.npz", ""), **open_npz(folder / "bank.npz", "")}


@pytest.mark.parametrize(("seq_len", "inner"), [(0, (16,)), (1, (1, 16)), (4, (4, 16))])
def test_shapes_and_types_are_those_of_the_contract(tmp_path: Path, seq_len: int, inner: tuple[int, ...]) -> None:
    arrays = make(tmp_path, seq_len=seq_len)
    assert {name: array.shape for name, array in arrays.items()} == {
        "X_train": (50, *inner), "Y_train": (50, 16), "X_val": (20, *inner), "Y_val": (20, 16), "bank": (100, 16),
    }  # fmt: skip
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}


def test_all_vectors_have_unit_length_and_none_comes_twice(tmp_path: Path) -> None:
    arrays = make(tmp_path, seq_len=3)
    for array in arrays.values():
        np.testing.assert_allclose(np.linalg.norm(array, axis=-1), 1, rtol=1e-5)
    assert len(np.unique(np.concatenate([arrays["Y_train"], arrays["Y_val"]]), axis=0)) == 70
    assert len(np.unique(arrays["bank"], axis=0)) == 100


def test_the_bank_begins_with_the_documents_of_the_pairs(tmp_path: Path) -> None:
    arrays = make(tmp_path)
    np.testing.assert_array_equal(arrays["bank"][:70], np.concatenate([arrays["Y_train"], arrays["Y_val"]]))
    smaller = make(tmp_path / "smaller", bank=30)
    np.testing.assert_array_equal(smaller["bank"], arrays["Y_train"][:30])


def test_many_chunks_are_as_good_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.synth.CHUNK_BYTES", 16 * 4 * 7)
    arrays = make(tmp_path)
    assert len(np.unique(arrays["bank"], axis=0)) == 100
    np.testing.assert_array_equal(arrays["bank"][:50], arrays["Y_train"])
    cosines = np.einsum("nd,nd->n", undo_rotation(arrays), arrays["Y_train"])
    assert cosines.min() > 0.5


def undo_rotation(arrays: dict[str, np.ndarray]) -> np.ndarray:
    """Queries turned back by the best rotation, found from the pairs (orthogonal Procrustes)."""
    left, _, right = np.linalg.svd(arrays["X_train"].T @ arrays["Y_train"])
    return arrays["X_train"] @ (left @ right)


def test_a_query_is_no_view_of_its_document_until_it_is_rotated_back(tmp_path: Path) -> None:
    arrays = make(tmp_path, train=2000)
    as_made = np.einsum("nd,nd->n", arrays["X_train"], arrays["Y_train"])
    turned = np.einsum("nd,nd->n", undo_rotation(arrays), arrays["Y_train"])
    assert abs(as_made.mean()) < 0.3
    assert turned.mean() == pytest.approx(1 / np.sqrt(1 + 0.5**2), abs=0.02)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not(tmp_path: Path) -> None:
    for name, seed in [("a", 1), ("b", 1), ("c", 2)]:
        make(tmp_path / name, seed=seed)
    a, b, c = ((tmp_path / name / "pairs.npz").read_bytes() for name in "abc")
    assert a == b
    assert a != c
