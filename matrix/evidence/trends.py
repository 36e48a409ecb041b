"""Counts over time: open descriptors and threads of each process, from memory.csv."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from matrix.evidence.curve_rows import row_of
from matrix.evidence.robust import line
from matrix.records import Slope, Trend

FEWEST = 6  # samples, below which no slope is given
MOST = 12
LONGEST = 100  # samples a slope is fitted to: the fit compares all pairs
What = Literal["descriptors", "threads"]
KINDS: tuple[What, ...] = ("descriptors", "threads")


@dataclasses.dataclass(kw_only=True)
class _Series:
    role: str
    times: list[float] = dataclasses.field(default_factory=list)
    steps: list[int | None] = dataclasses.field(default_factory=list)
    values: list[int] = dataclasses.field(default_factory=list)


def trends(path: Path, *, limits: Mapping[int, int], end_s: float) -> list[Trend]:
    """Those that changed, the largest growth first; `limits`: of descriptors, by pid.  Raises OSError.

    memory.csv holds a count only when it changed, so what did not change until `end_s` is added at the end."""
    changed = [(key, series) for key, series in _read(path).items() if len(set(series.values)) > 1]
    changed.sort(key=lambda pair: pair[1].values[0] - pair[1].values[-1])
    return [_trend(kind, pid, series, limits.get(pid) if kind == "descriptors" else None, end_s) for (kind, pid), series in changed[:MOST]]


def _read(path: Path) -> dict[tuple[What, int], _Series]:
    found: dict[tuple[What, int], _Series] = {}
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        for kind in KINDS:
            if f",{kind}," in text and (row := row_of(text)):
                series = found.setdefault((kind, row.pid), _Series(role=row.role))
                series.role = row.role
                series.times.append(row.time_s)
                series.steps.append(row.step)
                series.values.append(row.value)
    return found


def _trend(kind: What, pid: int, series: _Series, limit: int | None, end_s: float) -> Trend:
    times, values = series.times, series.values
    every = max(1, len(times) // LONGEST)
    if end_s > times[-1]:
        times, values = [*times, end_s], [*values, values[-1]]
    with_step = [(float(step), value) for step, value in zip(series.steps, series.values, strict=True) if step is not None]
    return Trend(
        what=kind,
        pid=pid,
        role=series.role,
        first=series.values[0],
        last=series.values[-1],
        most=max(series.values),
        samples=len(series.values),
        limit=limit,
        per_s=_slope(times[::every], values[::every]),
        per_step=_slope([step for step, _ in with_step][::every], [value for _, value in with_step][::every]),
    )


def _slope(at: list[float], values: list[int]) -> Slope | None:
    if len(at) < FEWEST or len(set(at)) < FEWEST:
        return None
    found = line(at, values)
    return found[0] if found else None
