"""Every attempt as one row: for the table in the page, and for CSV and JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from matrix.records import Cell
from reports.cells import TONES, CellRow
from reports.ending import Ending, ending
from reports.folder import AttemptFolder, RunFolder
from reports.model import Line, Row, Span, Table, line
from reports.text import duration, one_line, size

FILES = ("stdout.log", "stderr.log", "memory.csv")


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttemptRow:
    """One complete attempt.  None: not known, or there was none."""

    attempt: str
    purpose: str
    watched: bool
    cell: Cell
    probes: dict[str, str]
    outcome: str  # died | survived | censored | unavailable
    how: str
    failure: str | None
    step: int | None
    wall_s: float
    peak_tree_rss_bytes: int | None
    memory_limit_bytes: int | None
    returncode: int | None
    signal: str | None
    ended_by: str
    max_steps: int | None
    started_unix_s: float


def attempt_rows(folder: RunFolder) -> list[AttemptRow]:
    return [_attempt(found, ending(found.observation, folder.verdict)) for found in folder.attempts if found.observation]


def _attempt(found: AttemptFolder, end: Ending) -> AttemptRow:
    seen = found.observation
    assert seen is not None  # the caller chose the complete ones
    return AttemptRow(
        attempt=seen.attempt,
        purpose=seen.trial.purpose,
        watched=seen.trial.watched,
        cell=seen.trial.cell,
        probes=seen.trial.probes,
        outcome=end.kind,
        how=end.how,
        failure=end.failure,
        step=end.step,
        wall_s=seen.wall_s,
        peak_tree_rss_bytes=seen.memory.peak_tree_rss_bytes,
        memory_limit_bytes=seen.memory.limit_bytes,
        returncode=seen.exit.returncode,
        signal=seen.exit.signal,
        ended_by=seen.exit.ended_by,
        max_steps=seen.trial.max_steps,
        started_unix_s=seen.started_unix_s,
    )


def attempts(folder: RunFolder, found: Sequence[CellRow]) -> Table | None:
    labels = {seen.attempt: row.label if row.label != "as it is" else "known bad" for row in found for seen, _ in row.runs}
    rows = [_table_row(folder, row, labels.get(row.attempt, "")) for row in attempt_rows(folder)]
    columns = ["Attempt", "Configuration", "Made", "Outcome", "How it ended", "Last step", "Time", "Peak RSS", "Files"]
    return Table("All attempts", columns, rows, frozenset({5, 6, 7}), frozenset({1, 4})) if rows else None


def _table_row(folder: RunFolder, row: AttemptRow, label: str) -> Row:
    cells = [
        line(Span(row.attempt, folder.attempt_href(row.attempt, "observation.json"))),
        line(label),
        line((f"to {row.purpose}" if row.purpose != "control" else "as a control") + ("" if row.watched else ", unwatched")),
        line(row.outcome),
        line(one_line(row.how, 120)),
        line("–" if row.step is None else f"{row.step:,}"),
        line(duration(row.wall_s)),
        line(size(row.peak_tree_rss_bytes) if row.peak_tree_rss_bytes else "–"),
        _files(folder, row.attempt),
    ]
    sort = {5: float(-1 if row.step is None else row.step), 6: round(row.wall_s, 3), 7: float(row.peak_tree_rss_bytes or 0)}
    return Row(cells, TONES[row.outcome], sort)


def _files(folder: RunFolder, attempt: str) -> Line:
    links = [(name.partition(".")[0], href) for name in FILES if (href := folder.attempt_href(attempt, name))]
    parts = [part for name, href in links for part in (Span(name, href), Span(" "))]
    return tuple(parts[:-1])
