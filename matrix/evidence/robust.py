"""Robust statistics of short series, in plain Python: an attempt ends with one of these, and numpy takes longer to import."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from matrix.records import Slope


def deviation(values: Sequence[float]) -> float:
    """Median absolute deviation from the median; 0 for no values."""
    if not values:
        return 0.0
    middle = median(values)
    return median(abs(value - middle) for value in values)


def line(xs: Sequence[float], ys: Sequence[float]) -> tuple[Slope, float] | None:
    """Slope with its 95 % interval and the value at x = 0, by Theil and Sen; None for less than 5 different x.

    The interval is Sen's (1968), by the variance of Kendall's S.  Medians of neighbouring stretches of a memory curve
    are not independent, so the variance is inflated by (1 + r) / (1 - r), r being the residuals' correlation at lag 1.
    """
    if len(set(xs)) < 5:
        return None
    pairs = range(len(xs))
    slopes = sorted((ys[j] - ys[i]) / (xs[j] - xs[i]) for i in pairs for j in pairs[i + 1 :] if xs[j] != xs[i])
    slope = median(slopes)
    start = median(y - slope * x for x, y in zip(xs, ys, strict=True))
    n = len(xs)
    half = 1.96 * math.sqrt(n * (n - 1) * (2 * n + 5) / 18 * _inflation([y - start - slope * x for x, y in zip(xs, ys, strict=True)]))
    low = max(0, math.floor((len(slopes) - half) / 2))
    high = min(len(slopes) - 1, math.ceil((len(slopes) + half) / 2))
    return Slope(value=slope, low=slopes[low], high=slopes[high]), start


def _inflation(residuals: Sequence[float]) -> float:
    mean = sum(residuals) / len(residuals)
    around = [value - mean for value in residuals]
    power = sum(value * value for value in around)
    if power == 0:
        return 1.0
    lag = sum(a * b for a, b in pairwise(around)) / power
    lag += 1 / len(residuals)  # the estimate is too low by about so much
    lag = min(0.9, max(0.0, lag))
    return (1 + lag) / (1 - lag)
