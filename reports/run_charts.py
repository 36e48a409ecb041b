"""Where runs ended, how deaths fall on steps and time, the hazard on the way, and when each run was made."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence

from matrix.records import Observation
from reports.cells import CellRow, outcome
from reports.chart import Axis, Bar, Bars, Chart, Hue, Mark, Marks, Shape
from reports.ending import Ending
from reports.hazard import Bin, bins
from reports.text import duration, listed, one_line, plural, rate_of

MOST_ROWS, MOST_LANES = 30, 24
KINDS: dict[str, tuple[Hue, Shape]] = {"died": ("died", "cross"), "survived": ("survived", "dot"), "censored": ("other", "arrow")}
FAILURE_HUES: list[tuple[Hue, Shape]] = [("died", "cross"), ("third", "diamond"), ("fourth", "arrow")]
Run = tuple[Observation, Ending]


def by_start(rows: Sequence[CellRow]) -> list[Run]:
    return sorted((run for row in rows for run in row.runs if run[1].kind in KINDS), key=lambda run: run[0].started_unix_s)


def told(run: Run) -> str:
    """`0007 died: SIGABRT at step 118 after 6.5 s`."""
    seen, end = run
    at = f" at step {end.step:,}" if end.step is not None else ""
    how = "" if end.kind == "survived" else f": {one_line(end.how, 80)}"
    return f"{seen.attempt.split('-')[0]} {end.kind}{how}{at} after {duration(seen.wall_s)}"


# ------------------------------------------------------------------ by configuration
def endings(rows: Sequence[CellRow]) -> Chart | None:
    rows = [row for row in rows if any(end.kind in KINDS for _, end in row.runs)]
    shown = rows[:MOST_ROWS]
    runs = [(position, run) for position, row in enumerate(shown) for run in row.runs if run[1].kind in KINDS]
    if not runs:
        return None
    stepped = any(end.step is not None for _, (_, end) in runs)
    groups = [_ended(kind, [(row, run) for row, run in runs if run[1].kind == kind], stepped) for kind in KINDS]
    places = sorted(mark.x for group in groups for mark in group.marks)
    above_0 = [place for place in places if place > 0]
    wide = len(above_0) > 1 and above_0[-1] > 40 * above_0[0]
    what = "step at which the run ended" if stepped else "time after which the run ended"
    x = Axis(label=what, kind="steps" if stepped else "seconds", high=(1.6 if wide else 1.08) * (places[-1] or 1), logarithmic=wide)
    names = [row.label if row.role in {"", row.label} else f"{row.role}: {row.label}" for row in shown]
    alt = "Where each run ended. " + ". ".join(f"{row.label}: {outcome(row)}" for row in shown) + "."
    y = Axis(label="configuration", kind="rows", high=len(shown), rows=names)
    kept = [group for group in groups if group.marks]
    return Chart(name="endings", title="Where each run ended", alt=alt, x=x, y=y, marks=kept, height=1.5 + 0.46 * len(shown))


def _ended(kind: str, runs: Sequence[tuple[int, Run]], stepped: bool) -> Marks:
    """One mark for runs that ended at one place in one row; its text names them."""
    same: dict[tuple[int, float], list[Run]] = {}
    for row, run in runs:
        same.setdefault((row, float(run[1].step or 0) if stepped else run[0].wall_s), []).append(run)
    hue, shape = KINDS[kind]
    marks = [Mark(x=x, y=row, text=listed([told(run) for run in group], 4)) for (row, x), group in same.items()]
    return Marks(name=kind, hue=hue, shape=shape, marks=marks)


# ------------------------------------------------------------------ the pattern of deaths
def pattern(rows: Sequence[CellRow]) -> Chart | None:
    """Steps against seconds: deaths in a column share a step, deaths in a line share a time."""
    runs = [run for run in by_start(rows) if run[1].step is not None]
    died = [run for run in runs if run[1].kind == "died"]
    if not died:
        return None
    groups = [_group("survived", "survived", "ring", [run for run in runs if run[1].kind == "survived"])]
    failures = [name for name, _ in Counter(run[1].failure or "" for run in died).most_common()]
    for position, name in enumerate(failures):
        hue, shape = FAILURE_HUES[min(position, len(FAILURE_HUES) - 1)]
        label = f"died (failure {name})" if name and len(failures) > 1 else "died"
        groups.append(_group(label, hue, shape, [run for run in died if (run[1].failure or "") == name]))
    step, second = max(run[1].step or 0 for run in runs), max(run[0].wall_s for run in runs)
    steps = sorted({run[1].step or 0 for run in died})
    alt = (
        f"Deaths by step and time: {plural(len(died), 'death')}, steps {steps[0]:,} to {steps[-1]:,}, "
        f"{duration(min(run[0].wall_s for run in died))} to {duration(max(run[0].wall_s for run in died))} after the start."
    )
    x = Axis(label="step of the end", kind="steps", high=1.06 * (step or 1))
    y = Axis(label="time of the end since the start of the run", kind="seconds", high=1.08 * second)
    return Chart(name="pattern", title="When it dies", alt=alt, x=x, y=y, marks=[group for group in groups if group.marks])


def _group(name: str, hue: Hue, shape: Shape, runs: Sequence[Run]) -> Marks:
    return Marks(
        name=name, hue=hue, shape=shape, marks=[Mark(x=float(end.step or 0), y=seen.wall_s, text=told((seen, end))) for seen, end in runs]
    )


# ------------------------------------------------------------------ the hazard
@dataclasses.dataclass(frozen=True, kw_only=True)
class Hazard:
    chart: Chart
    parts: list[Bin]
    what: str  # step | second
    whose: str  # the runs it is about


def hazard(rows: Sequence[CellRow], crash_set: Sequence[CellRow]) -> Hazard | None:
    """Of the known-bad configuration, or of the whole crash set where that died too seldom; probes apart.

    Deaths of another failure than the most common one end exposure only.
    """
    known = [row for row in rows if row.role == "known bad"]
    for whose, chosen in (("the known-bad configuration", known), ("all configurations of the crash set", crash_set)):
        runs = [run for row in chosen for run in row.runs if run[1].kind in KINDS]
        stepped = bool(runs) and all(end.step is not None for _, end in runs)
        failures = Counter(end.failure for _, end in runs if end.kind == "died" and end.failure).most_common(1)
        main = {None, *(failure for failure, _ in failures)}  # None: nobody watched it die, so it belongs to no failure
        far = [(float(end.step or 0) if stepped else seen.wall_s, end.kind == "died" and end.failure in main) for seen, end in runs]
        if parts := bins(far):
            return Hazard(
                chart=_hazard_chart(parts, "step" if stepped else "second", whose),
                parts=parts,
                what="step" if stepped else "second",
                whose=whose,
            )
    return None


def _hazard_chart(parts: Sequence[Bin], what: str, whose: str) -> Chart:
    marks = [
        Mark(x=(part.start + part.end) / 2, y=part.rate, low=part.low, high=part.high, wide=(part.start, part.end), text=_told(part, what))
        for part in parts
    ]
    x = Axis(label=f"{what}s since the start of the run", kind="steps" if what == "step" else "seconds", high=1.04 * parts[-1].end)
    y = Axis(label=f"deaths per {what}, 95 % interval", kind="number", high=1.08 * max(part.high for part in parts))
    alt = f"Hazard of {whose}. " + ". ".join(_told(part, what) for part in parts) + "."
    group = Marks(name=f"deaths per {what}, {whose}", hue="died", shape="dot", marks=marks)
    return Chart(name="hazard", title="Hazard on the way", alt=alt, x=x, y=y, marks=[group], height=3.6)


def _told(part: Bin, what: str) -> str:
    return (
        f"{what}s {part.start:,.0f} to {part.end:,.0f}: {plural(part.deaths, 'death')} in {part.exposure:,.0f} {what}s, "
        f"{rate_of(part.rate)} per {what} (95 % interval {rate_of(part.low)} to {rate_of(part.high)})"
    )


# ------------------------------------------------------------------ the timeline
def timeline(rows: Sequence[CellRow]) -> Chart | None:
    """One bar for each run, in as many lanes as ran side by side."""
    runs = by_start(rows)
    if not runs:
        return None
    begin = runs[0][0].started_unix_s
    lanes: list[float] = []
    bars: dict[str, list[Bar]] = {kind: [] for kind in KINDS}
    for seen, end in runs:
        start, stop = seen.started_unix_s - begin, seen.started_unix_s - begin + seen.wall_s
        lane = next((position for position, free in enumerate(lanes) if free <= start + 0.05), len(lanes))
        lanes[lane : lane + 1] = [stop]
        bars[end.kind].append(Bar(row=min(lane, MOST_LANES - 1), start=start, end=stop, text=told((seen, end))))
    count = min(len(lanes), MOST_LANES)
    x = Axis(label="time since the first run", kind="seconds", high=1.02 * max(lanes))
    y = Axis(label="runs side by side", kind="rows", high=count, rows=[f"lane {position + 1}" for position in range(count)])
    kinds = Counter(end.kind for _, end in runs)
    counts = listed([f"{number} {kind}" for kind, number in kinds.items()])
    alt = f"Timeline of {plural(len(runs), 'run')} over {duration(max(lanes))}: {counts}."
    groups = [Bars(name=kind, hue=KINDS[kind][0], bars=found) for kind, found in bars.items() if found]
    return Chart(name="timeline", title="Timeline of the runs", alt=alt, x=x, y=y, bars=groups, height=1.4 + 0.4 * count)
