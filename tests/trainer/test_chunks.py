from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trainer.chunks import Chunks
from trainer.data import Pairs

ARRAYS = [np.arange(30, dtype=np.float32).reshape(10, 3), np.arange(10, dtype=np.float32)[:, None]]


@pytest.mark.parametrize("size", [1, 3, 4, 10, 99])
def test_rows_read_in_chunks_are_the_rows(size: int) -> None:
    chunks = Chunks(ARRAYS, size, 1)
    for rows in ([9, 0, 0, 4], [3], [5, 6, 7, 8, 9]):
        for read, array in zip(chunks.read(np.array(rows)), ARRAYS, strict=True):
            np.testing.assert_array_equal(read, array[rows], strict=True)


def test_no_more_chunks_are_kept_than_the_limit_allows_and_the_least_used_goes_first() -> None:
    chunks = Chunks(ARRAYS, 2, 2 * (2 * 16) / 1e6)  # two chunks of two rows of 16 bytes
    for row in (0, 2, 0, 4):
        chunks.read(np.array([row]))
    assert list(chunks.kept) == [0, 2]


def test_a_limit_below_one_chunk_still_keeps_one() -> None:
    chunks = Chunks(ARRAYS, 5, 1e-9)
    chunks.read(np.array([0, 9]))
    assert list(chunks.kept) == [1]


def test_a_kept_chunk_is_a_copy_and_not_the_mapped_file(data: Path) -> None:
    pairs = Pairs(data / "pairs.npz", 64, 0, chunk=16, chunk_cache_mb=1)
    pairs[np.array([3, 500])]
    assert pairs.chunks is not None
    assert not any(isinstance(array, np.memmap) or array.base is not None for kept in pairs.chunks.kept.values() for array in kept)
