"""What the answers say of every crash set: exact Bayes over the hypotheses of `space.py`, and an open world beside them.

Inside the crash set a natural run dies with one unknown rate p, outside with a small background rate q; both are integrated over
their priors.  `hazard.py` says what a run of another length is worth.  Only deaths of the main signature are deaths; another death
says nothing, since one fault may show two faces.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping

import numpy as np

from matrix.records import Cell, Outcome, Trial, Value
from matrix.search import beam
from matrix.search.grid import Key
from matrix.search.hazard import Hazard
from matrix.search.hypotheses import Bools, Floats, Hypotheses, Ints
from matrix.search.ledger import Ledger, signature_of
from matrix.search.lengths import Length
from matrix.search.space import Space

# p: the Jeffreys prior (flat on these points), and a share of crashes that come every time: most native ones do, and those that
# come at a fixed step or time all the more.
RATES = np.append(np.sin((np.arange(24) + 0.5) * np.pi / 48) ** 2, 0.9995)
ALWAYS, ALWAYS_FIXED = 0.75, 0.98
WARY = 0.5  # the same share for one who has seen races, in whose first call they have a step as well; see Search.expect_every_time
BACKGROUND = np.array([1e-9, 0.003, 0.01, 0.04])  # of q: mostly, nothing dies like this outside
LOG_BACKGROUND = np.log([0.85, 0.05, 0.05, 0.05])
OPEN = 0.02  # prior of a crash set that is not among the hypotheses: every cell for itself
SHARES = np.array([0.2, 0.5, 0.8])  # of cells that die in the open world
REPORTED = 0.05  # chance that a death people reported was another failure than the one that is looked for
CLEAR = 0.9  # of the best crash set: from here on runs are chosen to bear it out, and no longer for what they teach
FROZEN, FROZEN_IF_RARE = CLEAR, 0.5  # of it: from here on it is what fresh runs must show; early where a crash takes many runs to show
LOST, LOST_IF_RARE = 0.5, 0.3  # below it the search is taken up again, and what was fresh no longer is
SURE = 0.05  # chance that a cell which dies survives a natural run: below it every run dies
TOP = 64  # hypotheses looked at one by one
UNEASY = 0.1  # probability of the open world from which longer conjunctions and more unions are looked at


class Belief:
    """The posterior after the answers of one moment.

    `weights` (H,) and `open` sum to 1; `group` (H,) says which rates a hypothesis has: `by_rate` (G, rates) is their posterior
    inside the crash set, `by_background` outside.  `wary` (H,) are the weights when another share of crashes comes every time
    (`WARY`, unless evidence from single deaths says more): what is confirmed must be likely by both, since a few deaths in a row may be
    luck."""

    def __init__(self, space: Space, ledger: Ledger, confidence: float, wary: float = WARY) -> None:
        self.space, self.confidence, self.ledger = space, confidence, ledger
        self._dying: dict[Key, float] = {}
        self.lengths: list[Length] | None = None  # kept by `choose`
        self.hazard = Hazard(ledger)
        self.log_rates = log_rates(ALWAYS + self.hazard.fixed * (ALWAYS_FIXED - ALWAYS))
        self._warier: Floats = np.exp(log_rates(wary) - self.log_rates)  # (rates,): how much likelier each rate is for who is wary
        self._cells = {ledger.grid.key(trial.cell): trial.cell for trial, outcome in ledger.entries() if outcome.kind != "unavailable"}
        self._inner, self._outer = self._likelihoods(ledger.entries())
        partition = space.partition(self._cells)
        self.group: Ints = partition.group.astype(np.int64)
        self._inside, self._prior = partition.inside, space.log_prior + np.log1p(-OPEN) + _reported(space, space.hypotheses)
        evidence, self.by_rate, self.by_background, self._doubts = self._integrated(partition.inside)
        logs = self._prior + evidence[self.group]
        log_open = np.log(OPEN) + self._open_world() + _reported_open(space)
        self.extra: Hypotheses | None = None
        if log_open - np.logaddexp(log_open, _log_sum(logs)) > np.log(UNEASY):
            logs = self._grow(logs)
        self._weigh(logs, log_open)

    def _likelihoods(self, entries: Iterable[tuple[Trial, Outcome]]) -> tuple[Floats, Floats]:
        """Log likelihood of the answers of each cell (K): by p, (K, p), and by q, (K, q)."""
        main, place = self.ledger.main_signature(), {key: number for number, key in enumerate(self._cells)}
        inner, outer = np.zeros((len(place), len(RATES))), np.zeros((len(place), len(BACKGROUND)))
        for trial, outcome in entries:
            if outcome.kind != "unavailable":
                number = place[self.ledger.grid.key(trial.cell)]
                inner[number] += _log(trial, outcome, main, self.hazard, RATES)
                outer[number] += _log(trial, outcome, main, self.hazard, BACKGROUND)
        return inner, outer

    def _integrated(self, inside: Bools) -> tuple[Floats, Floats, Floats, Floats]:
        """Log likelihood (G,) and the posteriors of both rates (G, …) of groups that say `inside` (G, K), and what the wary prior adds
        to the first."""
        told = inside.T.astype(np.float64)
        within, by_rate = _integrate(self._inner.T @ told, self.log_rates)
        beyond, by_background = _integrate(self._outer.T @ (1 - told), LOG_BACKGROUND)
        return within + beyond, by_rate.T, by_background.T, np.log(self._warier @ by_rate)

    def _evidence(self, inside: Bools, answers: tuple[Floats, Floats] | None = None) -> Floats:
        """The first of these alone.  `answers`: those of `_likelihoods`; None: all."""
        inner, outer = answers or (self._inner, self._outer)
        told = inside.T.astype(np.float64)
        within: Floats = _integrate(inner.T @ told, self.log_rates)[0]
        return within + _integrate(outer.T @ (1 - told), LOG_BACKGROUND)[0]

    def _grow(self, logs: Floats) -> Floats:
        """Add the hypotheses of `beam`: the log posteriors with theirs."""
        cells = list(self._cells.values())
        truth = (
            np.stack([self.space.truth(cell) for cell in cells], axis=1) if cells else np.zeros((len(self.space.conditions), 0), dtype=bool)
        )
        self.extra = beam.grown(self.space, logs, truth, self._evidence, self._survivals(truth), self._died())
        if self.extra is None:
            return logs
        inside = self.extra.rows(np.arange(len(self.extra)), truth)
        evidence, by_rate, by_background, doubts = self._integrated(inside)
        self.group = np.concatenate([self.group, len(self.by_rate) + np.arange(len(self.extra))])
        self.by_rate = np.concatenate([self.by_rate, by_rate])
        self.by_background = np.concatenate([self.by_background, by_background])
        self._doubts = np.concatenate([self._doubts, doubts])
        added = self.extra.log_prior + np.log1p(-OPEN) + _reported(self.space, self.extra)
        self._inside, self._prior = np.concatenate([self._inside, inside]), np.concatenate([self._prior, added])
        return np.concatenate([logs, added + evidence])

    def _survivals(self, truth: Bools) -> Floats:
        """(K,): what it costs a crash set, in log likelihood, to contain each cell, as far as survivals of it speak against that."""
        rate = float(np.exp(self.log_rates) @ RATES)
        weights = np.exp(self.log_rates) * RATES / rate  # of the rates, once something has died
        return np.minimum(0.0, np.log(np.exp(self._inner) @ weights)) if len(self._inner) else np.zeros(truth.shape[1])

    def _died(self) -> Bools:
        """(K,): the cells with a death of the main signature."""
        main = self.ledger.main_signature()
        dead = {self.ledger.grid.key(t.cell) for t, o in self.ledger.entries() if o.kind == "died" and signature_of(o) == main}
        return np.array([key in dead for key in self._cells], dtype=bool)

    def _weigh(self, logs: Floats, log_open: float) -> None:
        self.weights, self.open = _normal(logs, log_open)
        self.wary: Floats = _normal(logs + self._doubts[self.group], log_open)[0]
        self.top = self.leaders(TOP)
        self.best = int(self.top[0])
        same = (self.over_pool(self.top) == self.over_pool(self.top[:1])).all(axis=1)
        self.mass = float(self.weights[self.top][same].sum())  # of the best crash set, over what can be run
        self.wary_mass = float(self.wary[self.top][same].sum())

    def leaders(self, count: int) -> Ints:
        """The likeliest hypotheses, the first first."""
        count = min(count, len(self.weights))
        top = np.argpartition(-self.weights, count - 1)[:count]
        return top[np.lexsort((top, -self.weights[top]))]

    # -------------------------------------------------------------- hypotheses, those of the beam included
    def column(self, cell: Mapping[str, Value]) -> Bools:
        """(H,): which hypotheses say that this cell dies."""
        known = self.space.column(cell)
        return known if self.extra is None else np.concatenate([known, self.extra.column(self.space.truth(cell))])

    def over_pool(self, which: Ints) -> Bools:
        """(H', C): the cells of the pool that each of these hypotheses says die."""
        known = len(self.space.hypotheses)
        if self.extra is None:
            return self.space.hypotheses.rows(which, self.space.pool_truth)
        found = np.empty((len(which), len(self.space.pool)), dtype=bool)
        here = which < known
        found[here] = self.space.hypotheses.rows(which[here], self.space.pool_truth)
        found[~here] = self.extra.rows(which[~here] - known, self.space.pool_truth)
        return found

    def parts(self, number: int) -> list[list[int]]:
        """The conditions of a hypothesis, see `Hypotheses.parts`."""
        known = len(self.space.hypotheses)
        return self.space.hypotheses.parts(number) if number < known or self.extra is None else self.extra.parts(number - known)

    @functools.cached_property
    def p(self) -> Floats:
        """(H,): mean rate of a natural run inside the crash set."""
        found: Floats = (self.by_rate @ RATES)[self.group]
        return found

    @property
    def decided(self) -> bool:
        return min(self.mass, self.wary_mass) >= self.confidence

    @functools.cached_property
    def frozen(self) -> bool:
        """From FROZEN on, and then as long as the same crash set leads: a survival that may be luck takes back no fresh run, but a run
        that put another crash set first is no fresh one for that."""
        adaptive = self.space.grid.spec.search.strategy == "adaptive"  # the others do not search again
        verifying = adaptive and any(trial.purpose == "verify" for trial, _ in self.ledger.last())
        frozen, lost = (FROZEN, LOST) if self.sure else (FROZEN_IF_RARE, LOST_IF_RARE)
        if self.mass < (lost if verifying else min(frozen, self.confidence)):
            return False
        return not verifying or self._led_before()

    def _led_before(self) -> bool:
        """Whether the best crash set was the best before the fresh runs too."""
        logs = self._evidence(self._inside, self._likelihoods(self.ledger.found()))
        before = np.argmax(self._prior + logs[self.group])
        return bool((self.over_pool(self.top[:1]) == self.over_pool(np.array([before]))).all())

    @property
    def clear(self) -> bool:
        return self.mass >= min(CLEAR, self.confidence)

    @property
    def doubted(self) -> bool:
        """Whether the leading crash set has no greater rival than the open world."""
        return self.open > (1 - self.mass) / 2

    @property
    def fits(self) -> float:
        """How many times likelier the answers are by the hypotheses than where every cell dies or not for itself: an e-value."""
        return (1 - self.open) / self.open * OPEN / (1 - OPEN) if self.open else math.inf

    @property
    def outside(self) -> bool:
        """Whether the truth is more likely none of the hypotheses: then they must not be used."""
        return self.open > 0.5

    # -------------------------------------------------------------- cells
    def dies(self, cell: Mapping[str, Value]) -> float:
        """Probability that a cell is in the crash set."""
        key = self.space.grid.key(cell)
        if key not in self._dying:
            self._dying[key] = float(self.weights[self.column(cell)].sum()) + self.open * self.dies_if_open(cell)
        return self._dying[key]

    def best_contains(self, cell: Mapping[str, Value]) -> bool:
        return any(all(cell[axis] in values for axis, values in part.items()) for part in self.crash_set)

    def agrees(self, claims: Mapping[Key, bool], cells: Mapping[Key, Cell]) -> float:
        """Probability that every one of these cells dies, or does not, as claimed; the open world agrees with nothing."""
        right = np.ones(len(self.weights), dtype=bool)
        for key, claim in claims.items():
            right &= self.column(cells[key]) == claim
        return float(min(self.weights @ right, self.wary @ right))

    # -------------------------------------------------------------- rates
    def rates(self, *, found_only: bool) -> list[tuple[float, float]]:
        """Rates inside the best crash set, and how likely each is; `found_only`: without the fresh runs that verify it."""
        weights = self._found_rates if found_only else self.by_rate[self.group[self.best]]
        return list(zip(RATES.tolist(), weights.tolist(), strict=True))

    @functools.cached_property
    def _found_rates(self) -> Floats:
        main, total = self.ledger.main_signature(), self.log_rates.copy()
        for trial, outcome in self.ledger.found():
            if outcome.kind != "unavailable" and self.best_contains(trial.cell):
                total += _log(trial, outcome, main, self.hazard, RATES)
        weights: Floats = np.exp(total - total.max())
        found: Floats = weights / weights.sum()
        return found

    def survives(self, lived: Floats) -> float:
        """Chance of fresh runs that survive with `lived` (rates,), if the cell dies like the best crash set did before them."""
        return float(self._found_rates @ lived)

    @functools.cached_property
    def sure(self) -> bool:
        """Whether the crash comes every time, as far as is known: then a single survival says nearly all."""
        return self.excused(1 - RATES) <= SURE

    def deaths_inside(self) -> int:
        """Deaths of the main signature in cells of the best crash set."""
        main = self.ledger.main_signature()
        return sum(o.kind == "died" and signature_of(o) == main and self.best_contains(t.cell) for t, o in self.ledger.entries())

    def excused(self, lived: Floats) -> float:
        """The same by all that is known of the crash set now: of runs in cells outside of it, whether they are fresh or not."""
        return float(self.by_rate[self.group[self.best]] @ lived)

    def killed(self, deadly: Floats) -> float:
        """Chance that a run dies which kills with `deadly` (rates,) in the best crash set."""
        return float(self.by_rate[self.group[self.best]] @ deadly)

    def lived(self, entries: Iterable[tuple[Trial, Outcome]]) -> Floats:
        """(rates,): the chance that the surviving ones of these runs survive in a cell of the crash set."""
        logs = [self.hazard.lived(trial, outcome, RATES) for trial, outcome in entries if outcome.kind == "survived"]
        chance: Floats = np.exp(np.sum(logs, axis=0)) if logs else np.ones(len(RATES))
        return chance

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
        total = each.sum(axis=0) + self.log_rates[:, None, None] + LOG_BACKGROUND[None, :, None] - np.log(len(SHARES))
        highest = total.max()
        weights = np.exp(total - highest)
        self._open_share = float((weights.sum(axis=(0, 1)) @ SHARES) / weights.sum())
        chance = np.exp(dying - each) * weights
        self._open_cells = dict(zip(self._cells, chance.sum(axis=(1, 2, 3)) / weights.sum(), strict=True))
        self._open_cells[self.space.grid.key(self.space.grid.known_bad)] = 1.0
        return float(highest + np.log(weights.sum()))

    def dies_if_open(self, cell: Mapping[str, Value]) -> float:
        """Probability that a cell is in the crash set, should that be none of the hypotheses."""
        return float(self._open_cells.get(self.space.grid.key(cell), self._open_share)) if self._cells else 0.5

    # -------------------------------------------------------------- words
    @functools.cached_property
    def crash_set(self) -> list[dict[str, list[Value]]]:
        """The best one: a cell is inside that has, of every axis of any of these, one of the values."""
        named = [[self.space.conditions[number] for number in part] for part in self.parts(self.best)]
        return [{axis: list(values) for axis, values in part} for part in named]

    @functools.cached_property
    def trading(self) -> list[str]:
        """The axes that trade off in the best crash set: those about which its parts say different things; none where it has one part."""
        parts = [set(part) for part in self.parts(self.best)]
        differing = set[int].union(*parts) - set[int].intersection(*parts)
        return [name for name in self.space.grid.axes if any(self.space.conditions[number][0] == name for number in differing)]

    def leading(self, count: int = 2) -> list[tuple[str, float]]:
        """The likeliest hypotheses in words, with their probability."""
        return [(self.space.describe(self.parts(int(number))), float(self.weights[number])) for number in self.top[:count]]


def log_rates(always: float) -> Floats:
    """Log prior of RATES, when this share of crashes comes every time."""
    found: Floats = np.log(np.append(np.full(len(RATES) - 1, (1 - always) / (len(RATES) - 1)), always))
    return found


def _normal(logs: Floats, log_open: float) -> tuple[Floats, float]:
    """Weights, and that of the open world, which sum to 1."""
    highest = max(logs.max(), log_open)
    weights = np.exp(logs - highest)
    whole = weights.sum() + np.exp(log_open - highest)
    return weights / whole, float(np.exp(log_open - highest) / whole)


def _log_sum(logs: Floats) -> float:
    highest = logs.max()
    return float(highest + np.log(np.exp(logs - highest).sum()))


def _log(trial: Trial, outcome: Outcome, main: str | None, hazard: Hazard, rates: Floats) -> Floats:
    """Log likelihood of one answer by the rate of a natural run."""
    if outcome.kind != "died":
        return hazard.lived(trial, outcome, rates)
    return hazard.died(trial, rates) if signature_of(outcome) == main else np.zeros(len(rates))


def _integrate(logs: Floats, log_prior: Floats) -> tuple[Floats, Floats]:
    """Of log likelihoods (rates, H): the log of their mean under the prior, (H,), and the posterior of the rates, (rates, H).

    `logs` is used up: most of a decision goes into this."""
    logs += log_prior[:, None]
    highest = logs.max(axis=0)
    logs -= highest
    weights = np.exp(logs, out=logs)
    total = weights.sum(axis=0)
    weights /= total
    return highest + np.log(total), weights


def _reported(space: Space, hypotheses: Hypotheses) -> Floats:
    """What people have seen themselves says which cells die, and nothing about how often."""
    logs = np.zeros(len(hypotheses))
    for seen in space.grid.spec.observed:
        cell = {**space.grid.known_bad, **seen.cell}
        column = space.column(cell) if hypotheses is space.hypotheses else hypotheses.column(space.truth(cell))
        logs += np.where(column, 0.0, np.log(REPORTED)) if seen.died else np.where(column, np.log(0.5), 0.0)
    return logs


def _reported_open(space: Space) -> float:
    return float(len(space.grid.spec.observed) * np.log(0.6))
