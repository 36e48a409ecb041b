"""Which run teaches most for its time: the expected information about the crash set, in bits per expected second."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from matrix.records import Cell, Purpose
from matrix.search.decode import NEUTRAL, View
from matrix.search.grid import Change
from matrix.search.ledger import Ledger, signature_of
from matrix.search.posterior import Belief
from matrix.search.space import Bools, Floats, Space
from matrix.search.want import Step, Want
from matrix.search.words import changed

LEADING = 400  # hypotheses that the choice looks at
BRANCHES = 3  # outstanding runs whose answers are all considered
LEAST_BITS = 0.001  # a run that is expected to teach less is not worth asking
STREAK = 10  # survivals in a row after which the known-bad cell is run again
NEVER_STARTS = 6  # unavailable answers in a row after which nothing more is asked


def step(view: View, belief: Belief, purpose: Purpose) -> Step:
    """The most instructive run, considering those that are outstanding."""
    if _nothing_starts(view.ledger):
        return None
    if _doubtful(view):
        why = f"Nothing has died in {STREAK} runs or more: does the known-bad cell still die?"
        return Want(cell=view.grid.known_bad, purpose=purpose, why=why)
    open_cells = [trial.cell for trial in view.ledger.pending.values() if trial.purpose != "control" and not trial.probes]
    bits, dying = _bits(belief, open_cells)
    bits = bits * _useful(view, belief.space)
    survived_s, died_s = _seconds(view.ledger)
    score = bits * belief.space.worth / (survived_s + dying * (died_s - survived_s))
    score = np.where(bits >= LEAST_BITS, score, 0.0)
    best = int(np.argmax(np.round(score, 9)))
    if score[best] <= 0.0:
        return "wait" if open_cells else None
    return Want(cell=belief.space.pool[best], purpose=purpose, why=_why(view, belief.space.pool[best], float(dying[best])))


def _bits(belief: Belief, open_cells: Sequence[Cell]) -> tuple[Floats, Floats]:
    """Of every cell of the pool, (C,): bits about the crash set beyond what the outstanding runs will tell, and P(it dies)."""
    order = np.argsort(-belief.weights, kind="stable")[:LEADING] if len(belief.weights) > LEADING else np.arange(len(belief.weights))
    weights = belief.weights[order] / belief.weights[order].sum()
    p, q = belief.p[order], belief.q[order]
    inside = belief.space.over_pool(order)
    share, branches = _branches(belief, order, weights, open_cells)  # (B,), (B, H)
    columns = [branches * (p - q), branches * (_entropy(p) - _entropy(q))]
    moved = np.concatenate(columns) @ inside.astype(np.float64)  # (2 B, C)
    count = len(share)
    dying = moved[:count] + (branches @ q)[:, None]
    noise = moved[count:] + (branches @ _entropy(q))[:, None]
    bits: Floats = share @ (_entropy(dying) - noise)
    return bits, share @ dying


def _branches(belief: Belief, order: np.typing.NDArray[np.int64], weights: Floats, open_cells: Sequence[Cell]) -> tuple[Floats, Floats]:
    """The possible answers of the outstanding runs: how likely each is, (B,), and the weights that it would leave, (B, H)."""
    share, branches = np.ones(1), weights[None, :]
    for cell in open_cells[-BRANCHES:]:
        column: Bools = belief.space.column(cell)[order]
        chance = np.where(column, belief.p[order], belief.q[order])
        each = np.concatenate([branches * chance, branches * (1 - chance)])
        totals = each.sum(axis=1)
        share = np.concatenate([share, share]) * totals
        branches = each / totals[:, None]
    return share, branches


def _entropy(chance: Floats) -> Floats:
    """Of a coin, in bits."""
    safe = np.clip(chance, 1e-12, 1 - 1e-12)
    bits: Floats = -(safe * np.log2(safe) + (1 - safe) * np.log2(1 - safe))
    return bits


def _seconds(ledger: Ledger) -> tuple[float, float]:
    """Mean seconds of a run that survives, and of one that dies: a crash is often the cheaper answer.  Alike until both were seen."""
    times: dict[str, list[float]] = {"survived": [], "died": []}
    for _, outcome in ledger.entries():
        if outcome.kind in times and outcome.seconds > 0:
            times[outcome.kind].append(outcome.seconds)
    if not times["survived"] or not times["died"]:
        return 1.0, 1.0
    return (sum(times["survived"]) / len(times["survived"]), sum(times["died"]) / len(times["died"]))


def _useful(view: View, space: Space) -> Floats:
    """Of every cell of the pool: the chance that a run of it gives an answer, from what runs with the same values gave; 0: given up."""
    answered, useless, refused = Counter[Change](), Counter[Change](), list[set[Change]]()
    for trial, outcome in view.ledger.entries():
        values = set(trial.cell.items())
        if outcome.kind == "unavailable":
            refused.append(values)
        elif outcome.kind == "survived" or (outcome.kind == "died" and signature_of(outcome) == view.ledger.main_signature()):
            answered.update(values)
        else:
            useless.update(values)
    chance = np.ones(len(space.pool))
    for value in useless:
        rate = (answered[value] + 1) / (answered[value] + useless[value] + 1)
        given_up = useless[value] > NEUTRAL and not answered[value]
        np.minimum(chance, 0.0 if given_up else rate, out=chance, where=space.having(value))
    for values in refused:  # one value that never gave an answer is to blame; of several, nobody knows which
        unknown = [value for value in values if not answered[value]]
        if len(unknown) == 1:
            chance[space.having(unknown[0])] = 0.0
    for cell in view.ledger.cells():
        tally = view.ledger.tally(cell)
        if tally.unavailable or (tally.neutral >= NEUTRAL and tally.neutral > tally.survivals + tally.deaths):
            chance[space.number(cell)] = 0.0
    return chance


def _nothing_starts(ledger: Ledger) -> bool:
    last = [outcome.kind for _, outcome in ledger.entries()[-NEVER_STARTS:]]
    return len(last) == NEVER_STARTS and all(kind == "unavailable" for kind in last)


def _doubtful(view: View) -> bool:
    """Whether only survivals have come for so long that the crash may be gone, or its conditions may be none of the hypotheses."""
    kinds = [outcome.kind for _, outcome in view.ledger.entries()]
    streak = next((number for number, kind in enumerate(reversed(kinds)) if kind != "survived"), 0)
    return streak > 0 and streak % STREAK == 0 and not view.ledger.pending


def _why(view: View, cell: Cell, dying: float) -> str:
    changes = view.grid.changes(cell)
    if not changes:
        return f"The known-bad cell once more: how often it dies ({dying:.0%}?) decides what survivals are worth."
    return f"Does it still die with {changed(changes)}?  A chance of {dying:.0%} so far; the answer rules out most for its time."
