from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer import InputError
from trainer.data import Order, Pairs, open_bank

GOOD: dict[str, Any] = {
    "X_train": np.ones((6, 3, 8), np.float32),
    "Y_train": np.ones((6, 8), np.float32),
    "X_val": np.ones((2, 3, 8), np.float32),
    "Y_val": np.ones((2, 8), np.float32),
}


def pairs_file(path: Path, **changes: Any) -> Path:
    np.savez(path, **{name: array for name, array in {**GOOD, **changes}.items() if array is not None})
    return path


@pytest.mark.parametrize(
    ("changes", "seq_len", "said"),
    [
        ({"Y_val": None}, 0, "has no Y_val (it has X_train, Y_train, X_val)"),
        ({"X_train": np.ones((6, 3, 8))}, 0, "X_train is float64 (6, 3, 8)"),
        ({"X_val": np.ones((2, 9), np.float32)}, 0, "X_val is float32 (2, 9)"),
        ({"Y_train": np.ones((6, 1, 8), np.float32)}, 0, "Y_train is float32 (6, 1, 8)"),
        ({"Y_train": np.ones((5, 8), np.float32)}, 0, "X_train has 6 rows and Y_train has 5, which should be equal"),
        ({"X_train": np.ones((0, 8), np.float32)}, 0, "X_train is float32 (0, 8)"),
        ({"X_val": np.ones((2, 8), np.float32)}, 2, "X_val has 1 vectors in a query, --seq-len asks for 2"),
    ],
)
def test_a_pairs_file_of_the_wrong_shape_is_refused(tmp_path: Path, changes: dict[str, Any], seq_len: int, said: str) -> None:
    path = pairs_file(tmp_path / "pairs.npz", **changes)
    with pytest.raises(InputError) as caught:
        Pairs(path, 8, seq_len)
    expected = "X_train X_val: float32 (n, 8) or (n, seq, 8); Y_train Y_val: float32 (n, 8)"
    assert str(caught.value) == f"{path}: {said}; expected {expected}"


def test_all_problems_of_a_file_are_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"has no X_train .*; Y_train is float64"):
        Pairs(pairs_file(tmp_path / "pairs.npz", X_train=None, Y_train=np.ones((6, 8))), 8, 0)


def test_a_bank_of_the_wrong_shape_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "bank.npz", bank=np.ones((4, 7), np.float32))
    with pytest.raises(InputError) as caught:
        open_bank(tmp_path / "bank.npz", 8)
    assert str(caught.value) == f"{tmp_path / 'bank.npz'}: bank is float32 (4, 7); expected bank: float32 (n, 8)"


def test_queries_are_sequences_of_the_length_asked_for(tmp_path: Path) -> None:
    x = np.arange(6 * 3 * 8, dtype=np.float32).reshape(6, 3, 8)
    pairs = Pairs(pairs_file(tmp_path / "pairs.npz", X_train=x, X_val=np.ones((2, 8), np.float32)), 8, 0)
    assert (pairs.x_train.shape, pairs.x_val.shape) == ((6, 3, 8), (2, 1, 8))
    cut = Pairs(pairs_file(tmp_path / "cut.npz", X_train=x), 8, 2)
    np.testing.assert_array_equal(cut.x_train, x[:, :2])


def test_a_micro_batch_holds_the_rows_it_was_asked_for(tmp_path: Path) -> None:
    y = np.arange(48, dtype=np.float32).reshape(6, 8)
    rows, x, got = Pairs(pairs_file(tmp_path / "pairs.npz", Y_train=y), 8, 0)[np.array([4, 1])]
    np.testing.assert_array_equal(got, y[[4, 1]])
    assert (rows.tolist(), x.shape) == ([4, 1], (2, 3, 8))


def test_pairs_travel_to_another_process_as_a_path(tmp_path: Path) -> None:
    path = pairs_file(tmp_path / "pairs.npz", X_train=np.ones((6, 1000, 8), np.float32))
    sent = pickle.dumps(Pairs(path, 8, 0))
    assert len(sent) < 1000
    arrived = pickle.loads(sent)
    assert isinstance(arrived.y_train, np.memmap)
    np.testing.assert_array_equal(arrived.y_train, GOOD["Y_train"])


def test_an_epoch_uses_every_pair_once_in_an_order_of_its_own() -> None:
    order = Order(12, 4, shuffle=True, seed=3)
    epochs = [[order.rows(step) for step in (first, first + 1, first + 2)] for first in (1, 4)]
    flat = [np.concatenate(batches).tolist() for batches in epochs]
    assert [sorted(rows) for rows in flat] == [list(range(12))] * 2
    assert flat[0] != flat[1]
    assert flat[0] != list(range(12))
    order.first, order.last = 4, 6
    assert np.concatenate(list(order)).tolist() == flat[1]


def test_without_shuffling_the_order_is_that_of_the_file_and_the_rest_is_left_out() -> None:
    order = Order(10, 4, shuffle=False, seed=3)
    assert [order.rows(step).tolist() for step in (1, 2, 3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [0, 1, 2, 3]]


def test_a_window_has_the_rows_of_its_steps_each_once_also_across_epochs() -> None:
    order = Order(12, 4, shuffle=True, seed=0)
    expected = {row for step in (3, 4, 5) for row in order.rows(step).tolist()}
    assert order.window(3, 5).tolist() == sorted(expected)
    assert order.window(6, 5).tolist() == []


def test_a_micro_batch_larger_than_the_training_set_is_refused() -> None:
    with pytest.raises(InputError, match="--bs 32 is more than the 10 training pairs"):
        Order(10, 32, shuffle=True, seed=0)
