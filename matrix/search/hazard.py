"""When in a run it dies: what a run that was shorter or longer than the natural one is worth.

Rates are chances to die in one natural run (to the program's own end).  A shape says how much of that a run of s steps has stood.
Which shape it is, is read from the steps and seconds of the deaths: a constant rate, one that falls, wear-out (a leak that
reaches a limit), a fixed step, a fixed wall time.  The shapes are averaged by their weights, never chosen: a survival of 500
steps says nothing about a leak that has killed at step 3,000.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Sequence

import numpy as np

from matrix.records import Outcome, Trial
from matrix.search.hypotheses import Floats
from matrix.search.ledger import Ledger, ran_whole, signature_of

NARROW, WIDE = 0.08, 0.4  # spread of the logarithm of the moment of death, at a fixed moment and by wear-out
PRIOR = {"constant": 0.45, "falling": 0.1, "wear-out": 0.15, "fixed step": 0.15, "fixed time": 0.15}
POWERS = {"constant": 1.0, "falling": 0.5}  # the cumulative hazard grows with this power of the steps
DECADES = math.log(1e4)  # how many steps apart, as a logarithm, fixed moments may lie before anything was seen
SOME_RATES = np.sin((np.arange(8) + 0.5) * np.pi / 16) ** 2
TOTALS = -np.log1p(-SOME_RATES)  # the cumulative hazard of a natural run at these rates
LATER = 1.5  # how much longer than the latest death a natural run is taken to be before one has survived


@dataclasses.dataclass(frozen=True)
class Moment:
    """When a run ended.  `steps` None: the program shows none, and time counts alone."""

    steps: float | None
    seconds: float


class Hazard:
    """What the deaths of the main signature say of the moment of death.

    `natural`: steps of a natural run that survives; None: not known yet, or no steps are shown."""

    def __init__(self, ledger: Ledger) -> None:
        main = ledger.main_signature()
        entries = ledger.entries()
        deaths = [(t, o) for t, o in entries if o.kind == "died" and signature_of(o) == main]
        whole = [o for t, o in entries if o.kind == "survived" and ran_whole(t, o)]
        self.pace = Pace.of(*([o for _, o in entries if o.kind == kind] for kind in ("survived", "died")))
        known = [o.steps for o in whole if o.steps]
        self.natural = float(statistics.median(known)) if known else None
        self._deaths = [Moment(o.steps, o.seconds) for _, o in deaths if (o.steps or 0) > 0 or (o.steps is None and o.seconds > 0)]
        latest = max((d.steps for d in self._deaths if d.steps is not None), default=0.0)
        self._unit = self.natural or LATER * latest or None
        seconds = [o.seconds for o in whole if o.seconds > 0] or [LATER * d.seconds for d in self._deaths if d.seconds > 0]
        self._unit_s = statistics.median(seconds) if seconds else None
        self.latest = latest or None
        self._centres = {shape: self._centre(shape) for shape in PRIOR if shape not in POWERS}
        self.weights = self._weigh()

    @property
    def fixed(self) -> float:
        """Probability that it dies at a fixed moment: such crashes come every time."""
        return self.weights["fixed step"] + self.weights["fixed time"]

    # -------------------------------------------------------------- likelihoods
    def survival(self, steps: float | None, seconds: float, rates: Floats) -> Floats:
        """P(a run of so many steps, which took so many seconds, survives), by the rate of a natural run."""
        total = np.zeros(len(rates))
        for shape, weight in self.weights.items():
            if shape in POWERS:
                total += weight * np.exp(np.log1p(-rates) * self._share(steps, seconds) ** POWERS[shape])
            else:
                total += weight * (1 - rates * self._stood(shape, steps, seconds))
        return total

    def lived(self, trial: Trial, outcome: Outcome, rates: Floats) -> Floats:
        """Log likelihood of a run that did not die: natural, or as long as it was."""
        if outcome.kind == "survived" and ran_whole(trial, outcome):
            whole: Floats = np.log1p(-rates)
            return whole
        if outcome.steps is None and outcome.kind == "censored" and self.natural is not None:
            return np.zeros(len(rates))  # it showed no step: it has stood nothing
        found: Floats = np.log(self.survival(outcome.steps, outcome.seconds, rates))
        return found

    def died(self, trial: Trial, rates: Floats) -> Floats:
        """Log likelihood of a death within the run that was asked for."""
        if trial.max_steps is None:
            whole: Floats = np.log(rates)
            return whole
        chance = 1 - self.survival(trial.max_steps, self.pace.seconds(trial.max_steps), rates)
        found: Floats = np.log(np.maximum(chance, 1e-12))
        return found

    # -------------------------------------------------------------- shapes
    def _share(self, steps: float | None, seconds: float) -> float:
        """Of a natural run, in steps where there are any, else in seconds; 0 when nothing is known of either."""
        if steps is not None:
            return steps / self._unit if self._unit else 0.0
        return seconds / self._unit_s if self._unit_s else 0.0

    def _stood(self, shape: str, steps: float | None, seconds: float) -> float:
        """Of the deaths of this shape, how many come before that moment: a log-normal around those that were seen."""
        now, centre = seconds if shape == "fixed time" or steps is None else steps, self._centres[shape]
        if centre is None or now <= 0:
            return 0.0
        return 0.5 * math.erfc(-(math.log(now) - centre[0]) / centre[1] / math.sqrt(2))

    def _centre(self, shape: str) -> tuple[float, float] | None:
        """Where the next death of this shape is expected, and how far around: of the logarithm."""
        logs = [math.log(time) for time in self._times(shape)]
        return (statistics.fmean(logs), _spread(shape) * math.sqrt(1 + 1 / len(logs))) if logs else None

    def _times(self, shape: str) -> list[float]:
        if shape == "fixed time":
            return [d.seconds for d in self._deaths if d.seconds > 0]
        return [time for d in self._deaths if (time := d.seconds if d.steps is None else d.steps) > 0]

    def _weigh(self) -> dict[str, float]:
        """Posterior of the shapes: densities of the moments of death, by logarithms, so that steps and seconds compare."""
        logs = {shape: math.log(prior) + self._evidence(shape) for shape, prior in PRIOR.items()}
        highest = max(logs.values())
        weights = {shape: math.exp(log - highest) for shape, log in logs.items()}
        return {shape: weight / sum(weights.values()) for shape, weight in weights.items()}

    def _evidence(self, shape: str) -> float:
        """Log density of the moments of death; of a shape in a measure that nobody told (a time without seconds) -inf."""
        if shape not in POWERS:
            logs = [math.log(time) for time in self._times(shape)]
            if self._deaths and not logs:
                return -math.inf
            return _together(logs, _spread(shape)) + (self._per_step() if shape == "fixed time" else 0.0)
        shares = [share for d in self._deaths if (share := self._share(d.steps, d.seconds)) > 0]
        return _log_density(shares, POWERS[shape]) if shares else 0.0

    def _per_step(self) -> float:
        """From a density of seconds to one of steps: where a run mostly starts up, deaths at any steps lie at about one time."""
        shares = [self.pace.step_s * d.steps / d.seconds for d in self._deaths if d.steps and d.seconds > 0]
        return sum(math.log(min(1.0, share)) for share in shares if share > 0)


def _spread(shape: str) -> float:
    return WIDE if shape == "wear-out" else NARROW


def _together(logs: Sequence[float], spread: float) -> float:
    """Log density of numbers that lie around one unknown centre, which may be anywhere in DECADES."""
    if not logs:
        return 0.0
    middle, count = statistics.fmean(logs), len(logs)
    squares = sum((log - middle) ** 2 for log in logs)
    scale = 0.5 * (count - 1) * math.log(2 * math.pi * spread**2) + 0.5 * math.log(count)
    return -squares / (2 * spread**2) - scale - math.log(DECADES)


def _log_density(shares: Sequence[float], power: float) -> float:
    """Log density of the logarithms of moments of death, given deaths within the run, averaged over rates (Jeffreys, by 8 points)."""
    grown = np.minimum(shares, 1.0)[:, None] ** power
    density = TOTALS * power * grown * np.exp(-TOTALS * grown) / SOME_RATES
    return float(np.log(density.mean(axis=1)).sum())


@dataclasses.dataclass(frozen=True)
class Pace:
    """Seconds of a run: what it takes to start, and what a step takes.  Least squares; both are at least 0."""

    start_s: float
    step_s: float

    @classmethod
    def of(cls, survived: Sequence[Outcome], died: Sequence[Outcome]) -> Pace:
        """From surviving runs of different lengths; while there are none, from deaths too, though a hang lasts longer than its steps."""
        timed, others = ([(o.steps, o.seconds) for o in seen if o.steps and o.seconds > 0] for seen in (survived, died))
        if len({steps for steps, _ in timed}) < 2:
            timed = [*timed, *others]
        if not timed:
            return cls(0.0, 0.0)
        steps, seconds = (statistics.fmean(column) for column in zip(*timed, strict=True))
        spread = sum((s - steps) ** 2 for s, _ in timed)
        slope = sum((s - steps) * (t - seconds) for s, t in timed) / spread if spread else 0.0
        if slope <= 0:  # nothing tells what a start takes: then longer runs are not taken for free
            return cls(0.0, seconds / steps)
        return cls(seconds - slope * steps, slope) if seconds > slope * steps else cls(0.0, seconds / steps)

    def seconds(self, steps: float) -> float:
        return self.start_s + self.step_s * steps
