"""Crash sets beyond those that can be listed: longer conjunctions, more unions, and conjunctions with a corner cut off, grown from
the leading ones.

Only looked at when the answers fit none of the listed ones well.  What is grown depends on the answers alone, not on what was
grown before, so that a search can be rebuilt from its log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from matrix.search.hypotheses import Block, Bools, Floats, Hypotheses, Ints, Short
from matrix.search.space import ORDERS, TWO_CAUSES, Space

WIDTH = 100  # conjunctions that are made longer
CAUSES = 80  # conjunctions that unions are made of
LEFT = 0.02  # of the prior: what the unions that are not listed share
CORNERS = 0.05  # of the prior of a conjunction: what those with a corner cut off share; whatever adds up, or fills something up, has one
BASES, CORNERED = 50, 150  # conjunctions that are tried, and crash sets that are kept, for each number of conditions

Score = Callable[[Bools], Floats]  # log likelihood (N,) of crash sets that say (N, K) of the cells with answers


def grown(space: Space, logs: Floats, truth: Bools, score: Score, survivals: Floats, died: Bools) -> Hypotheses | None:
    """What the listed hypotheses lack.  `logs` (H,): their log posterior; `truth` (L, K): the cells with answers; `survivals` (K,):
    what containing a cell costs, as far as it survived; `died` (K,): the cells in which it was seen."""
    blocks = [*_longer(space, logs, truth, score), *_unions(space, truth, survivals), *_cornered(space, truth, survivals, died)]
    blocks = [block for block in blocks if len(block)]
    return Hypotheses(blocks) if blocks else None


def _longer(space: Space, logs: Floats, truth: Bools, score: Score) -> list[Block]:
    """Conjunctions of the orders that are not listed, each from the leading ones that are shorter by one."""
    listed = {block.parts[0].shape[1]: (start, block) for start, block in space.hypotheses.alone()}
    found, leading = list[Block](), None
    for order in sorted(ORDERS):
        if order in listed:
            start, block = listed[order]
            leading = _best(block, logs[start : start + len(block)])
        elif leading is not None and order <= len(space.plain):
            block = _extended(space, leading, order)
            if not len(block):
                break
            leading = _best(block, block.log_prior + score(block.inside(truth)))
            found.append(leading)
    return found


def _best(block: Block, logs: Floats) -> Block:
    if len(block) <= WIDTH:
        return block
    top: Ints = np.sort(np.argpartition(-logs, WIDTH)[:WIDTH])
    return block.take(top)


def _extended(space: Space, block: Block, order: int) -> Block:
    """Every one of these with one more plain condition on an axis that it lacks; the prior as if all of this order were listed."""
    part = block.parts[0]
    plain = np.array([number for axis in space.plain for number, _ in axis], dtype=np.int16)
    longer = np.hstack([np.repeat(part, len(plain), axis=0), np.tile(plain, len(part))[:, None]])
    axes = space.axis_of[longer]
    longer = np.sort(longer[(axes[:, :-1] != axes[:, -1:]).all(axis=1)], axis=1)
    unique: Short = np.unique(longer, axis=0) if len(longer) else longer
    return Block(parts=(unique,), log_prior=_log_prior(space, unique, order))


def _log_prior(space: Space, part: Short, order: int) -> Floats:
    """The prior's share of the order, spread over the choices of axes by their weight, times the shares of the conditions."""
    ways = [1.0] + [0.0] * order  # of choosing axes, weighed: an elementary symmetric polynomial
    for weight in space.weights:
        for size in range(order, 0, -1):
            ways[size] += ways[size - 1] * float(weight)
    chosen = space.weights[space.axis_of[part]].prod(axis=1)
    found: Floats = np.log(space.orders[order] * chosen / ways[order] * space.share[part].prod(axis=1))
    return found


def _unions(space: Space, truth: Bools, survivals: Floats) -> list[Block]:
    """Two causes of at most two conditions each: of those whose cells have survived least."""
    listed = {tuple(part.shape[1] for part in block.parts) for block in space.hypotheses.blocks if len(block.parts) > 1}
    missing = [orders for orders in TWO_CAUSES if orders not in listed]
    causes = {
        block.parts[0].shape[1]: _best_causes(block, truth, survivals)
        for _, block in space.hypotheses.alone()
        if block.parts[0].shape[1] in (1, 2)
    }
    return [
        _union(space, causes[left], causes[right], LEFT / len(missing)) for left, right in missing if left in causes and right in causes
    ]


def _best_causes(block: Block, truth: Bools, survivals: Floats) -> Block:
    return block.take(np.sort(_by_survivals(block, truth, survivals)[:CAUSES]))


def _by_survivals(block: Block, truth: Bools, survivals: Floats) -> Ints:
    """The numbers of its crash sets: first those that are likely and whose cells have survived least."""
    order: Ints = np.argsort(-(block.log_prior + block.inside(truth) @ survivals), kind="stable")
    return order


def _union(space: Space, one: Block, two: Block, share: float) -> Block:
    rows, columns = np.divmod(np.arange(len(one) * len(two)), len(two))
    left, right = one.parts[0][rows], two.parts[0][columns]
    apart = (space.axis_of[left][:, :, None] != space.axis_of[right][:, None, :]).all(axis=(1, 2))
    if left.shape[1] == right.shape[1]:
        apart &= rows < columns
    prior = one.log_prior[rows] + two.log_prior[columns]
    return Block(parts=(left[apart], right[apart]), log_prior=prior[apart] + np.log(share))


def _cornered(space: Space, truth: Bools, survivals: Floats, died: Bools) -> Iterator[Block]:
    """Conjunctions of at most three conditions, which all deaths satisfy, in which two further axes trade off."""
    inside = space.corners.inside(truth)  # (P, K)
    kept = np.nonzero(inside[:, died].all(axis=1))[0]
    for block in [block for _, block in space.hypotheses.alone() if block.parts[0].shape[1] < max(ORDERS) - 1]:
        base = _best_bases(block, truth, survivals, died)
        if not len(base) or not len(kept):
            continue
        part = base.parts[0]
        logs = base.log_prior[:, None] + (base.inside(truth) * survivals) @ inside[kept].T  # (N, P')
        taken = (space.axis_of[part][:, :, None, None] == space.corners.axes[kept]).any(axis=(1, 3))  # (N, P'): the axes overlap
        logs[taken] = -np.inf
        every = logs.ravel()
        best = np.sort(np.argpartition(-every, CORNERED)[:CORNERED]) if len(every) > CORNERED else np.arange(len(every))
        rows, columns = np.divmod(best[np.isfinite(every[best])], len(kept))
        parts = tuple(np.hstack([part[rows], step[kept[columns]]]) for step in space.corners.steps)
        yield Block(parts=parts, log_prior=base.log_prior[rows] + np.log(CORNERS / len(inside)))


def _best_bases(block: Block, truth: Bools, survivals: Floats, died: Bools) -> Block:
    able = block.take(np.nonzero(block.inside(truth[:, died]).all(axis=1))[0])
    return able.take(_by_survivals(able, truth, survivals)[:BASES])
