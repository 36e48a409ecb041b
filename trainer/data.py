"""Pairs and bank as mapped arrays, checked before anything is computed, and the order in which pairs are used."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer import InputError
from trainer.chunks import Chunks
from trainer.npz import open_npz

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]


class Pairs:
    """The pairs file.  x is (n, seq, dim), y is (n, dim).  A row is read when it is used.

    Indexed with the rows of a micro-batch, as a data set of torch's DataLoader.  In another process the file is mapped
    again instead of being sent there.  With `chunk`, that many training pairs are read at a time, and each process that is
    asked keeps `chunk_cache_mb` of them.  Raises InputError.
    """

    def __init__(self, path: Path, dim: int, seq_len: int, chunk: int = 0, chunk_cache_mb: float = 0) -> None:
        self.source = (path, dim, seq_len, chunk, chunk_cache_mb)
        expected = f"X_train X_val: float32 (n, {dim}) or (n, seq, {dim}); Y_train Y_val: float32 (n, {dim})"
        arrays = open_npz(path, expected)
        problems = [text for split in ("train", "val") for text in _pair_problems(arrays, split, dim, seq_len)]
        if problems:
            raise InputError(f"{path}: {'; '.join(problems)}; expected {expected}")
        self.x_train, self.x_val = (as_sequences(arrays[name], seq_len) for name in ("X_train", "X_val"))
        self.y_train: Floats = arrays["Y_train"]
        self.y_val: Floats = arrays["Y_val"]
        self.chunks = Chunks([self.x_train, self.y_train], chunk, chunk_cache_mb) if chunk else None

    def __len__(self) -> int:
        return len(self.y_train)

    def __getitem__(self, rows: Rows) -> tuple[Rows, Floats, Floats]:
        if self.chunks:
            x, y = self.chunks.read(rows)
            return rows, x, y
        return rows, np.asarray(self.x_train[rows]), np.asarray(self.y_train[rows])

    def __reduce__(self) -> tuple[Any, ...]:
        return Pairs, self.source


def open_bank(path: Path, dim: int) -> Floats:
    """(n, dim), mapped.  Raises InputError."""
    expected = f"bank: float32 (n, {dim})"
    arrays = open_npz(path, expected)
    problems = _problems(arrays, "bank", dim, (2,))
    if problems:
        raise InputError(f"{path}: {'; '.join(problems)}; expected {expected}")
    return arrays["bank"]


def as_sequences(x: Floats, seq_len: int) -> Floats:
    sequences = x[:, None] if x.ndim == 2 else x
    return sequences[:, :seq_len] if seq_len else sequences


def _problems(arrays: dict[str, NDArray[Any]], name: str, dim: int, ranks: tuple[int, ...]) -> list[str]:
    if name not in arrays:
        return [f"has no {name} (it has {', '.join(arrays) or 'nothing'})"]
    array = arrays[name]
    if array.dtype != np.float32 or array.ndim not in ranks or array.shape[-1] != dim or 0 in array.shape:
        return [f"{name} is {array.dtype} {array.shape}"]
    return []


def _pair_problems(arrays: dict[str, NDArray[Any]], split: str, dim: int, seq_len: int) -> list[str]:
    x_name, y_name = f"X_{split}", f"Y_{split}"
    problems = _problems(arrays, x_name, dim, (2, 3)) + _problems(arrays, y_name, dim, (2,))
    if problems:
        return problems
    x, y = arrays[x_name], arrays[y_name]
    if len(x) != len(y):
        problems.append(f"{x_name} has {len(x)} rows and {y_name} has {len(y)}, which should be equal")
    if seq_len > as_sequences(x, 0).shape[1]:
        problems.append(f"{x_name} has {as_sequences(x, 0).shape[1]} vectors in a query, --seq-len asks for {seq_len}")
    return problems


class Order:
    """Which rows each step uses: a function of seed and step, so that mining knows the queries of steps to come.

    Iterated, it gives the micro-batches of steps `first` to `last`.  Rows that do not fill a micro-batch are left out.
    """

    def __init__(self, pairs: int, bs: int, shuffle: bool, seed: int) -> None:
        if pairs < bs:
            raise InputError(f"--bs {bs} is more than the {pairs} training pairs; it may be {pairs} at most")
        self.pairs, self.bs, self.shuffle, self.seed = pairs, bs, shuffle, seed
        self.steps_per_epoch = pairs // bs
        self.first, self.last = 1, self.steps_per_epoch
        self._of_epoch = functools.lru_cache(maxsize=2)(self._make)

    def __iter__(self) -> Iterator[Rows]:
        for step in range(self.first, self.last + 1):
            yield self.rows(step)

    def __len__(self) -> int:
        return self.last - self.first + 1

    def rows(self, step: int) -> Rows:
        """The (bs,) rows of a step; steps count from 1 and run on across epochs."""
        epoch, position = divmod(step - 1, self.steps_per_epoch)
        return self._of_epoch(epoch)[position * self.bs : (position + 1) * self.bs]

    def window(self, first: int, last: int) -> Rows:
        """The rows, each once, of steps `first` to `last` inclusive; none when last < first."""
        steps = [self.rows(step) for step in range(first, last + 1)]
        return np.unique(np.concatenate(steps)) if steps else np.empty(0, np.int64)

    def _make(self, epoch: int) -> Rows:
        rows = np.arange(self.pairs)
        return np.random.default_rng([self.seed, epoch]).permutation(rows) if self.shuffle else rows
