"""The matrix as a picture: one square for each configuration that was run, the crash set outlined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matrix.records import Cell, Value, Verdict, describe_cell
from reports.cells import CellRow, outcome, tone
from reports.folder import RunFolder
from reports.launch import cell_key
from reports.model import Grid, Line, Square, line
from reports.text import clean, one_line, plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_COLUMNS, MOST_ROWS, NAME = 10, 40, 48
MARKS = {"bad": "✕", "good": "●", "calm": "▷", "warn": "–"}


def grid(folder: RunFolder, found: Sequence[CellRow]) -> Grid | None:
    """None when fewer than two configurations were run.  Runs with probes are left out: they change something else."""
    known_bad = folder.plan.known_bad if folder.plan else {}
    plain = [row for row in found if not row.probes]
    if len(plain) < 2 or not known_bad:
        return None
    across, down = _axes(plain, folder.verdict)
    columns, rows = _names(plain, across)[:MOST_COLUMNS], _names(plain, down)
    place = {(cell_key(_part(row.cell, down)), cell_key(_part(row.cell, across))): row for row in plain}
    culprit = _culprit(folder.verdict)
    squares = [
        (_differs(down_, known_bad), [_square(folder, place.get((cell_key(down_), cell_key(across_))), culprit) for across_ in columns])
        for down_ in rows
    ]
    shown = [(name, line_) for name, line_ in squares if any(line_)][:MOST_ROWS]
    drawn = sum(square is not None for _, line_ in shown for square in line_)
    note = _note(drawn, len(plain), bool(culprit))
    caption = (
        f"Rows: {', '.join(down) or 'all runs'}. Columns: {', '.join(across) or 'all runs'}. Named by what differs from the known-bad cell."
    )
    return Grid(one_line(caption), [_differs(column, known_bad) for column in columns], shown, "plots/matrix.svg", note)


def _axes(plain: Sequence[CellRow], verdict: Verdict | None) -> tuple[list[str], list[str]]:
    """Axes for columns and rows: those of the crash set first, in turn, so that it is a block; then those with most values."""
    names = list(dict.fromkeys(name for row in plain for name in row.cell))
    values = {name: len({cell_key({name: row.cell.get(name, "")}) for row in plain}) for name in names}
    culprit = list(_culprit(verdict))
    order = sorted((name for name in names if values[name] > 1), key=lambda name: (name not in culprit, -values[name]))
    across: list[str] = []
    down: list[str] = []
    for name in order:
        more = _names(plain, [*across, name])
        if len(across) <= len(down) and len(more) <= MOST_COLUMNS:
            across.append(name)
        else:
            down.append(name)
    return across, down


def _names(plain: Sequence[CellRow], axes: Sequence[str]) -> list[Cell]:
    """The combinations that were run, those nearest to known-bad first."""
    changed = {cell_key(_part(row.cell, axes)): sum(name in row.changed for name in axes) for row in plain}
    cells = {cell_key(part): part for part in (_part(row.cell, axes) for row in plain)}
    return [cells[key] for key in sorted(cells, key=lambda key: changed[key])]


def _part(cell: Cell, axes: Sequence[str]) -> Cell:
    return {name: cell[name] for name in axes if name in cell}


def _differs(part: Cell, known_bad: Cell) -> str:
    changed = {name: value for name, value in part.items() if cell_key({name: value}) != cell_key({name: known_bad.get(name, "")})}
    return one_line(describe_cell(changed), NAME) or "as known bad"


def _culprit(verdict: Verdict | None) -> dict[str, list[Value]]:
    return verdict.ranking[0].culprit if verdict and verdict.ranking else {}


def crash_set(rows: Sequence[CellRow], verdict: Verdict | None) -> list[CellRow]:
    """The configurations that the verdict says die, without probes; [] where it names no axis."""
    culprit = _culprit(verdict)
    return [row for row in rows if not row.probes and _inside(row, culprit)]


def _inside(row: CellRow, culprit: dict[str, list[Value]]) -> bool:
    return bool(culprit) and all(
        cell_key({"": row.cell.get(axis, "")}) in {cell_key({"": value}) for value in dying} for axis, dying in culprit.items()
    )


def _square(folder: RunFolder, row: CellRow | None, culprit: dict[str, list[Value]]) -> Square | None:
    if row is None:
        return None
    died, total = len(row.of("died")), len(row.runs)
    kind = "died" if died else next((kind for kind in ("survived", "censored", "unavailable") if row.of(kind)), "")
    text = f"{kind} {len(row.of(kind))}/{total}"
    inside = _inside(row, culprit)
    told = one_line(f"{describe_cell(row.cell)}: {outcome(row)}", 400) + ("; in the crash set" if inside else "")
    return Square(text, tone(row), told, folder.attempt_href(row.runs[0][0].attempt, "observation.json"), inside)


def _note(drawn: int, total: int, outlined: bool) -> Line:
    parts = ["A heavy outline marks the crash set: configurations that the verdict says die. "] if outlined else []
    parts += [f"{plural(total - drawn, 'configuration')} of {total} did not fit and are in the table below. "] if drawn < total else []
    return line(*parts, "An empty square was not run; runs with probes are not in this picture.")


# ------------------------------------------------------------------ the file
def picture(found: Grid) -> str:
    """The SVG file of the picture."""
    from reports.draw import drawn

    height = 0.95 + 0.42 * len(found.rows)
    alt = f"{found.caption} " + " ".join(f"{square.told}." for _, squares in found.rows for square in squares if square)[:4000]
    return drawn(lambda figure: _draw(figure, found), height, alt, width=_left(found) + 1.15 * len(found.columns) + 0.1)


def _left(found: Grid) -> float:
    """Inches for the names of the rows."""
    longest = max(len(part) for name, _ in found.rows for part in _wrapped(name, 34).split("\n"))
    return 0.25 + 0.075 * longest


def _draw(figure: Figure, found: Grid) -> None:
    from reports.draw import PAPER, margins

    axes = figure.add_subplot()
    places = [(row, column, square) for row, (_, squares) in enumerate(found.rows) for column, square in enumerate(squares)]
    _draw_squares(axes, places)
    for row, column, square in places:
        if square:
            text = f"{MARKS.get(square.tone, '')} {square.text}"
            axes.text(column, row, text, ha="center", va="center", color=PAPER, fontsize=8.5, zorder=4)
    axes.set_xlim(-0.55, len(found.columns) - 0.45)
    axes.set_ylim(len(found.rows) - 0.4, -0.6)
    axes.set_xticks(range(len(found.columns)), [_wrapped(name, 16) for name in found.columns], fontsize=8.5)
    axes.set_yticks(range(len(found.rows)), [_wrapped(name, 34) for name, _ in found.rows], fontsize=8.5)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    margins(figure, left=_left(found), right=0.1, top=0.85, bottom=0.1)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_squares(axes: Axes, places: Sequence[tuple[int, int, Square | None]]) -> None:
    """A collection for each look: an artist for each of hundreds of squares takes seconds."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    from reports.draw import GRID, HUES, INK, PAPER

    colours = {"bad": HUES["died"], "good": HUES["survived"], "calm": HUES["other"], "warn": HUES["fourth"]}
    looks: dict[tuple[str, bool], list[Rectangle]] = {}
    for row, column, square in places:
        look = (colours.get(square.tone, PAPER), square.outlined) if square else (PAPER, False)
        looks.setdefault(look, []).append(Rectangle((column - 0.46, row - 0.42), 0.92, 0.84))
    for (colour, outlined), squares in looks.items():
        edge, width = (INK, 2.6) if outlined else (GRID, 0.8)
        axes.add_collection(PatchCollection(squares, facecolor=colour, edgecolor=edge, linewidth=width, zorder=3 if outlined else 2))


def _wrapped(name: str, width: int) -> str:
    from textwrap import wrap

    return "\n".join(wrap(clean(name), width)[:4])
