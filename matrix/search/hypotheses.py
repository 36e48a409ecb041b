"""Crash sets as arrays: conjunctions of conditions, and unions of two of them, with membership by index.

A condition is a number of `space.Conditions`; number 0 always holds.  A block holds conjunctions of one length, (N, k), or
unions of two such blocks, so that membership of a cell is a few gathers.  This module imports numpy.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Short = npt.NDArray[np.int16]

Axis = Sequence[tuple[int, float]]  # the conditions of one axis: number, and share of the axis's prior


@dataclasses.dataclass(frozen=True, kw_only=True)
class Block:
    """N crash sets of one form: each part (N, k) is a conjunction, and a cell is inside when all conditions of any part hold."""

    parts: tuple[Short, ...]
    log_prior: Floats  # (N,)

    def __len__(self) -> int:
        return len(self.log_prior)

    def inside(self, truth: Bools) -> Bools:
        """(N, …): which of these crash sets contain the cells of `truth` (L, …)."""
        return functools.reduce(np.logical_or, (_all(truth, part) for part in self.parts))

    def take(self, numbers: Ints) -> Block:
        return Block(parts=tuple(part[numbers] for part in self.parts), log_prior=self.log_prior[numbers])


def _all(truth: Bools, part: Short) -> Bools:
    held = truth[part[:, 0]] if part.shape[1] else np.ones((len(part), *truth.shape[1:]), dtype=bool)
    for place in range(1, part.shape[1]):
        held &= truth[part[:, place]]
    return held


def conjunctions(axes: Sequence[Axis], order: int, weights: Floats) -> tuple[Short, Floats, Ints]:
    """Every conjunction of `order` conditions on different axes, (N, order); its share, which sum to 1 over all of them; the last
    axis of each.  `weights` (axes,): how much likelier an axis is than the others to take part."""
    parts, shares, last = np.zeros((1, 0), dtype=np.int16), np.ones(1), np.full(1, -1)
    for _ in range(order):
        grown = [_grow(parts, shares, last, number, axis, float(weights[number])) for number, axis in enumerate(axes)]
        parts = np.concatenate([part for part, _, _ in grown])
        shares = np.concatenate([share for _, share, _ in grown])
        last = np.concatenate([place for _, _, place in grown])
    return parts, shares / shares.sum() if len(shares) else shares, last


def _grow(parts: Short, shares: Floats, last: Ints, number: int, axis: Axis, weight: float) -> tuple[Short, Floats, Ints]:
    """The conjunctions that end before this axis, each with every condition of it."""
    before = last < number
    left, conditions = parts[before], np.array([condition for condition, _ in axis], dtype=np.int16)
    count = len(left)
    longer = np.hstack([np.repeat(left, len(axis), axis=0), np.tile(conditions, count)[:, None]])
    share = np.repeat(shares[before], len(axis)) * np.tile([weight * share for _, share in axis], count)
    return longer, share, np.full(len(longer), number)


def count(axes: Sequence[Axis], order: int) -> int:
    """How many conjunctions there are: an elementary symmetric polynomial of the numbers of conditions."""
    ways = [1] + [0] * order
    for axis in axes:
        for size in range(order, 0, -1):
            ways[size] += ways[size - 1] * len(axis)
    return ways[order]


class Hypotheses:
    """Blocks one after another, numbered through: `H` crash sets."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = [block for block in blocks if len(block)]
        self.log_prior: Floats = np.concatenate([block.log_prior for block in self.blocks])
        self._starts = np.cumsum([0, *(len(block) for block in self.blocks)])

    def __len__(self) -> int:
        return len(self.log_prior)

    def column(self, truth: Bools) -> Bools:
        """(H,): which crash sets contain the cell of `truth` (L,)."""
        return np.concatenate([block.inside(truth) for block in self.blocks])

    def rows(self, which: Ints, truth: Bools) -> Bools:
        """(H', C): which of the cells of `truth` (L, C) each of these crash sets contains."""
        found = np.empty((len(which), truth.shape[1]), dtype=bool)
        homes = np.searchsorted(self._starts, which, side="right") - 1
        for number, block in enumerate(self.blocks):
            here = np.nonzero(homes == number)[0]
            if len(here):
                found[here] = block.take(which[here] - self._starts[number]).inside(truth)
        return found

    def parts(self, number: int) -> list[list[int]]:
        """The conditions of one crash set: one list for each of the conjunctions that it is the union of."""
        home = int(np.searchsorted(self._starts, number, side="right")) - 1
        parts = [part[number - self._starts[home]] for part in self.blocks[home].parts]
        distinct = dict.fromkeys(tuple(int(condition) for condition in part if condition) for part in parts)
        return [list(part) for part in distinct]

    def alone(self) -> Iterator[tuple[int, Block]]:
        """The blocks that are plain conjunctions, with the number of their first crash set."""
        return ((int(start), block) for start, block in zip(self._starts, self.blocks, strict=False) if len(block.parts) == 1)


class Partition:
    """Crash sets that agree on every cell that was looked at are one group: likelihoods are needed once a group only.

    `group` (H,), `inside` (G, K): grown by one cell at a time, so that a decision pays for the last answer only."""

    def __init__(self, size: int) -> None:
        self.group: npt.NDArray[np.int32] = np.zeros(size, dtype=np.int32)
        self.inside: Bools = np.zeros((1, 0), dtype=bool)

    def split(self, column: Bools) -> Partition:
        """The partition after one more cell: `column` (H,)."""
        code = self.group * 2 + column
        used = np.bincount(code, minlength=2 * len(self.inside)) > 0
        kept = np.nonzero(used)[0]
        grown = Partition(0)
        grown.group = (np.cumsum(used, dtype=np.int32) - 1)[code]
        grown.inside = np.hstack([self.inside[kept // 2], (kept % 2 == 1)[:, None]])
        return grown
