"""What the answers say of every crash set: exact Bayes over the hypotheses of `space.py`, and an open world beside them.

Inside the crash set a run dies with one unknown rate p, outside with a small background rate q; both are integrated over
their priors.  Only deaths of the main signature are deaths; another death says nothing, since one fault may show two faces.
A run that was cut short after step s (our limit, an interrupt, a shorter run that was asked for) has survived what had killed
before step s so far: it counts as 1 - p F(s), where F is the share of deaths that came earlier.  That needs no hazard shape:
it holds for a fixed step, a leak or a constant rate.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

import numpy as np

from matrix.records import Cell, Outcome, Trial, Value
from matrix.search.grid import Key
from matrix.search.ledger import Ledger, signature_of
from matrix.search.space import Floats, Ints, Space

# p: the Jeffreys prior (flat on these points), and a share of crashes that come every time: most native ones do.
RATES = np.append(np.sin((np.arange(24) + 0.5) * np.pi / 48) ** 2, 0.9995)
LOG_RATES = np.log(np.append(np.full(24, 0.5 / 24), 0.5))
BACKGROUND = np.array([1e-9, 0.003, 0.01, 0.04])  # of q: mostly, nothing dies like this outside
LOG_BACKGROUND = np.log([0.85, 0.05, 0.05, 0.05])
OPEN = 0.02  # prior of a crash set that is not among the hypotheses: every cell for itself
SHARES = np.array([0.2, 0.5, 0.8])  # of cells that die in the open world
REPORTED = 0.05  # chance that a death people reported was another failure than the one that is looked for
FROZEN = 0.9  # of the best crash set: from here on it is what fresh runs must show, and runs are verification runs
TOP = 64  # hypotheses looked at one by one


class Belief:
    """The posterior after the answers of one moment.

    `weights` (H,) and `open` sum to 1; `p`, `q` (H,) are the mean rates inside and outside under each hypothesis."""

    def __init__(self, space: Space, ledger: Ledger, confidence: float) -> None:
        self.space, self.confidence = space, confidence
        self._dying: dict[Key, float] = {}
        self.cut = Cut(ledger)
        self._cells, self._inner, self._outer = _likelihoods(ledger, self.cut)
        columns = [space.column(cell) for cell in self._cells.values()]
        inside = np.stack(columns, axis=1).astype(np.float64) if columns else np.zeros((len(space.parts), 0))
        inner, by_rate = _integrate(inside @ self._inner, LOG_RATES)
        outer, by_background = _integrate((1 - inside) @ self._outer, LOG_BACKGROUND)
        self.p, self.q = by_rate @ RATES, by_background @ BACKGROUND
        logs = space.log_prior + np.log1p(-OPEN) + inner + outer + _reported(space)
        log_open = np.log(OPEN) + self._open_world() + _reported_open(space)
        highest = max(logs.max(), log_open)
        weights = np.exp(logs - highest)
        whole = weights.sum() + np.exp(log_open - highest)
        self.weights: Floats = weights / whole
        self.open = float(np.exp(log_open - highest) / whole)
        count = min(TOP, len(weights))
        top = np.argpartition(-self.weights, count - 1)[:count]
        self.top: Ints = top[np.lexsort((top, -self.weights[top]))]
        self.best = int(self.top[0])
        same = (space.over_pool(self.top) == space.over_pool(self.top[:1])).all(axis=1)
        self.mass = float(self.weights[self.top][same].sum())  # of the best crash set, over what can be run

    @property
    def decided(self) -> bool:
        return self.mass >= self.confidence

    @property
    def frozen(self) -> bool:
        return self.mass >= min(FROZEN, self.confidence)

    @property
    def outside(self) -> bool:
        """Whether the truth is more likely none of the hypotheses: then they must not be used."""
        return self.open > 0.5

    # -------------------------------------------------------------- cells
    def dies(self, cell: Mapping[str, Value]) -> float:
        """Probability that a cell is in the crash set."""
        key = self.space.grid.key(cell)
        if key not in self._dying:
            self._dying[key] = float(self.weights[self.space.column(cell)].sum()) + self.open * self._open_dies(key)
        return self._dying[key]

    def best_contains(self, cell: Mapping[str, Value]) -> bool:
        return bool(self.space.column(cell)[self.best])

    def agrees(self, claims: Mapping[Key, bool], cells: Mapping[Key, Cell]) -> float:
        """Probability that every one of these cells dies, or does not, as claimed; the open world agrees with nothing."""
        right = np.ones(len(self.weights), dtype=bool)
        for key, claim in claims.items():
            right &= self.space.column(cells[key]) == claim
        return float(self.weights @ right)

    # -------------------------------------------------------------- the open world
    def _open_world(self) -> float:
        """Log likelihood when each cell dies or not by a coin of its own; the known-bad one dies."""
        if not self._cells:
            return 0.0
        inner, outer = self._inner[:, :, None, None], self._outer[:, None, :, None]  # (K, p, q, share)
        dying, alive = inner + np.log(SHARES), outer + np.log1p(-SHARES)
        each = np.logaddexp(dying, alive)
        bad = [key == self.space.grid.key(self.space.grid.known_bad) for key in self._cells]
        each[bad] = np.broadcast_to(inner, each.shape)[bad]
        total = each.sum(axis=0) + LOG_RATES[:, None, None] + LOG_BACKGROUND[None, :, None] - np.log(len(SHARES))
        highest = total.max()
        weights = np.exp(total - highest)
        self._open_share = float((weights.sum(axis=(0, 1)) @ SHARES) / weights.sum())
        chance = np.exp(dying - each) * weights
        self._open_cells = dict(zip(self._cells, chance.sum(axis=(1, 2, 3)) / weights.sum(), strict=True))
        self._open_cells[self.space.grid.key(self.space.grid.known_bad)] = 1.0
        return float(highest + np.log(weights.sum()))

    def _open_dies(self, key: Key) -> float:
        return float(self._open_cells.get(key, self._open_share)) if self._cells else 0.5

    # -------------------------------------------------------------- words
    def leading(self, count: int = 2) -> list[tuple[str, float]]:
        """The likeliest hypotheses in words, with their probability."""
        return [(self.space.describe(int(number)), float(self.weights[number])) for number in self.top[:count]]


class Cut:
    """F(s): how much of a deadly run a run that was cut short at step s has stood."""

    def __init__(self, ledger: Ledger) -> None:
        main = ledger.main_signature()
        deaths = (o for _, o in ledger.entries() if o.kind == "died" and signature_of(o) == main)
        self._steps = sorted(o.steps for o in deaths if o.steps is not None)

    def stood(self, steps: int | None) -> float:
        return bisect_left(self._steps, steps) / (len(self._steps) + 1) if steps is not None else 0.0


def _likelihoods(ledger: Ledger, cut: Cut) -> tuple[dict[Key, Cell], Floats, Floats]:
    """The cells with answers (K), and the log likelihood of each one's answers by p, (K, p), and by q, (K, q)."""
    main, cells = ledger.main_signature(), dict[Key, Cell]()
    inner, outer = dict[Key, Floats](), dict[Key, Floats]()
    for trial, outcome in ledger.entries():
        if outcome.kind == "unavailable":
            continue
        key = ledger.grid.key(trial.cell)
        cells.setdefault(key, trial.cell)
        inner[key] = inner.get(key, 0.0) + _log(trial, outcome, main, cut, RATES)
        outer[key] = outer.get(key, 0.0) + _log(trial, outcome, main, cut, BACKGROUND)
    if not cells:
        return cells, np.zeros((0, len(RATES))), np.zeros((0, len(BACKGROUND)))
    return cells, np.stack(list(inner.values())), np.stack(list(outer.values()))


def _log(trial: Trial, outcome: Outcome, main: str | None, cut: Cut, rates: Floats) -> Floats:
    """Log likelihood of one answer by the rate."""
    if outcome.kind == "died":
        died: Floats = np.log(rates) if signature_of(outcome) == main else np.zeros(len(rates))
        return died
    whole = outcome.kind == "survived" and trial.max_steps is None
    lived: Floats = np.log1p(-rates * (1.0 if whole else cut.stood(outcome.steps)))
    return lived


def _integrate(logs: Floats, log_prior: Floats) -> tuple[Floats, Floats]:
    """Of log likelihoods (H, rates): the log of their mean under the prior, (H,), and the posterior of the rates, (H, rates)."""
    joint = logs + log_prior
    highest = joint.max(axis=1)
    weights = np.exp(joint - highest[:, None])
    total = weights.sum(axis=1)
    return highest + np.log(total), weights / total[:, None]


def _reported(space: Space) -> Floats:
    """What people have seen themselves says which cells die, and nothing about how often."""
    logs = np.zeros(len(space.parts))
    for seen in space.grid.spec.observed:
        column = space.column({**space.grid.known_bad, **seen.cell})
        logs += np.where(column, 0.0, np.log(REPORTED)) if seen.died else np.where(column, np.log(0.5), 0.0)
    return logs


def _reported_open(space: Space) -> float:
    return float(len(space.grid.spec.observed) * np.log(0.6))
