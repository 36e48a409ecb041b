"""Plots as SVG, drawn without pyplot, so that no display, user style or global state matters.

Each is drawn twice: wide for a page and for plots/*.svg, narrow for a phone.  In a page the colours become CSS
variables, so that dark mode needs no second set.
"""

from __future__ import annotations

import io
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from reports.cells import CellRow
from reports.curves import Drawn
from reports.text import clean, duration, one_line, plural, size

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, GRID, PAPER = "#1f2933", "#d5dbe1", "#fffffe"
DIED, SURVIVED, OTHER = "#b93815", "#0b7a75", "#64748b"
PARTS = [DIED, SURVIVED, "#5b5bd6", "#a16207", OTHER]  # roles of processes
VARIABLES = {INK: "--ink", GRID: "--line", PAPER: "--paper", DIED: "--died", SURVIVED: "--survived", OTHER: "--other"}
WIDE, NARROW = 7.4, 4.2  # inches of 72 points
MOST_ROWS, MOST_STEPS, FAR = 30, 6, 2.5
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "matrix", "text.parse_math": False, "font.family": "sans-serif", "font.size": 10,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": OTHER, "xtick.color": INK, "ytick.color": INK, "grid.color": GRID,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "axes.facecolor": PAPER,
    "figure.facecolor": PAPER, "legend.frameon": False, "legend.fontsize": 10, "lines.linewidth": 1.8, "axes.unicode_minus": False,
}  # fmt: skip
Draw = Callable[["Figure"], None]


def both(name: str, title: str, height: float, draw: Draw) -> tuple[str, str, str]:
    """(the file's SVG, the page's wide SVG, the page's narrow SVG); height in inches."""
    wide = _svg(WIDE, height, draw)
    narrow = _svg(NARROW, height * 1.1, draw)
    return _titled(wide, title), _inline(wide, f"{name}-w", title), _inline(narrow, f"{name}-n", title)


def _svg(width: float, height: float, draw: Draw) -> str:
    import matplotlib
    from matplotlib import style
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    sink = io.StringIO()
    with warnings.catch_warnings(), style.context("default"), matplotlib.rc_context(STYLE):  # the user's matplotlibrc does not count
        warnings.simplefilter("ignore")  # glyphs that our font lacks are drawn with the reader's fonts
        figure = Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        FigureCanvasSVG(figure)
        figure.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    return sink.getvalue()


def _titled(svg: str, title: str) -> str:
    return re.sub(r"(<svg [^>]*>)", lambda found: f"{found[1]}\n <title>{escape(clean(title))}</title>", svg, count=1)


def _inline(svg: str, prefix: str, title: str) -> str:
    """Without prolog, metadata and size; with ids of its own, a title, and variables for colours."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg ") :], flags=re.DOTALL)
    svg = re.sub(r"(\bid=\"|url\(#|xlink:href=\"#)", rf"\g<1>{prefix}-", svg)
    svg = re.sub(r"\b(?:width|height)=\"[\d.]+pt\" ?", "", svg, count=2)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    svg = svg.replace("<svg ", f'<svg role="img" aria-labelledby="{prefix}-title" ', 1)
    return re.sub(r"(<svg [^>]*>)", lambda found: f'{found[1]}<title id="{prefix}-title">{escape(clean(title))}</title>', svg, count=1)


# ------------------------------------------------------------------ memory over time
def memory(died: Drawn | None, survived: Drawn | None) -> Draw:
    shown = [(run, colour) for run, colour in ((survived, SURVIVED), (died, DIED)) if run]
    peak = max(max(run.curve.rss) for run, _ in shown)
    end = _last_time(died, survived)

    def draw(figure: Figure) -> None:
        axes, factor = figure.add_subplot(), _axis_unit(peak)
        for run, colour in shown:
            _one_curve(axes, run, colour, factor, end)
        _limit(axes, [run for run, _ in shown], peak, factor)
        axes.set_xlim(0, end * 1.04)
        axes.set_xlabel("time since the start of the run (s)")
        axes.set_ylabel(f"memory, sum of RSS ({'GiB' if factor == 2**30 else 'MiB'})")
        _step_axis(axes, died or shown[0][0], end)
        _legend(figure)

    return draw


def _last_time(died: Drawn | None, survived: Drawn | None) -> float:
    """A survivor that goes on for long is cut, or the death could not be seen."""
    ends = [_end(run) for run in (died, survived) if run]
    return min(max(ends), 3 * ends[0]) if died else max(ends)


def _end(run: Drawn) -> float:
    return max(run.curve.times[-1], min(run.seen.wall_s, run.curve.times[-1] * 1.5), 0.1)


def _axis_unit(peak: float) -> int:
    return 2**30 if peak >= 2**30 else 2**20


def _one_curve(axes: Axes, run: Drawn, colour: str, factor: int, end: float) -> None:
    curve = run.curve
    cut = f", goes on to {duration(_end(run))}" if _end(run) > end else ""
    axes.plot(curve.times, [amount / factor for amount in curve.rss], color=colour, label=_run_label(run) + cut)
    if max(all_ - own for all_, own in zip(curve.rss, curve.private, strict=True)) > 0.15 * max(curve.rss):
        label = "the same without shared and file-backed pages"
        axes.plot(curve.times, [amount / factor for amount in curve.private], color=colour, linewidth=1, linestyle=(0, (2, 2)), label=label)
    marker = {"marker": "X", "markersize": 10} if run.end.kind == "died" else {"marker": "o", "markersize": 7}
    axes.plot([curve.times[-1]], [curve.rss[-1] / factor], color=colour, markeredgecolor=PAPER, zorder=5, clip_on=True, **marker)  # type: ignore[arg-type]


def _run_label(run: Drawn) -> str:
    at = f" at step {run.end.step:,}" if run.end.step is not None else ""
    where = run.row.label if run.row.label != "as it is" else "known bad"
    how = f"died: {run.end.how}{at}" if run.end.kind == "died" else f"survived{at.replace(' at', ' to')}"
    return one_line(f"{how} ({run.seen.attempt.split('-')[0]}, {where})", 64)


def _limit(axes: Axes, runs: Sequence[Drawn], peak: float, factor: int) -> None:
    """A line where it can be drawn to scale, a sentence where it is far above, and one where there is none."""
    limit = next((run.seen.memory.limit_bytes for run in reversed(runs) if run.seen.memory.limit_bytes), None)
    if limit and limit <= FAR * peak:
        axes.axhline(limit / factor, color=INK, linewidth=1.2, linestyle=(0, (6, 3)), label=f"memory limit {size(limit)}")
    axes.set_ylim(0, 1.12 * max(peak, limit if limit and limit <= FAR * peak else 1.1 * peak) / factor)
    if limit and limit > FAR * peak:
        _note(axes, f"memory limit {size(limit)}: {limit / peak:.0f} times the peak, not to scale")
    elif not limit:
        _note(axes, "no memory limit was set")


def _note(axes: Axes, text: str) -> None:
    axes.annotate(text, (0.01, 0.985), xycoords="axes fraction", va="top", fontsize=9.5, style="italic")


def _step_axis(axes: Axes, run: Drawn, end: float) -> None:
    steps = [(time, step) for time, step in run.curve.steps if time <= end]
    if not steps:
        return
    marks = [steps[-1]]  # from the last one back, so that the step of a death is always there
    for time, step in reversed(steps):
        if marks[-1][0] - time > max(end / 10, (steps[-1][0] - steps[0][0]) / MOST_STEPS):
            marks.append((time, step))
    top = axes.secondary_xaxis("top")
    top.set_xticks([time for time, _ in marks], [f"{step:,}" for _, step in marks], fontsize=9)
    top.set_xlabel(f"step of the run that {'died' if run.end.kind == 'died' else 'survived'}", fontsize=9)


def _legend(figure: Figure, columns: int = 1) -> None:
    """Below the axes, wrapped to the width of the figure (a character takes about 5.5 points)."""
    handles, labels = figure.axes[0].get_legend_handles_labels()
    width = int((72 * figure.get_figwidth() - 45) / 5.5)
    figure.legend(handles, ["\n".join(wrap(label, width)) for label in labels], loc="outside lower left", ncols=columns, borderaxespad=0.2)


# ------------------------------------------------------------------ memory by process
def processes(run: Drawn) -> Draw:
    """Stacked, so that the upper edge is the sum."""
    peak = max(run.curve.rss)
    names = sorted(run.curve.by_role, key=lambda role: (role != "main", role))

    def draw(figure: Figure) -> None:
        axes, factor = figure.add_subplot(), _axis_unit(peak)
        layers = [[amount / factor for amount in run.curve.by_role[name]] for name in names]
        labels = [f"{one_line(name, 30)} ({plural(run.curve.processes.get(name, 1), 'process')})" for name in names]
        colours = [PARTS[position % len(PARTS)] for position in range(len(names))]
        axes.stackplot(run.curve.times, layers, labels=labels, colors=colours, alpha=0.75)
        axes.set(xlim=(0, _end(run) * 1.04), ylim=(0, None), xlabel="time since the start of the run (s)")
        axes.set_ylabel(f"memory by process, RSS ({'GiB' if factor == 2**30 else 'MiB'})")
        _legend(figure)

    return draw


# ------------------------------------------------------------------ where each run ended
def endings(rows: Sequence[CellRow]) -> tuple[Draw, float]:
    """The plot and its height in inches."""
    shown = list(rows[:MOST_ROWS])
    stepped = any(end.step is not None for row in shown for _, end in row.runs)

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        kinds = [_one_row(axes, row, -position, stepped) for position, row in enumerate(shown)]
        places = sorted(_place(seen.wall_s, end.step, stepped) for row in shown for seen, end in row.runs)
        _scale(axes, [place for place in places if place > 0], stepped)
        axes.set_ylim(-len(shown) + 0.35, 0.75)
        axes.set_yticks([])
        axes.grid(axis="y", visible=False)
        _key(axes, set().union(*kinds))
        _legend(figure, 3)

    return draw, 1.5 + 0.46 * len(shown)


MARKS: dict[str, dict[str, Any]] = {
    "died": {"marker": "X", "color": DIED, "markersize": 9},
    "survived": {"marker": "o", "color": SURVIVED, "markersize": 7},
    "censored": {"marker": ">", "color": OTHER, "markersize": 7},
}


def _one_row(axes: Axes, row: CellRow, y: float, stepped: bool) -> set[str]:
    label = row.label if row.role in {"", row.label} else f"{row.role}: {row.label}"
    axes.axhline(y, color=GRID, linewidth=1, zorder=1)
    axes.annotate(label, (0.005, y), xycoords=("axes fraction", "data"), xytext=(0, 6.5), textcoords="offset points", fontsize=9.5)
    places = Counter((end.kind, _place(seen.wall_s, end.step, stepped)) for seen, end in row.runs if end.kind in MARKS)
    for (kind, place), count in places.items():
        axes.plot([place], [y], linestyle="", markeredgecolor=PAPER, zorder=3, **MARKS[kind])
        if count > 1:
            axes.annotate(f"×{count}", (place, y), xytext=(7, -3.5), textcoords="offset points", fontsize=9)
    return {kind for kind, _ in places}


def _place(wall_s: float, step: int | None, stepped: bool) -> float:
    return float(step or 0) if stepped else wall_s


def _scale(axes: Axes, places: Sequence[float], stepped: bool) -> None:
    what = "step at which the run ended" if stepped else "seconds after which the run ended"
    wide = len(places) > 1 and places[-1] > 40 * places[0]
    if wide:
        axes.set_xscale("symlog", linthresh=max(1.0, places[0]))
    else:
        axes.locator_params(axis="x", nbins=6)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")  # the default of a logarithmic axis is mathematical markup
    axes.set_xlim(0, (1.6 if wide else 1.08) * max(places, default=1.0))
    axes.set_xlabel(what + (" (logarithmic)" if wide else ""))


def _key(axes: Axes, kinds: set[str]) -> None:
    for kind, mark in MARKS.items():
        if kind in kinds:
            axes.plot([], [], linestyle="", label=kind, **mark)


# ------------------------------------------------------------------ the same in words
def memory_alt(died: Drawn | None, survived: Drawn | None) -> str:
    parts = [
        f"{_run_label(run)}: peak {size(max(run.curve.rss))}, last sample {size(run.curve.rss[-1])}" for run in (died, survived) if run
    ]
    return f"Memory over time. {'. '.join(parts)}."
