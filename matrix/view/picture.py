"""The live picture as lines of text for any width and height; pure, so that it can be tested without a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

INLINE_COLUMNS = 120  # from here on the last output line stands beside an attempt, not below it
NARROW_COLUMNS = 60  # below that an attempt's cell and figures do not fit on one line
LABEL = 8  # columns for "runs", "cells", "learnt", "asking"
PARAGRAPH_LINES = 3
STYLES = {"died": "red", "survived": "green", "censored": "yellow", "unavailable": "yellow"}
DIM, STRONG, ALARM = "dim", "bold", "bold red"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """A running attempt."""

    number: str
    cell: str
    figures: tuple[str, ...]  # step, rate, memory, age
    memory_is_short: bool = False
    last_line: str = ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scene:
    """Everything that the picture shows."""

    title: str
    clock: str
    runs: Mapping[str, int]  # outcome -> number of attempts
    cells: Mapping[str, int]  # outcome -> number of cells
    expected: int | None = None  # runs; None: nobody has said
    absent_values: int = 0  # values of axes that cannot run on this machine
    learnt: str = ""
    asking: str = ""
    rows: Sequence[Row] = ()


def draw(scene: Scene, columns: int, lines: int) -> list[Text]:
    """At most `lines` lines of at most `columns` columns; what fits least is left out first."""
    summary = [_title(scene, columns), *_summary(scene, columns)]
    room = lines - len(summary)
    blocks = _blocks(scene.rows, columns)
    if sum(map(len, blocks)) > room:
        blocks = [block[:-1] if len(block) > 1 else block for block in blocks]  # without their last output lines
    if sum(map(len, blocks)) > room:
        blocks = [block[:1] for block in blocks]
    if len(blocks) > room > 0:
        hidden = len(blocks) - (room - 1)
        blocks = [*blocks[: room - 1], [Text(f"… and {hidden} more", style=DIM)]]
    picture = [*summary, *(line for block in blocks for line in block)][: max(lines, 1)]
    for line in picture:
        line.truncate(columns, overflow="ellipsis")
    return picture


def result_line(number: str, purpose: str, cell: str, outcome: str, kind: str) -> Text:
    """The permanent line of an attempt that ended."""
    line = Text(f"{number} {purpose:9} ", style=DIM)
    line.append(f"{cell}: ", style="not dim")
    return line.append(outcome, style=f"not dim {STYLES.get(kind, '')}")


# ------------------------------------------------------------------ above: what is known
def _title(scene: Scene, columns: int) -> Text:
    clock = f" {scene.clock} ──"
    name = Text(f"── {scene.title} ", style=STRONG)
    name.truncate(max(0, columns - len(clock) - 1), overflow="ellipsis")
    fill = max(0, columns - name.cell_len - len(clock))
    return Text.assemble(name, ("─" * fill, DIM), (clock, DIM))


def _summary(scene: Scene, columns: int) -> list[Text]:
    runs, total = sum(scene.runs.values()), ""
    if scene.expected is not None:
        total = f" of about {scene.expected}" if runs <= scene.expected else f", more than the {scene.expected} expected"
    cells = _counts(scene.cells)
    if scene.absent_values:
        cells = Text.assemble(cells, f"; {scene.absent_values} value{'s' * (scene.absent_values > 1)} cannot run here")
    return [
        *_paragraph("runs", Text.assemble((f"{runs}", STRONG), total, ": " if runs else "", _counts(scene.runs)), columns),
        *(_paragraph("cells", Text.assemble((f"{sum(scene.cells.values())}", STRONG), ": ", cells), columns) if scene.cells else []),
        *(_paragraph("learnt", Text(scene.learnt), columns) if scene.learnt else []),
        *(_paragraph("asking", Text(scene.asking), columns) if scene.asking else []),
    ]


def _counts(counts: Mapping[str, int]) -> Text:
    return Text(", ").join(Text(f"{counts[kind]} {kind}", style=style) for kind, style in STYLES.items() if counts.get(kind))


def _paragraph(label: str, text: Text, columns: int) -> list[Text]:
    """A label and its text beside it, wrapped, at most a few lines."""
    wrapped = list(text.wrap(_MEASURE, max(columns - LABEL, 8)))
    if len(wrapped) > PARAGRAPH_LINES:
        wrapped = [*wrapped[: PARAGRAPH_LINES - 1], Text(" ").join(wrapped[PARAGRAPH_LINES - 1 :])]
    return [Text.assemble((label.ljust(LABEL) if not n else " " * LABEL, DIM), line) for n, line in enumerate(wrapped)]


_MEASURE = Console(width=80)  # Text.wrap asks for one


# ------------------------------------------------------------------ below: what runs
def _blocks(rows: Sequence[Row], columns: int) -> list[list[Text]]:
    """The lines of each attempt, the most telling one first."""
    widths = [max(map(cell_len, column)) for column in zip(*(row.figures for row in rows), strict=True)]
    if columns < NARROW_COLUMNS:
        return [[_cell(row), _indented(_figures(row, [0] * len(widths)), row), _last_line(row)] for row in rows]
    room = columns - sum(widths) - 2 * len(widths) - 6
    longest = max((cell_len(row.cell) for row in rows), default=0)
    if columns < INLINE_COLUMNS:
        return [[_one_line(row, widths, room), _last_line(row)] for row in rows]
    return [[Text.assemble(_one_line(row, widths, min(longest, room // 2)), "  ", (row.last_line, DIM))] for row in rows]


def _one_line(row: Row, widths: Sequence[int], room: int) -> Text:
    cell = _cell(row)
    cell.truncate(room + 6, overflow="ellipsis", pad=True)
    return Text.assemble(cell, "  ", _figures(row, widths))


def _cell(row: Row) -> Text:
    return Text.assemble((f"{row.number:4}  ", DIM), (row.cell, STRONG))


def _figures(row: Row, widths: Sequence[int]) -> Text:
    step, rate, memory, age = (figure.rjust(width) for figure, width in zip(row.figures, widths, strict=True))
    return Text.assemble(step, "  ", rate, "  ", (memory, ALARM if row.memory_is_short else ""), "  ", (age, DIM))


def _indented(text: Text, row: Row) -> Text:
    return Text.assemble(" " * (len(row.number) + 2), text)


def _last_line(row: Row) -> Text:
    return Text(" " * (len(row.number) + 2) + (row.last_line or "no output yet"), style=DIM)
