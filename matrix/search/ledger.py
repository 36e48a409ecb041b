"""Every answer so far, kept by the number of its trial: the order in which answers come in never matters."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping

from matrix.records import Cell, Outcome, Purpose, Trial, Value
from matrix.search.grid import Grid, Key


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tally:
    """The answers about one cell.  Runs with probes are answers about the probe and are not counted."""

    deaths: int = 0  # with the main signature
    other_deaths: int = 0  # of something else: they cut a run short, and say nothing about the main failure
    survivals: int = 0
    censored: int = 0
    steps: int = 0  # of the surviving runs; 0 when the program shows no steps
    pending: int = 0  # asked and not answered yet
    unavailable: str | None = None  # why it cannot run here, when a run said so

    @property
    def neutral(self) -> int:
        return self.other_deaths + self.censored


def signature_of(outcome: Outcome) -> str:
    return outcome.signature or "died without a signature"


def ran_whole(trial: Trial, outcome: Outcome) -> bool:
    """True for a run that nobody shortened or lengthened."""
    return trial.max_steps is None and outcome.whole


class Ledger:
    """Answers and open questions.  `answers` and `pending` are by trial id.

    A verification run counts as a fresh one only until the search for the cause is taken up again."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.answers: dict[int, tuple[Trial, Outcome]] = {}
        self.pending: dict[int, Trial] = {}
        self._tallies: dict[tuple[Key, Purpose | None], Tally] = {}
        self._main: str | None = None
        self._entries: list[tuple[Trial, Outcome]] | None = None

    def ask(self, trial: Trial) -> None:
        self.pending[trial.id] = trial
        if trial.purpose == "find":  # what was fresh no longer is
            self._tallies.clear()
        elif self._tallies and not trial.probes:
            key = self.grid.key(trial.cell)
            for place in ((key, None), (key, trial.purpose)):
                tally = self._tallies.get(place, Tally())
                self._tallies[place] = dataclasses.replace(tally, pending=tally.pending + 1)

    def tell(self, trial: Trial, outcome: Outcome) -> None:
        """The first answer to a trial counts."""
        self.pending.pop(trial.id, None)
        self.answers.setdefault(trial.id, (trial, outcome))
        self._forget()

    def revise(self, number: int, outcome: Outcome) -> None:
        """Another outcome of a trial that was answered.  Raises KeyError for one that was not."""
        self.answers[number] = (self.answers[number][0], outcome)
        self._forget()

    def _forget(self) -> None:
        self._tallies.clear()
        self._main = self._entries = None

    def entries(self) -> list[tuple[Trial, Outcome]]:
        """Answers about cells as they are (no probes), by trial id."""
        if self._entries is None:
            self._entries = [self.answers[number] for number in sorted(self.answers) if not self.answers[number][0].probes]
        return self._entries

    def found(self) -> list[tuple[Trial, Outcome]]:
        """The answers that were used to find the cause: all but the fresh ones, see `fresh`."""
        last_find = self._last_find()
        return [(trial, outcome) for trial, outcome in self.entries() if trial.purpose != "verify" or trial.id < last_find]

    def last(self) -> list[tuple[Trial, Outcome]]:
        """The answers since the search was last taken up."""
        last_find = self._last_find()
        return [(trial, outcome) for trial, outcome in self.entries() if trial.id > last_find]

    def fresh(self, cell: Mapping[str, Value] | None = None) -> list[tuple[Trial, Outcome]]:
        """The answers about a cell, or all cells, that came after the cause was found."""
        last_find, key = self._last_find(), self.grid.key(cell) if cell else None
        verified = ((t, o) for t, o in self.entries() if t.purpose == "verify" and t.id >= last_find)
        return [(trial, outcome) for trial, outcome in verified if key in (None, self.grid.key(trial.cell))]

    def cells(self) -> list[Cell]:
        """The distinct cells that were run."""
        return list({self.grid.key(trial.cell): trial.cell for trial, _ in self.entries()}.values())

    @property
    def runs(self) -> int:
        return sum(outcome.kind != "unavailable" for _, outcome in self.entries())

    @property
    def open_runs(self) -> int:
        return sum(not trial.probes for trial in self.pending.values())

    def signatures(self) -> Counter[str]:
        """How often each signature ended the known-bad cell, the earliest first among equals."""
        bad = self.grid.key(self.grid.known_bad)
        return Counter(signature_of(o) for t, o in self.entries() if o.kind == "died" and self.grid.key(t.cell) == bad)

    def main_signature(self) -> str | None:
        """The commonest way in which the known-bad cell dies, of several the commonest of all cells; None: it has not died yet."""
        if self._main is None:  # kept: it is asked for with every answer that is read
            bad, every = self.signatures(), self.deaths()
            self._main = max(bad, key=lambda signature: (bad[signature], every[signature]), default=None)
        return self._main

    def deaths(self) -> Counter[str]:
        """Of all cells, by signature."""
        return Counter(signature_of(outcome) for _, outcome in self.entries() if outcome.kind == "died")

    def other_signatures(self) -> bool:
        """Whether anything has died in another way than the main one."""
        main = self.main_signature()
        return any(outcome.kind == "died" and signature_of(outcome) != main for _, outcome in self.entries())

    def tally(self, cell: Mapping[str, Value], purpose: Purpose | None = None) -> Tally:
        """The answers about a cell: all of them, or those of one purpose."""
        if not self._tallies:
            self._count()
        return self._tallies.get((self.grid.key(cell), purpose), Tally())

    def _count(self) -> None:
        main, last_find = self.main_signature(), self._last_find()
        counts: dict[tuple[Key, Purpose | None], Counter[str]] = {}
        reasons: dict[tuple[Key, Purpose | None], str] = {}
        for trial, outcome in self.entries():
            purpose: Purpose = "find" if trial.purpose == "verify" and trial.id < last_find else trial.purpose
            key = self.grid.key(trial.cell)
            for place in ((key, None), (key, purpose)):
                _add(counts.setdefault(place, Counter()), outcome, main)
                if outcome.kind == "unavailable":
                    reasons[place] = outcome.reason or "a run said so"
        for trial in self.pending.values():
            if not trial.probes:
                for place in ((self.grid.key(trial.cell), None), (self.grid.key(trial.cell), trial.purpose)):
                    counts.setdefault(place, Counter())["pending"] += 1
        self._tallies = {place: Tally(**count, unavailable=reasons.get(place)) for place, count in counts.items()}

    def _last_find(self) -> int:
        finds = [trial.id for trial, _ in self.answers.values() if trial.purpose == "find" and not trial.probes]
        return max([*finds, *(t.id for t in self.pending.values() if t.purpose == "find")], default=0)


def _add(count: Counter[str], outcome: Outcome, main: str | None) -> None:
    if outcome.kind == "died":
        count["deaths" if signature_of(outcome) == main else "other_deaths"] += 1
    elif outcome.kind == "survived":
        count["survivals"] += 1
        count["steps"] += outcome.steps or 0
    elif outcome.kind == "censored":
        count["censored"] += 1
