"""Search: ask for the next run, tell how it ended, read the result after any number of answers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, overload

from matrix.records import Cell, Outcome, Trial, Value, describe_cell
from matrix.search import calibrate, design, find, result, verify
from matrix.search.decode import View
from matrix.search.grid import Change, Grid
from matrix.search.ledger import Ledger
from matrix.search.result import Result
from matrix.search.want import Step, Want
from matrix.search.words import changed, counted, learnt, not_reproduced

if TYPE_CHECKING:
    from matrix.search.posterior import Belief
    from matrix.search.space import Space
    from matrix.spec import Spec

MOST_SUSPECT = 20.0  # times as likely as another axis
LEAST_DOUBT = 0.05  # of whether a crash comes every time
Log = Iterable[tuple[Trial, Outcome]]


class Search:
    """Where does it die?  Asks for runs of cells and is told how each ended; no clock and no input or output in here.

    Same specification, seed and answers: same questions.  `spec.search.max_runs` counts the runs that the search asks
    for; a limit on time is the caller's, who has a clock and calls `stop`.  `notices` are sentences for the plan."""

    def __init__(self, spec: Spec, seed: int | None = None) -> None:
        """`seed`: None takes the specification's."""
        self.spec = spec
        self.seed = spec.search.seed if seed is None else seed
        self.notices: list[str] = []
        self._grid = Grid(spec)
        self._adaptive = spec.search.strategy == "adaptive"
        self._ledger = Ledger(self._grid)
        self._space: Space | None = None
        self._belief: Belief | None = None
        self._seen: View | None = None  # what is known now; kept until an answer, a question or advice changes it
        self._following: tuple[View, Step] | None = None
        self._vetoed: dict[Change, str] = {}
        self._preferred: list[Change] = []
        self._suspected: dict[str, float] = {}
        self._every_time: float | None = None
        self._ruleless = 1.0
        self._stopped: str | None = self._impossible()
        self._last_id = 0
        self._cells = design.cells(self._grid, self.seed)
        self.notices += [notice] if (notice := design.notice(self._grid, len(self._cells))) else []

    def _impossible(self) -> str | None:
        reason = self._grid.available(self._grid.known_bad)
        return None if reason is None else f"the known-bad cell cannot run here: {reason}"

    # -------------------------------------------------------------- ask
    @overload
    def ask(self) -> Trial | None: ...
    @overload
    def ask(self, n: int) -> list[Trial]: ...
    def ask(self, n: int | None = None) -> Trial | list[Trial] | None:
        """The next run, or up to `n` runs for a batch.

        None (or an empty list) while runs are outstanding means "wait for an answer"; `done` tells the two apart."""
        if n is None:
            return self._ask_one()
        trials = (self._ask_one() for _ in range(n))
        return [trial for trial in trials if trial is not None]

    def _ask_one(self) -> Trial | None:
        want = self._next()
        if not isinstance(want, Want):
            return None
        trial = Trial(id=self.new_id(), cell=want.cell, max_steps=want.max_steps, purpose=want.purpose, why=want.why)
        self._ledger.ask(trial)
        self._seen = None
        return trial

    def gain(self) -> tuple[float, float, float] | None:
        """What the run that `ask` would give now is expected to teach: bits about the crash set per second, and the seconds of a run
        that survives and of one that dies (1.0 each until both were seen).  None: that run is not asked for what it teaches."""
        from matrix.search import choose  # here: it imports numpy

        want = self._next() if self._believed() is not None else None
        if not isinstance(want, Want) or want.bits_per_s is None:
            return None
        return want.bits_per_s, *choose.run_seconds(self._ledger)

    def sure_to_die(self, cell: Cell) -> bool:
        """Whether a run of this cell is expected to die: it is in the likeliest crash set, where every run dies as far as is known."""
        belief = self._view().belief
        return belief is not None and belief.sure and belief.best_contains(cell)

    def new_id(self) -> int:
        """A number for a trial that somebody else proposes (a probe), so that numbers never collide."""
        self._last_id += 1
        return self._last_id

    def _next(self) -> Step:
        """Kept as long as the view: whoever reads the result between an answer and the next question pays for it once."""
        view = self._view()
        if self._following is None or self._following[0] is not view:
            self._following = view, self._choose(view)
        return self._following[1]

    def _choose(self, view: View) -> Step:
        left = self.spec.search.max_runs - self._ledger.runs - self._ledger.open_runs
        if self._stopped is not None or left <= 0:
            return None
        first = calibrate.step(self._ledger, self.spec.search.max_runs, self.seed)
        if first is not None or not self._ledger.tally(self._grid.known_bad).deaths:
            return first
        if self._adaptive and view.belief is not None:
            return self._next_believed(view, view.belief)
        if left > verify.cost(view, self.seed) or not view.ways_out():  # else: what is left is needed to verify what was found
            found = self._find(view)
            if found is not None:
                return found
        found = verify.step(view, self.seed)
        return found if found is not None or view.belief is None else self._next_doubted(view, view.belief)

    def _next_believed(self, view: View, belief: Belief) -> Step:
        """What teaches most until one crash set leads clearly; then the runs that must bear it out, and more until it is sure.  Runs
        are fresh ones as soon as the crash set that they test has been the likeliest before them."""
        from matrix.search import choose  # here: it imports numpy

        stages: list[Callable[[], Step]] = [lambda: find.named_step(view)]
        if belief.decided:
            stages.append(lambda: find.combination_step(view, self.seed))
        stages += [lambda: verify.step(view, self.seed), lambda: self._next_doubted(view, belief)]
        if not (belief.frozen and belief.clear):
            stages.insert(0, lambda: choose.step(view, belief, "verify" if belief.frozen else "find"))
        steps = (stage() for stage in stages)
        return next((found for found in steps if isinstance(found, Want) or (found == "wait" and self._ledger.pending)), None)

    def _next_doubted(self, view: View, belief: Belief) -> Step:
        """One crash set leads, and its fresh runs bore it out: what else could be true?"""
        from matrix.search import choose  # here: it imports numpy

        return choose.step(view, belief, "verify") if belief.frozen and not belief.decided else None

    def _find(self, view: View) -> Step:
        wanted = design.step(view, self._cells, self._repeats())
        return wanted if wanted is not None else find.combination_step(view, self.seed)

    @property
    def done(self) -> bool:
        """Nothing is outstanding and nothing more will be asked."""
        return not self._ledger.pending and not isinstance(self._next(), Want)

    # -------------------------------------------------------------- tell
    def tell(self, trial: Trial | int, outcome: Outcome) -> None:
        """The answer to a trial, in any order; only the first answer to it counts.

        A Trial that was not asked here is taken too: an adopted attempt, or a probe (which is kept but is no evidence
        about its cell).  Raises ValueError for an unknown id, or for a cell that is not of this matrix."""
        asked = self._asked(trial)
        self._check(asked.cell)
        self._last_id = max(self._last_id, asked.id)
        self._ledger.tell(asked, outcome)
        self._belief = self._seen = None

    def revise(self, trial: Trial, outcome: Outcome) -> None:
        """Another outcome of an answered trial, where later runs have shown what this one was: a run that a limit of ours cut short is
        told as censored, and is too slow once another cell has finished in a fraction of its time.

        Raises ValueError for a trial that was not answered."""
        if trial.id not in self._ledger.answers:
            raise ValueError(f"revise: trial {trial.id} has no answer yet; tell it first")
        if self._ledger.answers[trial.id][1] != outcome:
            self._ledger.revise(trial.id, outcome)
            self._belief = self._seen = None

    def _asked(self, trial: Trial | int) -> Trial:
        number = trial if isinstance(trial, int) else trial.id
        if number in self._ledger.answers:
            return self._ledger.answers[number][0]
        asked = self._ledger.pending.get(number, None if isinstance(trial, int) else trial)
        if asked is None:
            outstanding = ", ".join(map(str, sorted(self._ledger.pending))) or "none"
            raise ValueError(f"tell: no trial {number} was asked (outstanding: {outstanding}); pass a Trial for one from elsewhere")
        if not isinstance(trial, int) and asked.cell != trial.cell:
            raise ValueError(f"tell: trial {number} was asked for {describe_cell(asked.cell)}, not for {describe_cell(trial.cell)}")
        return asked

    def _check(self, cell: Cell) -> None:
        self._grid.key(cell)
        for name, axis in self._grid.axes.items():
            if cell[name] not in axis.values:
                raise ValueError(f"tell: {name}={cell[name]} is not in the matrix; values of {name}: {', '.join(map(str, axis.values))}")

    def stop(self, reason: str) -> None:
        """Ask nothing more, for example because the time is up; answers to outstanding trials still count."""
        self._stopped = self._stopped or reason
        self._seen = None

    @property
    def log(self) -> list[tuple[Trial, Outcome]]:
        """Every answer by trial id; `replay` rebuilds the search from it."""
        return [self._ledger.answers[number] for number in sorted(self._ledger.answers)]

    @classmethod
    def replay(cls, spec: Spec, seed: int | None, log: Log) -> Search:
        """The search as it was after these answers: it asks what it would have asked.  What the diagnosis told it has to be repeated."""
        search = cls(spec, seed)
        for trial, outcome in log:
            search.tell(trial, outcome)
        return search

    # -------------------------------------------------------------- what the diagnosis knows better
    def veto(self, axis: str, value: Value, reason: str) -> None:
        """This value only hides the fault, or must not be recommended: it never becomes the fix."""
        self._vetoed[self._change(axis, value)] = reason
        self._seen = None

    def suspect_axes(self, weights: Mapping[str, float]) -> None:
        """How much likelier than the others each of these axes is to take part in the crash, by evidence from single deaths.

        1.0 (of every axis that is not named) is no opinion; weights are kept within 1/20 and 20, so that runs can always overrule them.
        A later call replaces an earlier one.  Raises ValueError for an unknown axis or a weight that is not positive."""
        for axis, weight in weights.items():
            if axis not in self._grid.axes:
                raise ValueError(f"suspect_axes: no axis {axis!r} in the matrix; axes: {', '.join(self._grid.axes)}")
            if not weight > 0:
                raise ValueError(f"suspect_axes: the weight of {axis} is {weight}; a weight is a positive number, 1.0 for no opinion")
        suspected = {axis: min(MOST_SUSPECT, max(1 / MOST_SUSPECT, float(weight))) for axis, weight in weights.items()}
        if suspected != self._suspected:
            self._suspected, self._space, self._belief, self._seen = suspected, None, None, None

    def expect_every_time(self, probability: float) -> None:
        """How likely it is that the crash comes in every run where its conditions hold, by evidence from single deaths.

        A limit that is reached is reached again; a race is not.  It is what the answer must be likely by too, beside the usual opinion;
        kept within 1/20 and 19/20, so that runs can always overrule it.  Raises ValueError for what is no probability."""
        if not 0 <= probability <= 1:
            raise ValueError(f"expect_every_time: {probability} is no probability; a number from 0 to 1")
        expected = min(1 - LEAST_DOUBT, max(LEAST_DOUBT, probability))
        if expected != self._every_time:
            self._every_time, self._space, self._belief, self._seen = expected, None, None, None

    def expect_rule(self, probability: float) -> None:
        """How likely it is that some conditions on the axes decide where it crashes, by evidence from how it dies: a known mechanism has
        its conditions.  Then fewer cells must show that the answer is more than chance; without a call nothing is taken for granted.

        Raises ValueError for what is no probability."""
        if not 0 <= probability <= 1:
            raise ValueError(f"expect_rule: {probability} is no probability; a number from 0 to 1")
        if (ruleless := 1 - probability) != self._ruleless:
            self._ruleless, self._seen = ruleless, None

    def prefer_fix(self, axis: str, value: Value) -> None:
        """Choose this change as the fix when it survives; of several, any is better than the rest."""
        if (change := self._change(axis, value)) not in self._preferred:
            self._preferred.append(change)
            self._seen = None

    def withdraw_advice(self) -> None:
        """Forget all vetoes and preferences: another cause leads now, and what it says of the changes is told anew."""
        self._vetoed, self._preferred, self._seen = {}, [], None

    def _change(self, axis: str, value: Value) -> Change:
        if (axis, value) not in self._grid.order:
            allowed = ", ".join(changed({name: other}) for name, other in self._grid.order)
            raise ValueError(f"{axis}={value} is no change of the known-bad cell; allowed: {allowed}")
        return axis, value

    # -------------------------------------------------------------- read
    def result(self) -> Result:
        """What is known now; may be called at any time."""
        used_up = self._ledger.runs >= self.spec.search.max_runs
        stopped = self._stopped or (f"max_runs ({self.spec.search.max_runs}) are used up" if used_up else None)
        following = self._next()
        complete = not self._ledger.pending and not isinstance(following, Want)
        why = following.why if isinstance(following, Want) else None
        return result.build(self._view(), seed=self.seed, complete=complete, stopped=stopped, why_next=why)

    def leading(self) -> str:
        """A short line for the live view: what has been learnt so far."""
        view, tally = self._view(), self._ledger.tally(self._grid.known_bad)
        if not tally.deaths:
            return not_reproduced(tally) if tally.survivals or tally.neutral or tally.unavailable else "Nothing has been run yet."
        if not calibrate.over(self._ledger, self.spec.search.max_runs):
            return f"Calibrating: the known-bad cell died in {tally.deaths} of {counted(tally.deaths + tally.survivals, 'run')}."
        found = verify.check(view, self.seed)
        fix = f" {changed(found.fix)} has {found.clean} of {found.clean_wanted} fresh clean runs." if found.fix else ""
        return learnt(view) + fix

    def expected_runs(self, crash_rate: float = 1.0) -> int:
        """Runs that this matrix takes when the crash comes with this rate per run and one axis decides it; for the plan.

        Simulated with the first axis that has a change to try; never more than max_runs."""
        twin, rng = Search(self.spec, self.seed), random.Random(self.seed)
        axis = next((name for name, _ in self._grid.singles), None)
        while (trial := twin.ask()) is not None:
            bad = axis is None or trial.cell[axis] == self._grid.known_bad[axis]
            died = bad and rng.random() < crash_rate
            twin.tell(trial, Outcome(kind="died", signature="simulated") if died else Outcome(kind="survived"))
        return twin.result().runs

    def _view(self) -> View:
        self._seen = self._seen or self._new_view()
        return self._seen

    def _new_view(self) -> View:
        belief = self._believed()
        return View(
            grid=self._grid,
            ledger=self._ledger,
            confidence=self.spec.search.confidence,
            vetoed=dict(self._vetoed),
            preferred=tuple(self._preferred),
            ruleless=self._ruleless,
            belief=None if belief is None or belief.outside else belief,
            outside=belief is not None and belief.outside,
        )

    def _believed(self) -> Belief | None:
        """What all answers say together; None when that cannot be said: nothing died yet, or none of the hypotheses fits."""
        if not self._ledger.tally(self._grid.known_bad).deaths:
            return None
        if self._belief is None:
            from matrix.search.posterior import WARY, Belief  # here: it imports numpy
            from matrix.search.space import Space

            wary = WARY if self._every_time is None else self._every_time
            self._space = self._space or Space(self._grid, self.seed, self._suspected, max(0.0, (wary - WARY) / (1 - LEAST_DOUBT - WARY)))
            self._belief = Belief(self._space, self._ledger, self.spec.search.confidence, wary)
        return self._belief

    def _repeats(self) -> int | None:
        """The user's own number of repeats; a default is not the user's word, and adaptive has none."""
        options = self.spec.search
        return options.repeats if options.strategy != "adaptive" and "repeats" in options.model_fields_set else None
