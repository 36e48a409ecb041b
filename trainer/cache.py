"""A three-tier cache of trainable vectors, one for each training pair.

L1 and L2 are in memory, least recently used first out: what L1 gives up goes to L2, what L2 gives up to L3, a memory-mapped file
whose space is reserved when it is made, so that a full disk is met then and not in the middle of a run.  Changes are written to
the file in batches.  Until then a journal keeps them: the pages of a killed process are lost, what it has written is not.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import mmap
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from trainer import InputError
from trainer.chunks import Floats, Rows
from trainer.journal import Journal
from trainer.memory import MB, percent_in_use

RELIEF = 10  # percent of memory below the limit from which the tiers grow again


class Tier:
    """At most `capacity` vectors in memory of their own, which goes back to the system when the tier shrinks."""

    def __init__(self, capacity: int, dim: int) -> None:
        self.capacity, self.dim = capacity, dim
        self.places: collections.OrderedDict[int, int] = collections.OrderedDict()  # row -> place, least recently used first
        self.free = list(range(capacity))
        memory = mmap.mmap(-1, 4 * capacity * dim, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.values: Floats = np.frombuffer(memory, np.float32).reshape(capacity, dim)

    def put(self, row: int, value: Floats) -> None:
        """Replaces what is there; a new row needs a free place."""
        if row not in self.places:
            self.places[row] = self.free.pop()
        self.places.move_to_end(row)
        self.values[self.places[row]] = value

    def use(self, row: int) -> Floats:
        self.places.move_to_end(row)
        return np.array(self.values[self.places[row]])

    def take(self, row: int) -> Floats:
        place = self.places.pop(row)
        self.free.append(place)
        return np.array(self.values[place])

    def resized(self, capacity: int) -> Tier:
        """A tier of another size with the same rows, which it must have places for."""
        other = Tier(capacity, self.dim)
        for row, place in self.places.items():
            other.put(row, self.values[place])
        return other


@dataclasses.dataclass
class Counts:
    """Since the last summary."""

    l1: int = 0
    l2: int = 0
    disk: int = 0

    def rates(self) -> dict[str, float]:
        asked = max(1, self.l1 + self.l2 + self.disk)
        return {"l1": self.l1 / asked, "l2": self.l2 / asked, "disk": self.disk / asked}


class EmbeddingCache:
    def __init__(
        self, path: Path, rows: int, dim: int, *, l1_mb: float, l2_mb: float, batch: int,
        memory_limit: float = 90.0, percent: Callable[[], float] = percent_in_use,
    ) -> None:  # fmt: skip
        """`path`: the file of L3, with its journal beside it; what is there is gone on with, else all vectors are zero.

        Raises InputError: the file has another size, or there is no space for it.
        """
        self.path, self.shape = path, (rows, dim)
        _reserve(path, self.shape)
        self.disk: Floats = np.memmap(path, np.float32, "r+", shape=self.shape)
        self.wanted = [max(1, min(rows, int(mb * MB / (4 * dim)))) for mb in (l1_mb, l2_mb)]  # vectors in each tier
        self.l1, self.l2 = (Tier(capacity, dim) for capacity in self.wanted)
        self.chunk = min(1 << (batch - 1).bit_length(), max(1, self.wanted[0] // 4))  # vectors that move between tiers at a time
        self.dirty: set[int] = set()  # changed, and not yet in the file
        self.counts = Counts()
        self.memory_limit, self.percent = memory_limit, percent
        self.journal = Journal(path.with_suffix(".journal"), dim)
        for row, value in self.journal.replay():
            self.disk[row] = value
        self.sync()

    def get(self, rows: Rows) -> Floats:
        """(n, dim), a copy."""
        return np.stack([self._get(row) for row in rows.tolist()])

    def _get(self, row: int) -> Floats:
        if row in self.l1.places:
            self.counts.l1 += 1
            return self.l1.use(row)
        if row in self.l2.places:
            self.counts.l2 += 1
            value = self.l2.take(row)
        else:
            self.counts.disk += 1
            value = np.array(self.disk[row])
        self._place(row, value)
        return value

    def update(self, rows: Rows, values: Floats) -> None:
        """Replace the vectors of rows (n,) by values (n, dim).  What was updated survives this process from here on."""
        try:
            self.journal.append(rows, values)
            kept = True
        except OSError as error:
            print(f"{self.journal.path}: {error.strerror}; changes are written to {self.path} at once", file=sys.stderr)
            kept = False
        for row, value in zip(rows.tolist(), values, strict=True):
            if row in self.l2.places:
                self.l2.take(row)
            self._place(row, value)
            self.dirty.add(row)
        if not kept:  # the space of the file is reserved, so this needs none
            self.sync()

    def _place(self, row: int, value: Floats) -> None:
        if row not in self.l1.places and not self.l1.free:
            self._shrink_l1(self.chunk)
        self.l1.put(row, value)

    def _shrink_l1(self, count: int) -> None:
        for row in list(self.l1.places)[:count]:
            if not self.l2.free:
                self._shrink_l2(self.chunk)
            self.l2.put(row, self.l1.take(row))

    def _shrink_l2(self, count: int) -> None:
        for row in sorted(list(self.l2.places)[:count]):  # in the order of the file
            value = self.l2.take(row)
            if row in self.dirty:
                self.disk[row] = value
                self.dirty.discard(row)

    def sync(self) -> None:
        """Write all changes to the file."""
        for row in sorted(self.dirty):
            tier = self.l1 if row in self.l1.places else self.l2
            self.disk[row] = tier.values[tier.places[row]]
        self.disk.flush()  # type: ignore[attr-defined]  # a memmap
        self.dirty.clear()
        self.journal.clear()

    def adapt(self) -> None:
        """Halve both tiers while the machine's memory is too full, and let them grow again when it no longer is."""
        used, now = self.percent(), [self.l1.capacity, self.l2.capacity]
        if used > self.memory_limit:
            self._resize([max(1, capacity // 2) for capacity in now])
        elif used < self.memory_limit - RELIEF and now != self.wanted:
            self._resize([min(2 * capacity, wanted) for capacity, wanted in zip(now, self.wanted, strict=True)])

    def _resize(self, capacities: list[int]) -> None:
        self._shrink_l1(len(self.l1.places) - capacities[0])
        self._shrink_l2(len(self.l2.places) - capacities[1])
        self.l1, self.l2 = self.l1.resized(capacities[0]), self.l2.resized(capacities[1])
        self.chunk = min(self.chunk, capacities[0])

    def summary(self) -> str:
        """One line about the time since the last one."""
        rates, counts = self.counts.rates(), self.counts
        sizes = ", ".join(
            f"{name} {len(tier.places)} of {tier.capacity} vectors ({tier.values.nbytes / MB:.1f} MB)"
            for name, tier in (("L1", self.l1), ("L2", self.l2))
        )
        hits = f"L1 {rates['l1']:.1%}, L2 {rates['l2']:.1%}, disk {rates['disk']:.1%} of {counts.l1 + counts.l2 + counts.disk}"
        self.counts = Counts()
        return f"cache: {sizes}; hits {hits}; {len(self.dirty)} changes not yet in the file"

    def snapshot(self, path: Path) -> None:
        """A copy of all vectors as they are now, whole or not at all.  Raises OSError."""
        self.sync()
        copy_file(self.path, path)

    def close(self) -> None:
        self.sync()
        self.journal.close()


def copy_file(source: Path, target: Path) -> None:
    """Whole or not at all.  Raises OSError."""
    part = target.with_name(f"{target.name}.part")
    try:
        shutil.copyfile(source, part)
        with part.open("rb") as copied:
            os.fsync(copied.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _reserve(path: Path, shape: tuple[int, int]) -> None:
    size = 4 * shape[0] * shape[1]
    if path.exists():
        if path.stat().st_size != size:
            raise InputError(f"{path}: has {path.stat().st_size} bytes; expected {size} for {shape[0]} vectors of {shape[1]} values")
        return
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as sink:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(sink.fileno(), 0, size)
            else:  # macOS
                for start in range(0, size, 1 << 20):
                    sink.write(bytes(min(1 << 20, size - start)))
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise InputError(f"{path}: {error.strerror or error}; {size / MB:.0f} MB are needed for {shape[0]} vectors") from error
