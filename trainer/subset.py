"""A small copy of large files, read and written in chunks."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np

from trainer import InputError
from trainer.config import SubsetConfig
from trainer.data import Floats, Rows
from trainer.npz import Member, open_npz, write_npz

CHUNK = 1024  # rows
PAIRS = "X_train X_val Y_train Y_val: arrays of numbers, those of a split with equally many rows"


def subset(config: SubsetConfig) -> None:
    """Write pairs.npz and bank.npz with some of the rows of others.  Raises InputError."""
    files = {"pairs.npz": open_npz(config.pairs, PAIRS), "bank.npz": open_npz(config.bank, "bank: an array of numbers")}
    groups = [
        ("pairs.npz", config.pairs, ("X_train", "Y_train"), config.train),
        ("pairs.npz", config.pairs, ("X_val", "Y_val"), config.val),
        ("bank.npz", config.bank, ("bank",), config.documents),
    ]
    members: dict[str, dict[str, Member]] = {"pairs.npz": {}, "bank.npz": {}}
    for stream, (file, source, names, wanted) in enumerate(groups):
        arrays = files[file]
        if missing := [name for name in names if name not in arrays or arrays[name].ndim < 2]:
            raise InputError(f"{source}: has no {' and no '.join(missing)} with rows (it has {', '.join(arrays) or 'nothing'})")
        if len({len(arrays[name]) for name in names}) > 1:
            raise InputError(f"{source}: {' and '.join(f'{name} has {len(arrays[name])} rows' for name in names)}, which should be equal")
        rows = _drawn(len(arrays[names[0]]), wanted, np.random.default_rng([config.seed, stream]))
        for name in names:
            shape = (len(rows), *arrays[name].shape[1:])
            members[file][name] = (shape, functools.partial(_chunks, arrays[name], rows))
    try:
        config.out.mkdir(parents=True, exist_ok=True)
        for file, content in members.items():
            if (config.out / file).resolve() in (config.pairs.resolve(), config.bank.resolve()):
                raise InputError(f"--out {config.out}: {file} would replace its own source; give another folder")
            write_npz(config.out / file, content)
    except OSError as error:
        raise InputError(f"{config.out}: {error.strerror or error}; expected a folder that can be written, with enough space") from error
    sizes = ", ".join(f"{name} {shape}" for content in members.values() for name, (shape, _) in content.items())
    print(f"{sizes} in {config.out}")


def _drawn(rows: int, wanted: int, rng: np.random.Generator) -> Rows:
    return np.sort(rng.choice(rows, min(rows, wanted), replace=False))


def _chunks(array: Floats, rows: Rows) -> Iterator[Floats]:
    for start in range(0, len(rows), CHUNK):
        yield np.asarray(array[rows[start : start + CHUNK]], np.float32)
