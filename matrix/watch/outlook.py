"""When a limit will be met, if things go on as they do: pure, the caller hands in what was read and when.

A line is fitted to the last stretch and to the whole run after its warm-up, because a leak may begin late and a fast one is gone
before a long history notices.  It counts when its 95 % interval excludes zero, when it grew by more than an allocator does by
itself, and when it is at a height that it never had before: a curve that goes up and down within its range is heading nowhere.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from statistics import median

from matrix.evidence.robust import deviation, line
from matrix.records import Slope
from matrix.watch.bounds import Reading, Unit, figure, span

BINS = 24
FEWEST = 8  # bins, below which nothing is said
RECENT, WHOLE = 240, 480  # points that are kept
GROWTH_SHARE = 0.01  # of the limit: growth by less is no trend
WARMUP = 0.1  # of a run is not fitted
LEAST_SURE = 0.4  # the slope's lower bound as a share of it
BELOW = 0.1  # of the growth, or so many times the scatter as NOISE: the last value is no lower below the most that was ever used
STILL = 0.3  # of the mean growth: what the last third must grow
NOISE = 4.0  # growth by so many times the scatter around the line
HORIZON_S, ELAPSED = 3600.0, 3.0  # a warning comes when the limit is nearer than an hour, or than three times what has passed
REACH = 3.0  # nothing is foreseen further ahead than so many times what was seen
SOONEST_S = 2.0  # what is nearer is too late to say
AGAIN = 0.5  # the next one when half of that time is left
NEAR = (0.90, 0.97)  # shares that are told whatever the slope


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outlook:
    """Seconds from now until one limit is met; `low_s` and `high_s` by the slope's 95 % interval."""

    in_s: float
    low_s: float
    high_s: float
    step: int | None  # None: no steps, or too few
    per_s: Slope


class Track:
    """What was read of one limit."""

    def __init__(self) -> None:
        self.recent: collections.deque[tuple[float, int | None, float]] = collections.deque(maxlen=RECENT)
        self.whole: list[tuple[float, int | None, float]] = []
        self.most = 0.0
        self._every, self._skipped = 1, 0

    def add(self, now_s: float, step: int | None, used: float) -> None:
        self.recent.append((now_s, step, used))
        self.most = max(self.most, used)
        self._skipped += 1
        if self._skipped >= self._every:
            self.whole.append((now_s, step, used))
            self._skipped = 0
        if len(self.whole) > WHOLE:
            del self.whole[1::2]
            self._every *= 2

    def outlook(self, limit: float) -> Outlook | None:
        """The sooner of what the last stretch and the whole run say; None: it is heading nowhere."""
        if not self.whole or self.most - min(used for _, _, used in self.whole) < GROWTH_SHARE * limit:  # a fit costs 50 times as much
            return None
        begun = self.whole[0][0] + WARMUP * (self.whole[-1][0] - self.whole[0][0])
        windows = [list(self.recent), [point for point in self.whole if point[0] >= begun]]
        found = [one for window in windows if (one := _fit(window, limit, self.most))]
        return min(found, key=lambda one: one.in_s, default=None)


def _fit(points: Sequence[tuple[float, int | None, float]], limit: float, most: float) -> Outlook | None:
    bins = _bins(points)
    fit = line([at for at, _, _ in bins], [used for _, _, used in bins]) if len(bins) >= FEWEST else None
    if fit is None:
        return None
    slope, at_zero = fit
    _, step, used = points[-1]
    seen_s = bins[-1][0] - bins[0][0]
    growth = slope.value * seen_s
    noise = NOISE * 1.4826 * deviation([value - at_zero - slope.value * at for at, _, value in bins])
    late = bins[2 * len(bins) // 3 :]
    grows = slope.value > 0 and slope.low >= LEAST_SURE * slope.value and growth >= max(GROWTH_SHARE * limit, noise)
    still = late[-1][2] - late[0][2] > STILL * growth * len(late) / len(bins)
    if not grows or not still or most - used > max(BELOW * growth, noise):
        return None
    now_s = points[-1][0]
    room = max(0.0, limit - at_zero - slope.value * now_s)
    off = noise / 2
    in_s = room / slope.value
    if in_s > REACH * seen_s:
        return None
    per_step = _steps_per_s(bins)
    return Outlook(
        in_s=in_s,
        low_s=max(0.0, room - off) / slope.high,
        high_s=(room + off) / slope.low,
        step=round(step + per_step * in_s) if per_step and step is not None else None,
        per_s=slope,
    )


def _bins(points: Sequence[tuple[float, int | None, float]]) -> list[tuple[float, float | None, float]]:
    """Medians of equal stretches of time."""
    if not points:
        return []
    start_s, end_s = points[0][0], points[-1][0]
    groups: dict[int, list[tuple[float, int | None, float]]] = {}
    for point in points:
        groups.setdefault(min(BINS - 1, int((point[0] - start_s) / max(end_s - start_s, 1e-9) * BINS)), []).append(point)
    return [
        (
            median(at for at, _, _ in group),
            median(steps) if (steps := [step for _, step, _ in group if step is not None]) else None,
            median(used for _, _, used in group),
        )
        for _, group in sorted(groups.items())
    ]


def _steps_per_s(bins: Sequence[tuple[float, float | None, float]]) -> float | None:
    known = [(at, step) for at, step, _ in bins if step is not None]
    fit = line([at for at, _ in known], [step for _, step in known]) if len(known) >= FEWEST else None
    return fit[0].value if fit and fit[0].low > 0 else None


# ------------------------------------------------------------------ when to say it
@dataclasses.dataclass(frozen=True, kw_only=True)
class Notice:
    """Something that a person should know before it happens."""

    limit: str
    text: str
    at_s: float
    step: int | None
    in_s: float | None = None  # None: it is near, and no slope says when
    low_s: float | None = None
    high_s: float | None = None
    at_step: int | None = None  # at which the limit will be met


class Warner:
    """Keeps the tracks, and says each thing when it is worth saying: not again until half of the time that was left has gone."""

    def __init__(self) -> None:
        self._tracks: dict[str, Track] = collections.defaultdict(Track)
        self._said_s: dict[str, float] = {}
        self._told: dict[str, int] = {}
        self.nearest: tuple[Reading, Outlook] | None = None  # the limit that will be met first, as of the last look

    def see(self, now_s: float, step: int | None, left_s: float | None, readings: Sequence[Reading]) -> list[Notice]:
        """`left_s`: until the run will have taken all its steps; None: it does not say how many."""
        heading: list[tuple[Reading, Outlook]] = []
        found = []
        for reading in readings:
            track = self._tracks[reading.name + reading.where]
            track.add(now_s, step, reading.used)
            if outlook := track.outlook(reading.limit):
                heading.append((reading, outlook))
            found += self._by_share(now_s, step, reading)
        heading.sort(key=lambda pair: pair[1].in_s)
        self.nearest = heading[0] if heading else None
        met: set[str] = set()
        for reading, outlook in heading:
            kind = reading.name.split(" of ")[0]  # of limits of one thing only the first that will be met matters
            found += [] if kind in met else self._by_slope(now_s, step, left_s, reading, outlook)
            met.add(kind)
        return found

    def _by_slope(self, now_s: float, step: int | None, left_s: float | None, reading: Reading, outlook: Outlook) -> list[Notice]:
        if outlook.in_s < SOONEST_S or outlook.in_s > max(HORIZON_S, ELAPSED * now_s) or (left_s is not None and outlook.in_s > left_s):
            return []
        key = reading.name + reading.where
        if outlook.in_s > AGAIN * self._said_s.get(key, float("inf")):
            return []
        self._said_s[key] = outlook.in_s
        return [
            Notice(
                limit=reading.name,
                text=describe(reading, outlook),
                at_s=now_s,
                step=step,
                in_s=outlook.in_s,
                low_s=outlook.low_s,
                high_s=outlook.high_s,
                at_step=outlook.step,
            )
        ]

    def _by_share(self, now_s: float, step: int | None, reading: Reading) -> list[Notice]:
        key = reading.name + reading.where
        level = sum(reading.share >= near for near in NEAR)
        if key not in self._told:  # a disk that was nearly full before is not this run's doing
            self._told[key] = level if reading.name.startswith("disk") or reading.name == "memory of the machine" else 0
        if level <= self._told[key]:
            return []
        self._told[key] = level
        text = f"{reading.name}: {figure(reading.used, reading.unit)} of {figure(reading.limit, reading.unit)} is used"
        return [Notice(limit=reading.name, text=f"{text} ({reading.share:.0%})", at_s=now_s, step=step)]


def describe(reading: Reading, outlook: Outlook) -> str:
    """`memory of the cgroup: 5.3 GiB of 16.0 GiB, +12.0 MiB/min; at this slope the limit in 14 min (12 min to 17 min), step 5,100`."""
    step = f", step {outlook.step:,}" if outlook.step is not None else ""
    used, limit = figure(reading.used, reading.unit), figure(reading.limit, reading.unit)
    between = f"{span(outlook.low_s)} to {span(outlook.high_s)}"
    grows = f"{reading.name}: {used} of {limit}, {rate(outlook, reading.unit)}"
    return f"{grows}; at this slope the limit in {span(outlook.in_s)} ({between}){step}"


def rate(outlook: Outlook, unit: Unit) -> str:
    return f"+{figure(60 * outlook.per_s.value, unit)}/min"
