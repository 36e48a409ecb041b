"""The little statistics that the search needs: a Beta posterior over a crash rate per run, and e-values.

Pure Python on purpose: planning a matrix must not pay for an import of numpy or scipy.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence

MOST_RUNS = 1024
E_VALUE = 20.0  # evidence that is enough: what it speaks against, it speaks against so strongly by luck one time in 20 at most
RATES = 32  # points of the crash rate in a mixture: sin^2 of equal angles, under which the Jeffreys prior is flat
SHARES = 8  # points of the share of changes that still die, spaced alike under a flat prior (the ends matter most)


@dataclasses.dataclass(frozen=True)
class Beta:
    """What is believed of a crash rate per run.  `Beta.after()` is the Jeffreys prior Beta(1/2, 1/2), which leans
    to crashes that come always or hardly ever: that is how most native crashes behave."""

    a: float
    b: float

    @classmethod
    def after(cls, deaths: int = 0, survivals: int = 0) -> Beta:
        return cls(0.5 + deaths, 0.5 + survivals)

    @functools.cache  # noqa: B019 - a few numbers for each count of deaths and survivals
    def quantile(self, share: float) -> float:
        """The rate below which `share` (0 to 1) of the belief lies, to 1e-9."""
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if beta_cdf(middle, self.a, self.b) < share else (low, middle)
        return (low + high) / 2


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Joint posterior of the crash rate p and of the share of changes that still die, on a grid of (p, share, weight).

    A change that has only survived either cures (share 1 - s) or still dies and was lucky, (1 - p)^runs.  Pooling only the
    changes that did die would leave the lucky ones out and take p for far larger than it is."""

    points: tuple[tuple[float, float, float], ...]

    @property
    def rate(self) -> float:
        """Mean of the crash rate per run."""
        return math.fsum(p * weight for p, _, weight in self.points)

    def all_survive(self, runs: int) -> float:
        """E[(1 - p)^runs]: the chance that a cell which does die survives all of `runs` runs."""
        return sum(weight * (1 - p) ** runs for p, _, weight in self.points)

    def still_dies(self, survivals: int) -> float:
        """Probability that a change dies after all, given that it has survived so many runs and died in none."""
        lucky = ((share * (1 - p) ** survivals, share, weight) for p, share, weight in self.points)
        return sum(weight * luck / (luck + 1 - share) for luck, share, weight in lucky)


@functools.lru_cache(maxsize=512)
def mixture(deaths: int, survivals: int, dying: int, undecided: tuple[int, ...]) -> Mixture:
    """The posterior after `deaths` and `survivals` in cells that are known to die, of which `dying` are changes, and
    changes without a death, by their number of survivals (sorted)."""
    logs = []
    for p in _spaced(RATES):
        known = deaths * math.log(p) + survivals * math.log1p(-p)
        luck = [((1 - p) ** runs, undecided.count(runs)) for runs in sorted(set(undecided))]
        for share in _spaced(SHARES):
            prior = 0.5 * math.log(share * (1 - share))  # of the points, which crowd at both ends, back to flat
            logs.append((p, share, known + prior + dying * math.log(share) + sum(n * math.log(share * one + 1 - share) for one, n in luck)))
    highest = max(log for _, _, log in logs)
    total = sum(math.exp(log - highest) for _, _, log in logs)
    return Mixture(tuple((p, share, math.exp(log - highest) / total) for p, share, log in logs))


def mixture_of(rates: Sequence[tuple[float, float]]) -> Mixture:
    """Of (rate, weight), whose weights sum to 1, with any share of changes that still die alike."""
    shares = [(k + 0.5) / SHARES for k in range(SHARES)]
    return Mixture(tuple((rate, share, weight / SHARES) for rate, weight in rates for share in shares))


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b) by its continued fraction (Lentz; DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side only
        return 1.0 - beta_cdf(1 - x, b, a)
    front = math.exp(a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)) / a
    return front / _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    value, c, d = 1.0, 1.0, 0.0
    for term in range(1, 400):
        m = term // 2
        if term % 2:
            coefficient = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            coefficient = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / (1.0 + coefficient * d or 1e-300)
        c = 1.0 + coefficient / c or 1e-300
        value *= c * d
        if abs(c * d - 1.0) < 1e-14:
            break
    return value


def upper95(clean: int) -> float:
    """The exact one-sided 95 % upper limit of a rate after `clean` runs (or steps) without a death; 1.0 after none."""
    return -math.expm1(math.log(0.05) / clean) if clean else 1.0


def clean_runs_for(rate: float) -> int:
    """The fewest clean runs after which `upper95` is no more than `rate` (0 < rate < 1)."""
    return math.ceil(math.log(0.05) / math.log1p(-rate))


def _spaced(count: int) -> list[float]:
    return [math.sin((k + 0.5) * math.pi / 2 / count) ** 2 for k in range(count)]


def clean_runs_for_e_value(frozen: Mixture, e_value: float) -> int:
    """The fewest clean runs whose e-value against "still crashes at this rate" reaches `e_value`.

    The e-value of n clean runs is 1 / E[(1 - p)^n] under a mixture that was frozen before them: under that hypothesis
    its expectation is 1, hence it exceeds 20 with probability of at most 1/20, whenever one chooses to look (Ville)."""
    return fewest(lambda runs: frozen.all_survive(runs) <= 1 / e_value)


def fewest(enough: Callable[[int], bool]) -> int:
    """The smallest number of runs that is `enough`, if more of them are enough too; never more than MOST_RUNS."""
    high = 1
    while high < MOST_RUNS and not enough(high):
        high *= 2
    low = high // 2  # not enough, or 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
