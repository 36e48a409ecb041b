"""How often a configuration dies per step or per second, by how far it had come, with exact 95 % intervals."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

BINS, FEWEST_DEATHS = 4, 3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bin:
    """What happened between two places on the way; rates are per unit of that way."""

    start: float
    end: float
    deaths: int
    exposure: float  # steps or seconds that runs spent in it, summed
    rate: float
    low: float
    high: float


def bins(runs: Sequence[tuple[float, bool]]) -> list[Bin]:
    """Hazard of runs given as (how far, whether it died there), in up to four parts with about as many deaths each.

    [] with fewer than three deaths: an interval would say nothing.
    """
    deaths = sorted(far for far, died in runs if died)
    if len(deaths) < FEWEST_DEATHS:
        return []
    count = min(BINS, len(deaths) // 2) or 1
    cuts = sorted({deaths[round(len(deaths) * part / count) - 1] for part in range(1, count)})
    edges = [0.0, *(cut for cut in cuts if cut > 0), max(max(far for far, _ in runs), 1e-9)]
    found = [_bin(low, high, runs) for low, high in pairwise(edges) if high > low]
    return [part for part in found if part.exposure > 0]


def _bin(start: float, end: float, runs: Sequence[tuple[float, bool]]) -> Bin:
    exposure = sum(max(0.0, min(far, end) - start) for far, _ in runs)
    deaths = sum(died and (start < far <= end or (far == start == 0)) for far, died in runs)
    low, high = poisson_interval(deaths)
    scale = exposure or math.inf
    return Bin(start=start, end=end, deaths=deaths, exposure=exposure, rate=deaths / scale, low=low / scale, high=high / scale)


def poisson_interval(count: int, outside: float = 0.025) -> tuple[float, float]:
    """Exact interval of a Poisson mean (Garwood 1936) with `outside` on each side."""
    low = _solve(lambda mean: 1 - _at_most(count - 1, mean), outside) if count else 0.0
    return low, upper(count, outside)


@functools.lru_cache(maxsize=4096)
def upper(count: int, outside: float = 0.05) -> float:
    """The mean at which `count` or fewer events have probability `outside`: 3.0 for none seen."""
    return _solve(lambda mean: 1 - _at_most(count, mean), 1 - outside)


@functools.lru_cache(maxsize=4096)
def upper_share(died: int, runs: int, outside: float = 0.05) -> float:
    """One-sided exact upper bound of a share (Clopper and Pearson 1934), 1 without a run."""
    if died >= runs:
        return 1.0
    return _solve(lambda share: 1 - _binomial_at_most(died, runs, share), 1 - outside, high=1.0)


def _at_most(count: int, mean: float) -> float:
    logs = [index * math.log(mean) - mean - math.lgamma(index + 1) for index in range(count + 1)] if mean > 0 else [0.0]
    return min(1.0, sum(map(math.exp, logs)))


def _binomial_at_most(died: int, runs: int, share: float) -> float:
    if not 0 < share < 1:
        return 1.0 if share <= 0 else 0.0
    whole = math.lgamma(runs + 1)
    return sum(
        math.exp(whole - math.lgamma(k + 1) - math.lgamma(runs - k + 1) + k * math.log(share) + (runs - k) * math.log1p(-share))
        for k in range(died + 1)
    )


def _solve(rising: Callable[[float], float], wanted: float, high: float | None = None) -> float:
    """Where a rising function reaches `wanted`, by halving."""
    low, top = 0.0, high or 1.0
    while high is None and rising(top) < wanted:
        top *= 2
    for _ in range(60):
        middle = (low + top) / 2
        low, top = (middle, top) if rising(middle) < wanted else (low, middle)
    return (low + top) / 2
