"""Which run teaches most for its time: the expected information about the crash set, in bits per expected second."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from matrix.records import Cell, Purpose, Trial
from matrix.search.decode import NEUTRAL, View
from matrix.search.grid import SLOW_KINDS, Change
from matrix.search.hypotheses import Bools, Floats, Ints
from matrix.search.ledger import Ledger, signature_of
from matrix.search.lengths import Length, lengths
from matrix.search.posterior import BACKGROUND, RATES, Belief
from matrix.search.space import Space
from matrix.search.want import Step, Want
from matrix.search.words import changed

LEADING = 400  # hypotheses that the choice looks at
BRANCHES = 3  # outstanding runs whose answers are all considered
GAIN = 1.05  # how much better another length than the natural one must be: a natural end shows more than steps
CHEAPEST = 0.5  # of the seconds of the other ending: however quick a crash is, each run is one of max_runs, and has to be read
PRICE = 1.0  # times the seconds of a natural run, where a length can be chosen: a run is one of max_runs, and has to be read
BUILD_S = 60.0  # to build an environment: nobody knows before the first
LEAST_BITS = 0.001  # a run that is expected to teach less is not worth asking
ENOUGH = 0.5  # of the bits of the most instructive run: a run that is needed anyway, and tells so much, comes before it
STREAK = 10  # survivals in a row after which the known-bad cell is run again
ECLIPSED = 3  # deaths of another kind beside a single one of the main kind; runs of the known-bad cell that may be spent on that
NEVER_STARTS = 6  # unavailable answers in a row after which nothing more is asked


def step(view: View, belief: Belief, purpose: Purpose) -> Step:
    """The most instructive run, considering those that are outstanding."""
    if _nothing_starts(view.ledger):
        return None
    if _doubtful(view):
        why = f"Nothing has died in {STREAK} runs or more: does the known-bad cell still die?"
        return Want(cell=view.grid.known_bad, purpose=purpose, why=why)
    if _eclipsed(view):
        why = "Only the first run died like this, and others die in another way: which of the two does the known-bad cell do again?"
        return Want(cell=view.grid.known_bad, purpose=purpose, why=why)
    outstanding = [trial for trial in view.ledger.pending.values() if trial.purpose != "control" and not trial.probes]
    candidate = _best(view, belief, outstanding, doubted=belief.clear or belief.doubted)
    if candidate is None:
        return "wait" if outstanding else None
    cell, length, dying, score = candidate
    return Want(cell=cell, purpose=purpose, max_steps=length, why=_why(view, cell, length, dying), bits_per_s=score)


def elsewhere(view: View, belief: Belief) -> tuple[Cell, int | None] | None:
    """The cell that was never run, and the length, which tell most of whether the leading crash set is right; None: no cell tells."""
    pending = [trial for trial in view.ledger.pending.values() if not trial.probes]
    found = _best(view, belief, pending, doubted=True, new=True)
    return found and found[:2]


def _best(
    view: View, belief: Belief, outstanding: Sequence[Trial], *, doubted: bool, new: bool = False
) -> tuple[Cell, int | None, float, float] | None:
    """The cell and length that teach most for their time, P(it dies), and the bits per second.

    `doubted`: one crash set leads, and the question is only whether it is the right one; `new`: of cells that were never run."""
    order, weights = _leading(belief)
    inside = belief.over_pool(order).astype(np.float64)
    share, branches = _branches(belief, order, weights, [trial.cell for trial in outstanding])  # (B,), (B, H)
    worth, extra_s = _useful(view, belief.space) * belief.space.worth, _building_s(view, belief.space)
    opened = np.array([belief.dies_if_open(cell) for cell in belief.space.pool]) if doubted else None
    if doubted:
        worth = np.where(_among(belief.space, [trial.cell for trial in outstanding]), 0.0, worth)
    if new:
        worth = np.where(_among(belief.space, view.ledger.cells()), 0.0, worth)
    best, found = 0.0, None  # bits per second with runs that are not too cheap; the answer
    possible = lengths_of(view, belief)
    price_s = PRICE * possible[0].survived_s if len(possible) > 1 else 0.0
    for length in possible:
        p, q = (by @ deadly for by, deadly in ((belief.by_rate, length.deadly), (belief.by_background, length.background)))
        p, q = p[belief.group[order]], q[belief.group[order]]
        bits, dying = _bits(p, q, share, branches, inside) if opened is None else _doubt(belief, order, p, q, inside, opened)
        died_s, survived_s = max(length.died_s, CHEAPEST * length.survived_s), max(length.survived_s, CHEAPEST * length.died_s)
        score = bits * worth / (survived_s + dying * (died_s - survived_s) + extra_s + price_s)
        score = np.round(np.where(bits * worth >= LEAST_BITS, score, 0.0), 9)
        place = int(np.argmax(score))
        if score[place] > best * (1.0 if found is None else GAIN):
            best, dies = float(score[place]), float(dying[place])
            real_s = length.survived_s + dies * (length.died_s - length.survived_s) + float(extra_s[place])
            found = belief.space.pool[place], length.max_steps, dies, float(bits[place]) / real_s
    return found


def most_telling(view: View, belief: Belief, wants: Sequence[Want]) -> Want:
    """Of runs that are all needed the one that tells most; another one, where that tells far more than any of these."""
    bits, other = _telling(belief, [want.cell for want in wants]), step(view, belief, "verify")
    if isinstance(other, Want) and bits.max() < ENOUGH * _telling(belief, [other.cell])[0]:
        return other
    return wants[int(np.argmax(np.round(bits, 9)))]


def _telling(belief: Belief, cells: Sequence[Cell]) -> Floats:
    """Bits about the crash set of a natural run of each cell."""
    order, weights = _leading(belief)
    inside = np.stack([belief.column(cell)[order] for cell in cells], axis=1).astype(np.float64)
    p, q = (by @ rates for by, rates in ((belief.by_rate, RATES), (belief.by_background, BACKGROUND)))
    return _bits(p[belief.group[order]], q[belief.group[order]], np.ones(1), weights[None, :], inside)[0]


def _leading(belief: Belief) -> tuple[Ints, Floats]:
    """The hypotheses that are looked at, and their weights, which sum to 1."""
    order = belief.leaders(LEADING)
    weights: Floats = belief.weights[order] / belief.weights[order].sum()
    return order, weights


def lengths_of(view: View, belief: Belief) -> list[Length]:
    """What a run may be asked for, the natural length first."""
    if belief.lengths is None:
        likely = belief.by_rate[belief.group[belief.best]]
        belief.lengths = lengths(view.grid.spec, belief.hazard, run_seconds(view.ledger), (RATES, BACKGROUND), likely)
    return belief.lengths


def whole_lengths(view: View, belief: Belief) -> list[Length]:
    """Of these the natural one and longer ones: a shorter run shows no natural end."""
    natural, *others = lengths_of(view, belief)
    return [natural, *(each for each in others if each.max_steps and each.max_steps > (belief.hazard.natural or 0))]


def _bits(p: Floats, q: Floats, share: Floats, branches: Floats, inside: Floats) -> tuple[Floats, Floats]:
    """Of every cell of the pool, (C,): bits about the crash set beyond what the outstanding runs will tell, and P(it dies)."""
    columns = [branches * (p - q), branches * (_entropy(p) - _entropy(q))]
    moved = np.concatenate(columns) @ inside  # (2 B, C)
    count = len(share)
    dying = moved[:count] + (branches @ q)[:, None]
    noise = moved[count:] + (branches @ _entropy(q))[:, None]
    bits: Floats = share @ (_entropy(dying) - noise)
    return bits, share @ dying


def _doubt(belief: Belief, order: Ints, p: Floats, q: Floats, inside: Floats, opened: Floats) -> tuple[Floats, Floats]:
    """Of every cell of the pool, (C,): bits about whether the leading crash set is right, against all others and the open world taken
    as one, in which these cells die with the chance `opened`; and P(it dies)."""
    weights, same = belief.wary[order], (inside == inside[0]).all(axis=1)
    dying = q[:, None] + inside * (p - q)[:, None]
    best = weights[same] @ dying[same] / weights[same].sum()
    others = weights[~same] @ dying[~same] + belief.open * (q[0] + opened * (p[0] - q[0]))
    rest = weights[~same].sum() + belief.open
    share = weights[same].sum() / (weights[same].sum() + rest)
    chance = share * best + (1 - share) * others / rest
    bits: Floats = _entropy(chance) - share * _entropy(best) - (1 - share) * _entropy(others / rest)
    return bits, chance


def _among(space: Space, cells: Sequence[Cell]) -> Bools:
    """(C,): which cells of the pool these are."""
    found = np.zeros(len(space.pool), dtype=bool)
    for cell in cells:
        found[space.number(cell)] = True
    return found


def _building_s(view: View, space: Space) -> Floats:
    """(C,): seconds to build what a cell needs and no run has needed yet, so that runs of one environment come together."""
    slow = [name for name, axis in view.grid.axes.items() if axis.kind in SLOW_KINDS]
    if not slow:
        return np.zeros(len(space.pool))
    cells = [*view.ledger.cells(), *(trial.cell for trial in view.ledger.pending.values())]
    built = {tuple(cell[name] for name in slow) for cell in cells}
    return np.array([0.0 if tuple(cell[name] for name in slow) in built else BUILD_S for cell in space.pool])


def _branches(belief: Belief, order: Ints, weights: Floats, open_cells: Sequence[Cell]) -> tuple[Floats, Floats]:
    """The possible answers of the outstanding runs: how likely each is, (B,), and the weights that it would leave, (B, H)."""
    share, branches = np.ones(1), weights[None, :]
    for cell in open_cells[-BRANCHES:]:
        column: Bools = belief.column(cell)[order]
        chance = np.where(column, belief.p[order], 0.0)
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


def run_seconds(ledger: Ledger) -> tuple[float, float]:
    """Mean seconds of a run that survives, and of one that dies: a crash is often the cheaper answer.  Alike until both were seen."""
    times: dict[str, list[float]] = {"survived": [], "died": []}
    for _, outcome in ledger.entries():
        if outcome.kind in times and outcome.seconds > 0:
            times[outcome.kind].append(outcome.seconds)
    if not times["survived"] or not times["died"]:
        return 1.0, 1.0
    return (sum(times["survived"]) / len(times["survived"]), sum(times["died"]) / len(times["died"]))


def _useful(view: View, space: Space) -> Floats:
    """Of every cell of the pool: the chance that a run of it gives an answer, from what runs with the same values, and the same pairs
    of values, gave; 0: given up."""
    chance, entries = np.ones(len(space.pool)), view.ledger.entries()
    if all(outcome.kind in ("survived", "died") for _, outcome in entries) and not view.ledger.other_signatures():
        return chance
    answered, useless, refused = Counter[frozenset[Change]](), Counter[frozenset[Change]](), list[set[Change]]()
    for trial, outcome in entries:
        if outcome.kind == "unavailable":
            refused.append(set(trial.cell.items()))
        elif outcome.kind == "survived" or (outcome.kind == "died" and signature_of(outcome) == view.ledger.main_signature()):
            answered.update(_values(trial.cell))
        else:
            useless.update(_values(trial.cell))
    for values, count in useless.items():
        if count > 1 or len(values) == 1:
            given_up = count > NEUTRAL and not answered[values]
            rate = 0.0 if given_up else (answered[values] + 1) / (answered[values] + count + 1)
            np.minimum(chance, rate, out=chance, where=np.logical_and.reduce([space.having(value) for value in values]))
    for refusing in refused:  # one value that never gave an answer is to blame; of several, nobody knows which
        unknown = [value for value in refusing if not answered[frozenset([value])]]
        if len(unknown) == 1:
            chance[space.having(unknown[0])] = 0.0
    for cell in view.ledger.cells():
        tally = view.ledger.tally(cell)
        if tally.unavailable or (tally.neutral >= NEUTRAL and tally.neutral > tally.survivals + tally.deaths):
            chance[space.number(cell)] = 0.0
    return chance


def _values(cell: Cell) -> Iterator[frozenset[Change]]:
    """The values of a cell, alone and in pairs."""
    return (frozenset(values) for size in (1, 2) for values in itertools.combinations(cell.items(), size))


def _nothing_starts(ledger: Ledger) -> bool:
    last = [outcome.kind for _, outcome in ledger.entries()[-NEVER_STARTS:]]
    return len(last) == NEVER_STARTS and all(kind == "unavailable" for kind in last)


def _doubtful(view: View) -> bool:
    """Whether only survivals have come for so long that the crash may be gone, or its conditions may be none of the hypotheses."""
    kinds = [outcome.kind for _, outcome in view.ledger.entries()]
    streak = next((number for number, kind in enumerate(reversed(kinds)) if kind != "survived"), 0)
    return streak > 0 and streak % STREAK == 0 and not view.ledger.pending


def _eclipsed(view: View) -> bool:
    """Whether the one death that is looked for may have been the accident, and what others die of the failure."""
    counts, bad = view.ledger.deaths(), view.ledger.tally(view.grid.known_bad)
    main = view.ledger.main_signature()
    most = max((count for signature, count in counts.items() if signature != main), default=0)
    again = bad.deaths + bad.survivals + bad.neutral < ECLIPSED
    return main is not None and counts[main] == 1 and most >= ECLIPSED and again and not view.ledger.pending


def _why(view: View, cell: Cell, length: int | None, dying: float) -> str:
    changes, within = view.grid.changes(cell), f" within {length} steps" if length else ""
    if not changes:
        return f"The known-bad cell once more: how often it dies{within} ({dying:.0%}?) decides what survivals are worth."
    return f"Does it still die with {changed(changes)}{within}?  A chance of {dying:.0%} so far; the answer rules out most for its time."
