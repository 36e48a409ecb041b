"""What a plot shows, before anything is drawn: lines, marks, bars, rules and two axes.

One chart is drawn twice, by `draw.py` as a still SVG and by `templates/report.js` in the page; neither knows what it means.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Kind = Literal["seconds", "steps", "bytes", "share", "number", "rows"]
Hue = Literal["died", "survived", "other", "third", "fourth", "ink"]
Shape = Literal["cross", "dot", "ring", "arrow", "diamond"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Axis:
    """low and high in the kind's own unit: seconds, steps, bytes, shares of 1."""

    label: str  # without the unit of size, which the drawing chooses and adds
    kind: Kind
    low: float = 0.0
    high: float = 1.0
    logarithmic: bool = False  # linear below 1
    rows: list[str] = dataclasses.field(default_factory=list)  # of kind rows: row i stands at y = i, the first on top


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    name: str
    xs: list[float]
    ys: list[float]
    hue: Hue
    strong: bool = True  # False: one of several, drawn thin and pale
    dashed: bool = False
    filled: bool = False  # down to the ground; later curves cover earlier ones
    shown: list[float] | None = None  # what a reader is told of each point; None: ys
    listed: bool = True  # in the key


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mark:
    x: float
    y: float
    text: str  # what a reader is told of it
    low: float | None = None  # ends of an interval along y; None: a point only
    high: float | None = None
    wide: tuple[float, float] | None = None  # a bar along x, for a bin


@dataclasses.dataclass(frozen=True, kw_only=True)
class Marks:
    name: str  # in the key, and what the reader filters by
    hue: Hue
    shape: Shape
    marks: list[Mark]
    listed: bool = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bar:
    row: float
    start: float
    end: float
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bars:
    name: str
    hue: Hue
    bars: list[Bar]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rule:
    """A line across the whole plot."""

    y: float
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chart:
    name: str  # of the file and of the elements in the page
    title: str
    alt: str  # what can be seen in it, in words
    x: Axis
    y: Axis
    curves: list[Curve] = dataclasses.field(default_factory=list)  # later ones on top
    marks: list[Marks] = dataclasses.field(default_factory=list)
    bars: list[Bars] = dataclasses.field(default_factory=list)
    rules: list[Rule] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)  # sentences inside the plot
    top: list[tuple[float, str]] = dataclasses.field(default_factory=list)  # places of x with another name, such as steps
    top_label: str = ""
    height: float = 4.4  # inches of the still picture

    def data(self) -> dict[str, Any]:
        """For the page: short lists, figures with the digits that can be seen."""
        return {
            "name": self.name,
            "alt": self.alt,
            "x": vars(self.x),
            "y": vars(self.y),
            "curves": [{**vars(curve), **_rounded(curve)} for curve in self.curves],
            "marks": [{**vars(group), "marks": [_mark(mark) for mark in group.marks]} for group in self.marks],
            "bars": [{**vars(group), "bars": [[b.row, _short(b.start), _short(b.end), b.text] for b in group.bars]} for group in self.bars],
            "rules": [vars(rule) for rule in self.rules],
            "notes": self.notes,
            "top": self.top,
            "topLabel": self.top_label,
        }


def _short(value: float) -> float:
    return float(f"{value:.6g}") if abs(value) < 1e15 else value


def _rounded(curve: Curve) -> dict[str, Any]:
    shown = None if curve.shown is None else [_short(value) for value in curve.shown]
    return {"xs": [_short(value) for value in curve.xs], "ys": [_short(value) for value in curve.ys], "shown": shown}


def _mark(mark: Mark) -> list[Any]:
    wide = mark.wide and [_short(mark.wide[0]), _short(mark.wide[1])]
    return [_short(mark.x), _short(mark.y), mark.text, mark.low, mark.high, wide]
