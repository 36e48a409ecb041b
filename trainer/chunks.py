"""Rows of large files, read and kept in chunks.  Each process that reads has chunks of its own: eight loaders keep eight times as much."""

from __future__ import annotations

import collections
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]


class Chunks:
    """The most recently used chunks of `size` rows of several arrays that have equally many rows, at most `limit_mb` of them."""

    def __init__(self, arrays: Sequence[Floats], size: int, limit_mb: float) -> None:
        self.arrays, self.size = arrays, size
        chunk_bytes = sum(size * array[0].nbytes for array in arrays)
        self.most = max(1, int(limit_mb * 1e6 / chunk_bytes))  # chunks; one is always kept
        self.kept: collections.OrderedDict[int, list[Floats]] = collections.OrderedDict()

    def read(self, rows: Rows) -> list[Floats]:
        """Of each array, the rows (n, ...), in their order."""
        found = [np.empty((len(rows), *array.shape[1:]), array.dtype) for array in self.arrays]
        numbers, places = np.divmod(rows, self.size)
        for number in np.unique(numbers):
            here = numbers == number
            for values, chunk in zip(found, self._chunk(int(number)), strict=True):
                values[here] = chunk[places[here]]
        return found

    def _chunk(self, number: int) -> list[Floats]:
        if number in self.kept:
            self.kept.move_to_end(number)
            return self.kept[number]
        while len(self.kept) >= self.most:
            self.kept.popitem(last=False)
        start = number * self.size
        self.kept[number] = [np.array(array[start : start + self.size]) for array in self.arrays]
        return self.kept[number]
