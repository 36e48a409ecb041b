"""From answers to what they mean: which cells die, which survive, the culprit, the ways out.

Whatever asks the questions, this reads the answers: it knows nothing of the order in which cells were run.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from matrix.records import Cell, Value
from matrix.search.grid import Change, Grid
from matrix.search.ledger import Ledger, Tally
from matrix.search.stats import Mixture, fewest, mixture, mixture_of

if TYPE_CHECKING:
    from matrix.search.posterior import Belief

State = Literal["dies", "survives", "open", "unknown", "unavailable"]

NEUTRAL = 3  # runs without an answer (censored, or another death) after which a cell is given up
SURE_DEATHS = 3  # in cells that are said to die: fewer would come in a row too often by luck
SHRUNK = 4  # at most so many surviving combinations are reduced


@dataclasses.dataclass(frozen=True, kw_only=True)
class Combination:
    """Changes that survive together although no smaller tested part of them does."""

    changes: Cell
    ask: Cell | None  # the next cell whose answer may make it smaller; None: it is minimal


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class View:
    """The answers at one moment.  `vetoed`: changes that must not be the fix, with the reason; `preferred`: see Search.prefer_fix;
    `ruleless`: how likely the crash was held to follow no rule, see Search.expect_rule.

    `belief` None: each cell is judged by its own runs alone, since the answers fit none of the hypotheses; else by what all
    runs say together."""

    grid: Grid
    ledger: Ledger
    confidence: float
    vetoed: Mapping[Change, str]
    preferred: tuple[Change, ...]
    belief: Belief | None = None
    ruleless: float = 1.0
    outside: bool = False  # the answers fit none of the hypotheses, which is why there is no belief

    @functools.cached_property
    def needed(self) -> int:
        """Survivals of a cell that are believed now."""
        return self._needed()

    @property
    def sure(self) -> bool:
        """Whether the crash comes every time, as far as is known and by so many deaths that a rarer one would hardly have come so often."""
        return self.belief is not None and self.belief.sure and self.belief.deaths_inside() >= SURE_DEATHS

    # -------------------------------------------------------------- single cells
    def tally(self, change: Change) -> Tally:
        return self.ledger.tally(self.grid.apply(dict([change])))

    def state(self, cell: Mapping[str, Value]) -> State:
        """One death of the main signature convicts; a survival counts once it was repeated often enough."""
        tally = self.ledger.tally(cell)
        if self.belief is not None:
            return self._believed(cell, tally, self.belief)
        if tally.deaths:
            return "dies"
        if tally.survivals >= self.needed:
            return "survives"
        if tally.unavailable or not self.grid.runnable(cell):
            return "unavailable"
        return "unknown" if tally.neutral >= max(NEUTRAL, tally.survivals) else "open"

    def _believed(self, cell: Mapping[str, Value], tally: Tally, belief: Belief) -> State:
        """Decided at the asked confidence by the runs of all cells, also for a cell that was never run itself."""
        if not tally.deaths + tally.survivals and (tally.unavailable or not self.grid.runnable(cell)):
            return "unavailable"
        dies, silent = belief.dies(cell), tally.neutral >= max(NEUTRAL, tally.survivals)
        if dies >= self.confidence:
            return "dies"
        if silent:
            return "unknown"  # it may not die of the main failure, but it does not survive either
        return "survives" if dies <= 1 - self.confidence else "open"

    def states(self) -> dict[Change, State]:
        return self._states

    @functools.cached_property
    def _states(self) -> dict[Change, State]:
        return {change: self.state(self.grid.apply(dict([change]))) for change in self.grid.singles}

    def mixture(self, *, verified: bool = True) -> Mixture:
        """What all cells say together of the crash rate; `verified` False: as it was before the verification runs."""
        if self.belief is not None:
            return mixture_of(self.belief.rates(found_only=not verified))
        tallies = [self._count(change, verified) for change in self.grid.singles]
        known = [self._count(None, verified), *(t for t in tallies if t.deaths)]
        undecided = sorted(t.survivals for t in tallies if t.survivals and not t.deaths)
        return mixture(sum(t.deaths for t in known), sum(t.survivals for t in known), len(known) - 1, tuple(undecided))

    def _count(self, change: Change | None, verified: bool) -> Tally:
        return self._count_in(self.grid.apply(dict([change]) if change else {}), verified)

    def _count_in(self, cell: Cell, verified: bool) -> Tally:
        if verified:
            return self.ledger.tally(cell)
        calibrate, find = self.ledger.tally(cell, "calibrate"), self.ledger.tally(cell, "find")
        return Tally(deaths=calibrate.deaths + find.deaths, survivals=calibrate.survivals + find.survivals)

    def still_dies(self, survivals: int) -> float:
        """Probability that a change still dies although it has survived so many runs, and died in none."""
        return self.mixture().still_dies(survivals)

    def _needed(self) -> int:
        """The survivals after which the survivors together hold fewer than (1 - confidence) changes that still die."""
        alive = 1 if self.belief else sum(t.survivals > 0 and not t.deaths for t in map(self.tally, self.grid.singles))
        posterior, limit = self.mixture(), (1 - self.confidence) / max(1, alive)
        return fewest(lambda survivals: posterior.still_dies(survivals) <= limit)

    # -------------------------------------------------------------- culprit
    def culprit(self) -> dict[str, list[Value]]:
        """Axes of which some single change survives, with the values that still die (design: section 6 of the contract)."""
        return self._culprit

    @functools.cached_property
    def _culprit(self) -> dict[str, list[Value]]:
        return self._named(self.states())

    def likely(self) -> dict[str, list[Value]]:
        """The same by what is likelier than not, where runs did not suffice to decide: of changes that survived alone."""
        return self._named({change: self._likelier(change, state) for change, state in self.states().items()})

    def _likelier(self, change: Change, state: State) -> State:
        tally = self.tally(change)
        cut_short = state == "unknown" and not tally.other_deaths
        if not (state == "open" or cut_short) or self.belief is None:
            return state
        if self.belief.dies(self.grid.apply(dict([change]))) >= 0.5:
            return "dies"
        return "survives" if tally.survivals and not tally.deaths else "open"

    def _named(self, states: Mapping[Change, State]) -> dict[str, list[Value]]:
        alive = {change for change, state in states.items() if state == "survives" and self.seen_alive(change)}
        matter = [name for name in self.grid.axes if any(axis == name for axis, _ in alive)]
        return {name: [v for v in self.grid.axes[name].values if self._still(name, v, states)] for name in matter}

    def seen_alive(self, change: Change) -> bool:
        """Whether any run with that value has survived: what only the prior says is not reported."""
        return change in self._seen_alive

    @functools.cached_property
    def _seen_alive(self) -> set[Change]:
        return {change for trial, outcome in self.ledger.entries() if outcome.kind == "survived" for change in trial.cell.items()}

    def _still(self, axis: str, value: Value, states: Mapping[Change, State]) -> bool:
        return value == self.grid.known_bad[axis] or states.get((axis, value)) == "dies"

    def probability(self, culprit: Mapping[str, list[Value]] | None = None) -> float:
        """Probability that further runs of the single changes would leave this culprit (None: the decided one) as it is.

        Without a belief a product over the changes that can be tested alone: 1 for one that died, P(it survives) for one that
        is reported as surviving, for an open one the probability of what its absence from the answer says."""
        return self._decided_probability if culprit is None else self._agreeing(culprit)

    @functools.cached_property
    def _decided_probability(self) -> float:
        return self._agreeing(self.culprit())

    def _agreeing(self, culprit: Mapping[str, list[Value]]) -> float:
        if self.belief is not None:
            return self._believed_probability(culprit, self.belief)
        probability = 1.0
        for (axis, value), state in self.states().items():
            if state == "survives" or (state == "open" and axis in culprit):
                probability *= 1 - self.still_dies(self.tally((axis, value)).survivals)
            elif state == "open":
                probability *= self.still_dies(self.tally((axis, value)).survivals)
        return probability

    def _believed_probability(self, culprit: Mapping[str, list[Value]], belief: Belief) -> float:
        """Posterior of the crash sets that have exactly this culprit, as far as its changes can be run."""
        cells = {self.grid.key(cell): cell for cell in map(self.grid.apply, ({axis: value} for axis, value in self.grid.singles))}
        able = {change: self.grid.key(self.grid.apply(dict([change]))) for change, s in self.states().items() if s != "unavailable"}
        return belief.agrees({key: value in culprit.get(axis, [value]) for (axis, value), key in able.items()}, cells)

    # -------------------------------------------------------------- ways out
    def barred(self, changes: Mapping[str, Value]) -> bool:
        """It hides the fault, or was vetoed: never the fix."""
        return self.grid.hides(changes) or any(change in self.vetoed for change in changes.items())

    def survivors(self) -> list[Change]:
        """Single changes that survive and may be the fix, the cheapest first."""
        return self._cheapest(change for change, state in self.states().items() if state == "survives")

    def likely_survivors(self) -> list[Change]:
        """The same for `likely`."""
        return self._cheapest(change for change, state in self.states().items() if self._likelier(change, state) == "survives")

    def _cheapest(self, alive: Iterable[Change]) -> list[Change]:
        axes = list(self.grid.axes)
        able = (change for change in alive if not self.barred(dict([change])))
        return sorted(able, key=lambda c: (c not in self.preferred, axes.index(c[0]), self.grid.distance(c)))

    def combinations(self) -> list[Combination]:
        """Surviving cells with several changes and no surviving single one among them, made as small as the answers allow."""
        return self._combinations

    @functools.cached_property
    def _combinations(self) -> list[Combination]:
        states, found = self.states(), dict[tuple[Change, ...], Combination]()
        for cell in self.ledger.cells():
            changes = self.grid.changes(cell)
            if len(changes) < 2 or self.barred(changes) or any(states.get(c) == "survives" for c in changes.items()):
                continue
            if self.state(cell) == "survives" and not any(set(small) < set(changes.items()) for small in found):
                small = shrink(self, changes)
                found.setdefault(tuple(small.changes.items()), small)
            if len(found) == SHRUNK:
                break
        return list(found.values())

    @functools.cached_property
    def cornered(self) -> bool:
        """Whether two axes trade off in the leading crash set, which itself says that every combination survives."""
        found, belief = self.combinations(), self.belief
        if belief is None or not belief.trading or any(each.ask is not None for each in found):
            return False
        return not any(belief.best_contains(self.grid.apply(each.changes)) for each in found)

    def ways_out(self) -> list[Cell]:
        """Changes that may be the fix, the preferred first: single ones, then minimal combinations."""
        return [dict([change]) for change in self.survivors()] + [c.changes for c in self.combinations() if c.ask is None]


def shrink(view: View, changes: Cell) -> Combination:
    """Take changes back, halves first and single ones last, as long as the rest still survives (delta debugging).

    The result is minimal when undoing any one of its changes dies again or ends in another way."""
    size = len(changes) // 2
    while size:
        smaller = None
        for start in range(0, len(changes), size):
            rest = dict([*changes.items()][:start] + [*changes.items()][start + size :])
            state = view.state(view.grid.apply(rest)) if rest else "dies"
            if state == "open":
                return Combination(changes=changes, ask=view.grid.apply(rest))
            if state == "survives":
                smaller = rest
                break
        changes, size = (smaller, min(size, len(smaller) // 2)) if smaller else (changes, size // 2)
    return Combination(changes=changes, ask=None)
