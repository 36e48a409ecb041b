"""Made data on which training visibly helps: see SynthConfig."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from trainer import InputError
from trainer.config import SynthConfig
from trainer.npz import Member, write_npz

Floats = NDArray[np.float32]
CHUNK_BYTES = 64_000_000
TRAIN, VAL, OTHER, SPACE = range(4)  # streams of random numbers that never meet


def synth(config: SynthConfig) -> None:
    """Write pairs.npz and bank.npz.  Never more than a chunk is in memory, so documents are made anew for each member that needs them."""
    x_shape = (config.dim,) if config.seq_len == 0 else (config.seq_len, config.dim)
    maker = Maker(config)
    pairs: dict[str, Member] = {}
    for split, stream, n in [("train", TRAIN, config.train), ("val", VAL, config.val)]:
        pairs[f"X_{split}"] = ((n, *x_shape), functools.partial(maker.queries, stream, n))
        pairs[f"Y_{split}"] = ((n, config.dim), functools.partial(maker.documents, stream, n))
    try:
        config.out.mkdir(parents=True, exist_ok=True)
        write_npz(config.out / "pairs.npz", pairs)
        write_npz(config.out / "bank.npz", {"bank": ((config.bank, config.dim), maker.bank)})
    except OSError as error:
        raise InputError(f"{config.out}: {error.strerror or error}; expected a folder that can be written, with enough space") from error
    print(f"{config.train} + {config.val} pairs in {config.out / 'pairs.npz'}, {config.bank} documents in {config.out / 'bank.npz'}")


class Maker:
    """Makes rows chunk by chunk; a chunk is a function of the seed, the stream and its number alone."""

    def __init__(self, config: SynthConfig) -> None:
        self.config = config
        self.chunk = max(1, CHUNK_BYTES // (4 * config.dim * max(1, config.seq_len)))  # rows
        rng = np.random.default_rng([config.seed, SPACE])
        self.centres = unit(rng.standard_normal((config.clusters, config.dim), np.float32))
        self.rotation = np.linalg.qr(rng.standard_normal((config.dim, config.dim)))[0].astype(np.float32)

    def documents(self, stream: int, n: int) -> Iterator[Floats]:
        """(n, dim) unit vectors, in chunks."""
        for number, rows in enumerate(self._sizes(n)):
            yield self._documents(self._rng(stream, number), rows)

    def queries(self, stream: int, n: int) -> Iterator[Floats]:
        """(n, seq, dim) unit vectors, or (n, dim) for seq_len 0, in chunks: each a noisy view of its document."""
        for number, rows in enumerate(self._sizes(n)):
            rng = self._rng(stream, number)
            turned = (self._documents(rng, rows) @ self.rotation)[:, None]
            noise = rng.standard_normal((rows, max(1, self.config.seq_len), self.config.dim), np.float32)
            views = unit(turned + noise * np.float32(self.config.noise / self.config.dim**0.5))
            yield views if self.config.seq_len else views[:, 0]

    def bank(self) -> Iterator[Floats]:
        left = self.config.bank
        for stream, n in [(TRAIN, self.config.train), (VAL, self.config.val), (OTHER, self.config.bank)]:
            for chunk in self.documents(stream, n):
                yield chunk[:left]
                left -= len(chunk[:left])
                if left == 0:
                    return

    def _documents(self, rng: np.random.Generator, rows: int) -> Floats:
        centres = self.centres[rng.integers(self.config.clusters, size=rows)]
        noise = rng.standard_normal((rows, self.config.dim), np.float32)
        return unit(centres + noise * np.float32(self.config.spread / self.config.dim**0.5))

    def _sizes(self, n: int) -> list[int]:
        return [min(self.chunk, n - start) for start in range(0, n, self.chunk)]

    def _rng(self, stream: int, number: int) -> np.random.Generator:
        return np.random.default_rng([self.config.seed, stream, number])


def unit(vectors: Floats) -> Floats:
    lengths: Floats = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / lengths
