"""The form of memory over time: what it does once the program has warmed up, and when it would meet its limit.

A straight line through everything calls every start a leak.  So the warm-up is cut off first, and growth counts only
when its 95 % interval excludes zero and it is large enough to matter.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal

from matrix.evidence.curve_rows import row_of
from matrix.evidence.robust import deviation, line
from matrix.records import CurveShape, Forecast, Memory, MemoryCurve, Slope

MIB = 1 << 20
BINS = 24  # for a line: few enough that neighbouring medians hardly depend on each other
FINE = 240  # for stairs and spikes
FEWEST = 8  # bins with a sample, below which nothing is said
SMALLEST, SMALLEST_SHARE = MIB, 0.005  # growth below this is the allocator's, whatever its interval
EVENT, EVENT_SHARE, EVENT_NOISE = 8 * MIB, 0.25, 8.0  # a spike or a cliff is higher than all of: bytes, share of the level, times the noise
STEADY = 3  # bins in a row on the line end the warm-up
STAIRS, ONE_STAIR = 3, 3  # stairs make a staircase; rises within so many bins are one stair
EXIT_S = 0.5
EVERY_STEP = 3.0  # stairs that are closer are growth with every step
AT_LIMIT = 0.9  # of the limit: a group that never held more was not killed for it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """One value a sample, in the order of time."""

    kind: Literal["group", "private"]
    times: list[float]  # seconds since the start of the attempt
    steps: list[int | None]
    values: list[int]  # bytes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bin:
    time: float
    value: float  # median
    step: float | None


def read(path: Path) -> Series | None:
    """The curve of the whole tree in a memory.csv; None: it holds no sample.  Raises OSError; damaged lines are left out.

    Where there is a cgroup: what is charged to it, without file cache, which the kernel gives up before it kills.
    Otherwise the sum over processes of RSS without shared pages, which counts what a fork shares once per process.
    """
    charged: dict[float, int] = {}
    private: dict[float, int] = {}
    steps: dict[float, int | None] = {}
    cache = 0
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines()[1:]:
        row = row_of(text)
        if row is None:
            continue
        time, count, kind = row.time_s, row.value, row.kind
        steps[time] = row.step
        if kind == "used":
            charged[time] = max(0, count - cache)
        elif kind == "file_cache":
            cache = count
        elif kind in ("rss", "shared"):
            private[time] = private.get(time, 0) + (count if kind == "rss" else -count)
    values = charged or private
    times = sorted(values)
    if not times:
        return None
    return Series(
        kind="group" if charged else "private",
        times=times,
        steps=[steps[time] for time in times],
        values=[values[time] for time in times],
    )


def describe(
    series: Series, *, first_step_s: float | None, limit_bytes: int | None, died: bool, oom: bool, until_s: float | None = None
) -> MemoryCurve:
    """Its form.  `died`: it ended by itself and not well; `oom`: at the limit, even if no sample was quick enough to see that;
    `until_s`: when the first process of it ended that should not have; what the others held while they waited says nothing."""
    series = _without_exit(_up_to(series, until_s))
    start_s = first_step_s if first_step_s is not None and first_step_s < series.times[-1] else 0.0
    warmup_s = _warmup(series, start_s)
    coarse, fine = _bins(series, warmup_s, BINS), _bins(series, warmup_s, FINE)
    fit = line([each.time for each in coarse], [each.value for each in coarse]) if len(coarse) >= FEWEST else None
    basic = MemoryCurve(
        shape="unknown",
        series=series.kind,
        samples=len(series.times),
        warmup_s=round(warmup_s, 3),
        start_bytes=int(coarse[0].value),
        end_bytes=series.values[-1],
        peak_bytes=max(series.values),
        noise_bytes=0,
        limit_bytes=limit_bytes,
    )
    if fit is None:
        return basic
    slope, start = fit
    noise = deviation([each.value - start - slope.value * each.time for each in coarse])
    rise = _rise_at_end(series, coarse, limit_bytes if oom else None) if died else 0.0
    heights, gaps_s, gaps_steps = _stairs(fine, noise)
    shape = _shape(series, slope, coarse, fine, noise=noise, rise=rise, stairs=len(heights), start_s=start_s)
    stairs = shape == "staircase"
    return dataclasses.replace(
        basic,
        shape=shape,
        noise_bytes=int(noise),
        per_s=slope,
        per_step=_per_step(coarse),
        stair_bytes=int(median(heights)) if stairs else None,
        stair_s=round(median(gaps_s), 3) if stairs else None,
        stair_steps=median(gaps_steps) if stairs and gaps_steps else None,
        rise_at_end_bytes=int(rise),
        forecast=_forecast(series, warmup_s, limit_bytes) if limit_bytes else None,
    )


def _shape(
    series: Series, slope: Slope, coarse: list[Bin], fine: list[Bin], *, noise: float, rise: float, stairs: int, start_s: float
) -> CurveShape:
    level = median(each.value for each in coarse)
    growth = slope.value * (coarse[-1].time - coarse[0].time)
    grows = slope.low > 0 and growth > max(SMALLEST, SMALLEST_SHARE * level)
    if grows and stairs:
        return "staircase"
    if rise > _event(level, noise):
        return "cliff"
    if grows and not _levels_off(coarse):
        return "linear"
    if _spikes(series, coarse, fine, noise):
        return "spike"
    first = next((value for time, value in zip(series.times, series.values, strict=True) if time >= start_s), coarse[0].value)
    settled = coarse[0].time - start_s > 0.1 * (coarse[-1].time - start_s)
    rose = level - first > max(SMALLEST, 0.1 * level, EVENT_NOISE * noise)
    return "plateau" if (settled and rose) or (grows and _levels_off(coarse)) else "flat"


def _event(level: float, noise: float) -> float:
    return max(EVENT, EVENT_SHARE * level, EVENT_NOISE * noise)


def own_limit_met(memory: Memory) -> bool:
    """Whether its high-water mark allows that a kill was for its own limit, and not for that of a group within it or around it."""
    return memory.limit_bytes is None or memory.peak_group_bytes is None or memory.peak_group_bytes >= AT_LIMIT * memory.limit_bytes


# ------------------------------------------------------------------ reductions
def _up_to(series: Series, end_s: float | None) -> Series:
    """Without what came after that; the whole when nothing came before."""
    end = len(series.times) if end_s is None else bisect.bisect_right(series.times, end_s)
    return dataclasses.replace(series, times=series.times[:end], steps=series.steps[:end], values=series.values[:end]) if end else series


def _without_exit(series: Series) -> Series:
    """Without the last moment of a process that gives its memory back while it ends."""
    last = bisect.bisect_left(series.times, series.times[-1] - EXIT_S)
    level = median(series.values[max(0, last - 20) : last + 1])
    end = len(series.times)
    while end > last + 1 and series.values[end - 1] < 0.95 * level:
        end -= 1
    return dataclasses.replace(series, times=series.times[:end], steps=series.steps[:end], values=series.values[:end])


def _bins(series: Series, start_s: float, count: int, end_s: float | None = None) -> list[Bin]:
    """Medians of equal stretches of time; stretches without a sample are left out."""
    end_s = series.times[-1] if end_s is None else end_s
    low = min(bisect.bisect_left(series.times, start_s), len(series.times) - 1)
    high = max(low + 1, bisect.bisect_right(series.times, end_s))
    groups: dict[int, list[int]] = {}
    for at in range(low, high):
        part = int((series.times[at] - start_s) / max(end_s - start_s, 1e-9) * count)
        groups.setdefault(min(part, count - 1), []).append(at)
    return [_bin(series, places) for _, places in sorted(groups.items())]


def _bin(series: Series, places: list[int]) -> Bin:
    steps = [step for at in places if (step := series.steps[at]) is not None]
    return Bin(
        time=median(series.times[at] for at in places),
        value=median(series.values[at] for at in places),
        step=sum(steps) / len(steps) if steps else None,
    )


def _warmup(series: Series, start_s: float) -> float:
    """When the curve first stays on the line of its second half, at the latest half-way."""
    bins = _bins(series, start_s, 2 * BINS)
    half = len(bins) // 2
    late = bins[half:]
    fit = line([each.time for each in late], [each.value for each in late])
    if fit is None:
        return start_s
    slope, at_zero = fit
    away = [each.value - at_zero - slope.value * each.time for each in bins]
    allowed = max(SMALLEST, 0.02 * median(each.value for each in late), 5 * deviation(away[half:]))
    for at in range(half):
        if all(abs(value) <= allowed for value in away[at : at + STEADY]):
            return max(start_s, bins[at - 1].time) if at else start_s
    return bins[half].time


def _per_step(bins: list[Bin]) -> Slope | None:
    known = [(each.step, each.value) for each in bins if each.step is not None]
    fit = line([step for step, _ in known], [value for _, value in known]) if len(known) >= FEWEST else None
    return fit[0] if fit else None


# ------------------------------------------------------------------ forms
def _levels_off(bins: list[Bin]) -> bool:
    """Whether the second half hardly grows while the first one does."""
    half = len(bins) // 2
    parts = [line([each.time for each in part], [each.value for each in part]) for part in (bins[:half], bins[half:])]
    if parts[0] is None or parts[1] is None:
        return False
    early, late = parts[0][0], parts[1][0]
    return early.value > 0 and late.value < 0.3 * early.value and (late.low <= 0 or late.high < early.low)


def _stairs(bins: list[Bin], noise: float) -> tuple[list[float], list[float], list[float]]:
    """Heights of regular stairs that make up the growth, the seconds and the steps between them; empty lists: there are none."""
    rises = [(after.value - before.value) for before, after in pairwise(bins)]
    whole = bins[-1].value - bins[0].value
    least = max(SMALLEST, 6 * 1.4826 * deviation(rises), 0.02 * whole)
    found: list[tuple[int, float]] = []
    for at, rise in enumerate(rises):
        if rise <= least:
            continue
        if found and at <= found[-1][0] + ONE_STAIR:  # it takes time to touch so many pages
            found[-1] = at, found[-1][1] + rise
        elif median(each.value for each in bins[at + 1 : at + 4]) > bins[at].value + rise / 2:  # it stays
            found.append((at, rise))
    found = [(at, height) for at, height in found if height > 0.25 * max(height for _, height in found)]
    heights = [height for _, height in found]
    gaps_s = [bins[b].time - bins[a].time for (a, _), (b, _) in pairwise(found)]
    at_steps = [step for at, _ in found if (step := bins[at].step) is not None]
    gaps_steps = [late - early for early, late in pairwise(at_steps)]
    regular = _even(gaps_s) or (len(gaps_steps) == len(gaps_s) and _even(gaps_steps))
    is_staircase = len(found) >= STAIRS and sum(heights) > 0.6 * whole and regular
    if not is_staircase or (gaps_steps and median(gaps_steps) < EVERY_STEP):
        return [], [], []
    return heights, gaps_s, gaps_steps


def _even(gaps: Sequence[float]) -> bool:
    return bool(gaps) and max(gaps) < 2 * median(gaps) and min(gaps) > 0.5 * median(gaps)


def _spikes(series: Series, coarse: list[Bin], fine: list[Bin], noise: float) -> bool:
    """Whether it rises far above its level and comes back, for a small part of the time."""
    level = median(each.value for each in coarse)
    after = [value for time, value in zip(series.times, series.values, strict=True) if time >= fine[0].time]
    excess = max(after) - level
    above = sum(1 for each in fine if each.value > level + excess / 2)
    return excess > _event(level, noise) and above < 0.15 * len(fine) and after[-1] < level + excess / 2


def _rise_at_end(series: Series, coarse: list[Bin], reached: int | None) -> float:
    """Of the last moment over the level before it, as far as growth until then does not explain it."""
    last_s = series.times[-1] - max(0.5, 0.05 * (series.times[-1] - coarse[0].time))
    before = [each for each in coarse if each.time < last_s]
    fit = line([each.time for each in before], [each.value for each in before])
    if fit is None:
        return 0.0
    slope, at_zero = fit
    expected = at_zero + slope.value * series.times[-1]
    highest = max(value for time, value in zip(series.times, series.values, strict=True) if time >= last_s)
    return max(0.0, max(highest, reached or 0) - max(expected, before[-1].value))


def _forecast(series: Series, warmup_s: float, limit_bytes: int) -> Forecast | None:
    """From the first half after the warm-up, as if the rest had not happened yet."""
    made_s = (warmup_s + series.times[-1]) / 2
    bins = _bins(series, warmup_s, BINS, made_s)
    fit = line([each.time for each in bins], [each.value for each in bins]) if len(bins) >= FEWEST else None
    if fit is None:
        return None
    slope, at_zero = fit
    room = limit_bytes - at_zero - slope.value * made_s
    off = 2 * 1.4826 * deviation([each.value - at_zero - slope.value * each.time for each in bins])
    grows = slope.low > 0 and slope.value * (made_s - warmup_s) > SMALLEST
    limit_s = made_s + max(0.0, room) / slope.value if grows else None
    return Forecast(
        made_s=round(made_s, 3),
        limit_s=_rounded(limit_s),
        low_s=_rounded(made_s + max(0.0, room - off) / slope.high if limit_s is not None else None),
        high_s=_rounded(made_s + max(0.0, room + off) / slope.low if limit_s is not None else None),
        limit_step=_step_at(bins, limit_s),
    )


def _step_at(bins: list[Bin], time_s: float | None) -> int | None:
    known = [(each.time, each.step) for each in bins if each.step is not None]
    fit = line([time for time, _ in known], [step for _, step in known]) if time_s is not None else None
    return round(fit[1] + fit[0].value * time_s) if fit and time_s is not None else None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)
