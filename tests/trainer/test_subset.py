from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.trainer.conftest import DIM, small_config
from trainer.__main__ import main
from trainer.npz import open_npz
from trainer.train import train


def options(data: Path, out: Path, *more: str) -> list[str]:
    return ["subset", "--pairs", str(data / "pairs.npz"), "--bank", str(data / "bank.npz"), "--out", str(out), *more]


def test_a_subset_has_pairs_that_belong_together_in_the_order_of_the_file(data: Path, tmp_path: Path) -> None:
    assert main(options(data, tmp_path, "--train", "50", "--val", "7", "--documents", "30")) == 0
    whole, part = open_npz(data / "pairs.npz", ""), open_npz(tmp_path / "pairs.npz", "")
    for split, wanted in (("train", 50), ("val", 7)):
        rows = [int(np.flatnonzero((whole[f"X_{split}"] == x).all(1))[0]) for x in part[f"X_{split}"]]
        assert len(rows) == wanted
        assert rows == sorted(set(rows))
        np.testing.assert_array_equal(part[f"Y_{split}"], whole[f"Y_{split}"][rows])
    assert open_npz(tmp_path / "bank.npz", "")["bank"].shape == (30, DIM)


def test_a_subset_can_be_trained_on_and_the_same_seed_draws_it_again(data: Path, tmp_path: Path) -> None:
    for name, seed in (("a", "3"), ("b", "3"), ("c", "4")):
        assert main(options(data, tmp_path / name, "--train", "40", "--seed", seed)) == 0
    a, b, c = ((tmp_path / name / "pairs.npz").read_bytes() for name in "abc")
    assert a == b != c
    train(small_config(tmp_path / "a", tmp_path / "out", hidden=8, memory_bank_size=0, epochs=1))


def test_more_rows_than_there_are_give_all_of_them(data: Path, tmp_path: Path) -> None:
    assert main(options(data, tmp_path, "--train", "100000", "--val", "100000", "--documents", "100000")) == 0
    for name in ("pairs.npz", "bank.npz"):
        whole, part = open_npz(data / name, ""), open_npz(tmp_path / name, "")
        for member in whole:
            np.testing.assert_array_equal(part[member], whole[member])


def test_a_subset_never_replaces_its_own_source(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (data / "pairs.npz").read_bytes()
    assert main(options(data, data)) == 2
    assert "pairs.npz would replace its own source; give another folder" in capsys.readouterr().err
    assert (data / "pairs.npz").read_bytes() == before


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"X_train": np.zeros((3, 2))}, "has no Y_train with rows (it has X_train)"),
        ({"X_train": np.zeros((3, 2)), "Y_train": np.zeros((4, 2))}, "X_train has 3 rows and Y_train has 4 rows, which should be equal"),
    ],
)
def test_a_file_that_holds_no_pairs_is_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arrays: dict[str, np.ndarray], said: str
) -> None:
    np.savez(tmp_path / "pairs.npz", **arrays)
    argv = options(data, tmp_path / "out")
    argv[2] = str(tmp_path / "pairs.npz")
    assert main(argv) == 2
    assert said in capsys.readouterr().err
