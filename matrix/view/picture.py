"""The live picture as lines of text for any width and height; pure, so that it can be tested without a terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.console import Console
from rich.text import Text

INLINE_COLUMNS = 120  # from here on the last output line stands beside an attempt, not below it
NARROW_COLUMNS = 60  # below that an attempt's cell and figures do not fit on one line
NUMBER = 6  # columns for the number of an attempt
TITLE_COLUMNS = 60  # of the rule; the shorter the lines, the less is in the way when a narrowed terminal wraps them
LABEL = 8  # columns for "runs", "cells", "learnt", "asking"
FIGURE_COLUMNS = (11, 6, 9, 3)  # at least, so that columns rarely move
STYLES = {"died": "red", "survived": "green", "censored": "yellow", "unavailable": "yellow"}
DIM, STRONG, ALARM = "dim", "bold", "bold red"
_CONSOLE = Console(width=80)  # Text.wrap and Text.render ask for one; nothing is printed to it


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
    """At most `lines` lines of at most `columns` columns; what tells least is left out first."""
    for paragraph_lines, left_out in ((3, 0), (3, 1), (1, 1), (1, 2)):
        blocks = [block[: max(1, len(block) - left_out)] for block in _blocks(scene.rows, columns)]
        summary = [_title(scene, columns), *_summary(scene, columns, paragraph_lines)]
        picture = [*summary, *(line for block in blocks for line in block)]
        if len(picture) <= lines:
            break
    else:
        picture = [*summary[: max(2, lines - len(blocks))], *(block[0] for block in blocks)]
    if len(picture) > lines > 2:
        picture[lines - 1 :] = [Text("…", style=DIM)]
    for line in picture:
        line.truncate(columns, overflow="ellipsis")
    return picture[:lines]


def result_line(number: str, purpose: str, cell: str, outcome: str, kind: str) -> Text:
    """The permanent line of an attempt that ended."""
    line = Text(f"{number} {purpose:9} ", style=DIM)
    line.append(f"{cell}: ", style="not dim")
    return line.append(outcome, style=f"not dim {STYLES.get(kind, '')}")


def ansi(line: Text, *, colour: bool) -> str:
    """The line for a terminal; ten times as fast as printing it to a captured console."""
    parts = []
    for text, style, _ in line.render(_CONSOLE):
        shown = style if style is None or colour else style.without_color
        parts.append(shown.render(text, color_system=ColorSystem.STANDARD) if shown else text)
    return "".join(parts)


# ------------------------------------------------------------------ above: what is known
def _title(scene: Scene, columns: int) -> Text:
    clock = f" {scene.clock} ──"
    name = Text(f"── {scene.title} ", style=STRONG)
    name.truncate(max(0, columns - len(clock) - 1), overflow="ellipsis")
    fill = max(0, min(columns, TITLE_COLUMNS) - name.cell_len - len(clock))
    return Text.assemble(name, ("─" * fill, DIM), (clock, DIM))


def _summary(scene: Scene, columns: int, most: int) -> list[Text]:
    """`most`: lines of each paragraph."""
    runs, total = sum(scene.runs.values()), ""
    if scene.expected is not None:
        total = f" of about {scene.expected}" if runs <= scene.expected else f", more than the {scene.expected} expected"
    cells = _counts(scene.cells)
    if scene.absent_values:
        cells = Text.assemble(cells, f"; {scene.absent_values} value{'s' * (scene.absent_values > 1)} cannot run here")
    paragraphs = {
        "runs": Text.assemble((f"{runs}", STRONG), total, ": " if runs else "", _counts(scene.runs)),
        "cells": Text.assemble((f"{sum(scene.cells.values())}", STRONG), ": ", cells),
        "learnt": Text(scene.learnt),
        "asking": Text(scene.asking),
    }
    shown = {label: text for label, text in paragraphs.items() if text and (scene.cells or label != "cells")}
    return [line for label, text in shown.items() for line in _paragraph(label, text, columns, most)]


def _counts(counts: Mapping[str, int]) -> Text:
    return Text(", ").join(Text(f"{counts[kind]} {kind}", style=style) for kind, style in STYLES.items() if counts.get(kind))


def _paragraph(label: str, text: Text, columns: int, most: int) -> list[Text]:
    """A label and its text beside it, wrapped."""
    wrapped = list(text.wrap(_CONSOLE, max(columns - LABEL, 8))) if most > 1 else [text]
    wrapped[most - 1 :] = [Text(" ").join(wrapped[most - 1 :])] if len(wrapped) > most else wrapped[most - 1 :]
    return [Text.assemble((label.ljust(LABEL) if not n else " " * LABEL, DIM), line) for n, line in enumerate(wrapped)]


# ------------------------------------------------------------------ below: what runs
def _blocks(rows: Sequence[Row], columns: int) -> list[list[Text]]:
    """The lines of each attempt, the most telling one first."""
    widths = [max(least, *(cell_len(row.figures[n]) for row in rows)) for n, least in enumerate(FIGURE_COLUMNS)] if rows else []
    if columns < NARROW_COLUMNS:
        return [[_cell(row), Text.assemble("  ", _figures(row, [0] * len(widths))), _last_line(row, 2)] for row in rows]
    room = columns - sum(widths) - 2 * len(widths) - NUMBER
    longest = max((cell_len(row.cell) for row in rows), default=0)
    if columns < INLINE_COLUMNS:
        return [[_one_line(row, widths, min(longest, room)), _last_line(row, NUMBER)] for row in rows]
    return [[Text.assemble(_one_line(row, widths, min(longest, room // 2)), "  ", (row.last_line, DIM))] for row in rows]


def _one_line(row: Row, widths: Sequence[int], room: int) -> Text:
    cell = _cell(row)
    cell.truncate(room + NUMBER, overflow="ellipsis", pad=True)
    return Text.assemble(cell, "  ", _figures(row, widths))


def _cell(row: Row) -> Text:
    return Text.assemble((row.number.ljust(NUMBER), DIM), (row.cell, STRONG))


def _figures(row: Row, widths: Sequence[int]) -> Text:
    step, rate, memory, age = (figure.rjust(width) for figure, width in zip(row.figures, widths, strict=True))
    return Text.assemble(step, "  ", rate, "  ", (memory, ALARM if row.memory_is_short else ""), "  ", (age, DIM))


def _last_line(row: Row, indent: int) -> Text:
    return Text(" " * indent + (row.last_line or "no output yet"), style=DIM)
