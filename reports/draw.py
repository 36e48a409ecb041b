"""A chart as a still SVG, drawn without pyplot, so that no display, user style or global state matters.

Died is a dark orange cross and survived a teal dot: they differ in form and in lightness, not in hue alone.  In the page
the colours become CSS variables, so that dark mode needs no second drawing.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from textwrap import wrap
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from reports.chart import Axis, Bars, Chart, Curve, Marks
from reports.text import clean, one_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, GRID, PAPER = "#1f2933", "#d5dbe1", "#fffffe"
HUES = {"died": "#b93815", "survived": "#0b7a75", "other": "#64748b", "third": "#5b5bd6", "fourth": "#a16207", "ink": INK}
VARIABLES = {INK: "--ink", GRID: "--line", PAPER: "--paper", **{colour: f"--{hue}" for hue, colour in HUES.items() if hue != "ink"}}
SHAPES: dict[str, dict[str, Any]] = {
    "cross": {"marker": "X", "markersize": 9},
    "dot": {"marker": "o", "markersize": 7},
    "ring": {"marker": "o", "markersize": 7, "fillstyle": "none", "markeredgewidth": 1.6},
    "arrow": {"marker": ">", "markersize": 7},
    "diamond": {"marker": "D", "markersize": 7},
}
WIDTH = 7.4  # inches of 72 points
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none", "svg.hashsalt": "matrix", "text.parse_math": False, "font.family": "sans-serif", "font.size": 10,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": HUES["other"], "xtick.color": INK, "ytick.color": INK, "grid.color": GRID,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True, "axes.facecolor": PAPER,
    "figure.facecolor": PAPER, "legend.frameon": False, "legend.fontsize": 10, "lines.linewidth": 1.8, "axes.unicode_minus": False,
}  # fmt: skip


def still(chart: Chart) -> str:
    """The SVG file of a chart."""
    return drawn(lambda figure: _draw(figure, chart), chart.height, chart.alt)


def drawn(draw: Callable[[Figure], None], height: float, alt: str, width: float = WIDTH) -> str:
    """An SVG file with a title; sizes in inches."""
    import matplotlib
    from matplotlib import style
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    sink = io.StringIO()
    with warnings.catch_warnings(), style.context("default"), matplotlib.rc_context(STYLE):  # the user's matplotlibrc does not count
        warnings.simplefilter("ignore")  # glyphs that our font lacks are drawn with the reader's fonts
        figure = Figure(figsize=(width, height))
        draw(figure)
        FigureCanvasSVG(figure)
        figure.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    title = f"\n <title>{escape(clean(alt, 6000))}</title>"
    return re.sub(r"(<svg [^>]*>)", lambda found: found[1] + title, sink.getvalue(), count=1)


def inline(svg: str, name: str) -> str:
    """The file's SVG for a page: without prolog, metadata and size; with ids of its own, and variables for colours."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg ") :], flags=re.DOTALL)
    svg = re.sub(r"(\bid=\"|url\(#|xlink:href=\"#)", rf"\g<1>{name}-", svg)
    svg = re.sub(r"\b(?:width|height)=\"[\d.]+pt\" ?", "", svg, count=2)
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    svg = svg.replace("<svg ", f'<svg role="img" aria-labelledby="{name}-title" ', 1)
    return svg.replace("<title>", f'<title id="{name}-title">', 1)


def _draw(figure: Figure, chart: Chart) -> None:
    axes = figure.add_subplot()
    across, up = unit(chart.x), unit(chart.y)
    for curve in chart.curves:
        _curve(axes, curve, across, up)
    for bars in chart.bars:
        _bars(axes, bars, across)
    for group in chart.marks:
        _marks(axes, group, across, up)
    for rule in chart.rules:
        axes.axhline(rule.y / up, color=INK, linewidth=1.3, linestyle=(0, (6, 3)), label=rule.text)
    _axes(axes, chart, across, up)
    for position, note in enumerate(chart.notes):
        axes.annotate(
            note,
            (0.01, 0.985),
            (0, -13 * position),
            xycoords="axes fraction",
            textcoords="offset points",
            va="top",
            fontsize=9.5,
            style="italic",
        )
    below = _legend(figure, 3 if chart.y.kind == "rows" else 1)
    left = 0.15 if chart.y.kind == "rows" else 0.95
    margins(figure, left=left, right=0.15, top=0.55 if chart.top else 0.12, bottom=0.55 + below)


def margins(figure: Figure, *, left: float, right: float, top: float, bottom: float) -> None:
    """In inches.  They are known here, and to have matplotlib measure every text takes as long as all the rest."""
    width, height = figure.get_size_inches()
    figure.subplots_adjust(left / width, bottom / height, 1 - right / width, 1 - top / height)


def unit(axis: Axis) -> float:
    """What one of the axis' figures is worth: bytes are shown in MiB or GiB, shares in percent."""
    if axis.kind == "bytes":
        return 2.0**30 if axis.high >= 2**30 else 2.0**20
    return 0.01 if axis.kind == "share" else 1.0


def _curve(axes: Axes, curve: Curve, across: float, up: float) -> None:
    xs, ys = [x / across for x in curve.xs], [y / up for y in curve.ys]
    colour = HUES[curve.hue]
    if curve.filled:
        axes.fill_between(xs, ys, color=colour, linewidth=0, label=curve.name)
        return
    look: dict[str, Any] = {"linewidth": 2.0} if curve.strong else {"linewidth": 0.9, "alpha": 0.55}
    look |= {"linestyle": (0, (2, 2)), "linewidth": 1.1} if curve.dashed else {}
    axes.plot(xs, ys, color=colour, label=curve.name if curve.listed else "_", **look)


def _marks(axes: Axes, group: Marks, across: float, up: float) -> None:
    colour = HUES[group.hue]
    for mark in group.marks:
        if mark.low is not None and mark.high is not None:
            axes.plot([mark.x / across] * 2, [mark.low / up, mark.high / up], color=colour, linewidth=1.6)
        if mark.wide:
            axes.plot([mark.wide[0] / across, mark.wide[1] / across], [mark.y / up] * 2, color=colour, linewidth=1.6)
    edge = colour if group.shape == "ring" else PAPER
    look = SHAPES[group.shape] | ({"markersize": 5, "markeredgewidth": 0.3} if len(group.marks) > 300 else {})
    xs, ys = [mark.x / across for mark in group.marks], [mark.y / up for mark in group.marks]
    axes.plot(xs, ys, linestyle="", color=colour, markeredgecolor=edge, zorder=4, label=group.name if group.listed else "_", **look)


def _bars(axes: Axes, group: Bars, across: float) -> None:
    """One collection for each row: an artist for each of thousands of bars takes seconds."""
    for row in sorted({bar.row for bar in group.bars}):
        spans = [(bar.start / across, (bar.end - bar.start) / across) for bar in group.bars if bar.row == row]
        axes.broken_barh(spans, (row - 0.1, 0.4), facecolor=HUES[group.hue], edgecolor=PAPER, linewidth=0 if len(spans) > 200 else 0.5)
    axes.plot([], [], color=HUES[group.hue], linewidth=8, label=group.name)


def _axes(axes: Axes, chart: Chart, across: float, up: float) -> None:
    if chart.x.logarithmic:
        axes.set_xscale("symlog", linthresh=1.0)
    elif chart.x.kind != "rows":
        axes.locator_params(axis="x", nbins=7, steps=[1, 2, 5, 10], integer=chart.x.kind == "steps")
    axes.set_xlim(chart.x.low / across, chart.x.high / across)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")  # the default of a logarithmic axis is mathematical markup
    axes.set_xlabel(label(chart.x))
    if chart.y.kind == "rows":
        _rows(axes, chart.y)
    else:
        axes.set_ylim(chart.y.low / up, chart.y.high / up)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axes.set_ylabel(label(chart.y))
    if chart.top:
        top = axes.secondary_xaxis("top")
        top.set_xticks([x / across for x, _ in chart.top], [text for _, text in chart.top], fontsize=9)
        top.set_xlabel(chart.top_label, fontsize=9)


def _rows(axes: Axes, axis: Axis) -> None:
    """The names stand above their rows, so that a long one takes no width."""
    axes.set_ylim(len(axis.rows) - 0.35, -0.75)
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    for row, name in enumerate(axis.rows):
        axes.axhline(row, color=GRID, linewidth=1, zorder=1)
        axes.annotate(one_line(name, 90), (0.005, row), (0, 6.5), ("axes fraction", "data"), "offset points", fontsize=9.5)


def label(axis: Axis) -> str:
    """With its unit."""
    units = {"bytes": "GiB" if unit(axis) == 2**30 else "MiB", "seconds": "s", "share": "%"}
    scale = ", logarithmic" if axis.logarithmic else ""
    known = units.get(axis.kind, "") + scale
    return f"{axis.label} ({known.removeprefix(', ')})" if known else axis.label


def _legend(figure: Figure, columns: int) -> float:
    """Below the axes, wrapped to the width of the figure (a character takes about 5.5 points); returns its height in inches."""
    handles, labels = (entries[::-1] if columns == 1 else entries for entries in figure.axes[0].get_legend_handles_labels())
    width = int((72 * WIDTH - 45) / 5.5)
    columns = columns if max(map(len, labels), default=0) < 30 else 1
    lines = [wrap(str(text), width) for text in labels]
    figure.legend(handles, ["\n".join(parts) for parts in lines], loc="lower left", ncols=columns, borderaxespad=0.2)
    return 0.12 + 0.2 * (sum(map(len, lines)) if columns == 1 else -(-len(lines) // columns))
