"""Which configuration to run: how far each went, how often it can still fail, and how fast it is."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

from matrix.records import Observation, Rate
from reports.causes import attempt_links
from reports.cells import CellRow, tone
from reports.folder import RunFolder
from reports.hazard import upper, upper_share
from reports.model import Para, Row, Section, Table, line, strong
from reports.text import rate, size


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice:
    """What the runs of one configuration say about a long run of it; runs that were cut off count with their steps only."""

    row: CellRow
    died: int
    survived: int
    steps: int | None  # survived steps in all; None: a run shows none
    per_run: float  # one-sided 95 % upper bound of the share that dies
    per_step: float | None
    steps_per_s: float | None  # median over runs; None: fewer than two steps
    peak_bytes: int | None


def choices(found: Sequence[CellRow]) -> list[Choice]:
    """Of configurations that ran, without probes: those that can fail least often first."""
    made = [_choice(row) for row in found if not row.probes and any(end.kind != "unavailable" for _, end in row.runs)]
    return sorted(
        made,
        key=lambda choice: (choice.row.role == "hides", choice.died > 0, choice.row.role != "fix", choice.per_run, choice.per_step or 1),
    )


def _choice(row: CellRow) -> Choice:
    runs = [(seen, end) for seen, end in row.runs if end.kind != "unavailable"]
    died, survived = len(row.of("died")), len(row.of("survived"))
    far = [end.step for _, end in runs]
    steps = sum(step for step in far if step is not None) if all(step is not None for step in far) else None
    speeds = [speed for seen, _ in runs if (speed := throughput(seen))]
    peaks = [seen.memory.peak_tree_rss_bytes for seen, _ in runs if seen.memory.peak_tree_rss_bytes]
    return Choice(
        row=row,
        died=died,
        survived=survived,
        steps=steps,
        per_run=upper_share(died, died + survived),
        per_step=min(1.0, upper(died) / steps) if steps else None,
        steps_per_s=statistics.median(speeds) if speeds else None,
        peak_bytes=max(peaks, default=None),
    )


def throughput(seen: Observation) -> float | None:
    """Steps a second between the first step and the last; steps are taken to count from 1."""
    progress = seen.progress
    if progress.last_step is None or progress.first_step_s is None or progress.last_step_s is None:
        return None
    seconds = progress.last_step_s - progress.first_step_s
    return (progress.last_step - 1) / seconds if progress.last_step > 1 and seconds > 0 else None


def decision(folder: RunFolder, found: Sequence[CellRow]) -> Section | None:
    made = choices(found)
    if not made:
        return None
    columns = [
        "Configuration",
        "Died",
        "Survived",
        "Survived steps",
        "Fails at most, per run",
        "Per step",
        "Steps/s",
        "Peak RSS",
        "Attempts",
    ]
    rows = [_row(folder, choice) for choice in made]
    table = Table("Configurations, the safest first", columns, rows, frozenset(range(1, 8)), frozenset({0}))
    note = (
        "Bounds are one-sided, exact, with 95 % confidence, over all runs of a configuration, also those that were used to find it; "
        "the bound at the fix counts fresh runs only. Survived steps are those of all runs, up to where each ended."
    )
    return Section("decision", "Which configuration to run", [table, Para(line(note))])


def _row(folder: RunFolder, choice: Choice) -> Row:
    row = choice.row
    name = f"{row.role}: {row.label}" if row.role and row.role != row.label else row.label
    step = rate(Rate(value=choice.per_step, per="step")) if choice.per_step else "not known"
    cells = [
        line(strong(name) if row.role == "fix" else name),
        line(str(choice.died)),
        line(str(choice.survived)),
        line("not known" if choice.steps is None else f"{choice.steps:,}"),
        line(rate(Rate(value=choice.per_run))),
        line(step),
        line(f"{choice.steps_per_s:.3g}" if choice.steps_per_s else "–"),
        line(size(choice.peak_bytes) if choice.peak_bytes else "–"),
        attempt_links(folder, [seen.attempt for seen, _ in row.runs], 4),
    ]
    sort = {4: choice.per_run, 5: choice.per_step or 1.0, 7: float(choice.peak_bytes or 0)}
    return Row(cells, tone(row), sort)
