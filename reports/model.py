"""What a report says, before it is markdown or HTML: sections of a few kinds of block, made of lines.

A `Span` holds raw text; the renderers clean and escape it, so no builder can forget to.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal

Tone = Literal["", "bad", "good", "warn", "calm"]


@dataclasses.dataclass(frozen=True)
class Span:
    text: str
    href: str | None = None  # relative to the run folder, or "#anchor"
    style: Literal["", "strong", "code"] = ""


Line = tuple[Span, ...]


def line(*parts: str | Span) -> Line:
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def strong(text: str) -> Span:
    return Span(text, style="strong")


def code(text: str) -> Span:
    return Span(text, style="code")


@dataclasses.dataclass(frozen=True)
class Para:
    line: Line
    tone: Tone = ""  # not "": set apart as a notice


@dataclasses.dataclass(frozen=True)
class Bullets:
    lines: list[Line]


@dataclasses.dataclass(frozen=True)
class Row:
    cells: list[Line]
    tone: Tone = ""
    sort: dict[int, float] = dataclasses.field(default_factory=dict)  # column -> what it is sorted by, where the text does not say


@dataclasses.dataclass(frozen=True)
class Table:
    caption: str
    columns: list[str]
    rows: list[Row]
    numeric: frozenset[int] = frozenset()  # columns aligned to the right
    prose: frozenset[int] = frozenset()  # columns that need room for a sentence
    most: int = 100  # rows in markdown; a page shows all of them, a page at a time


@dataclasses.dataclass(frozen=True)
class Code:
    text: str
    label: str  # what it is, for people who cannot see it


@dataclasses.dataclass(frozen=True)
class Plot:
    file: str  # "plots/memory.svg"
    title: str
    alt: str  # what can be seen in it, in words
    caption: Line
    still: str = ""  # the SVG for a page that may run no script; "" when only the file exists
    data: dict[str, Any] = dataclasses.field(default_factory=dict)  # for the script that draws it with values


@dataclasses.dataclass(frozen=True)
class Square:
    """One configuration of the matrix as a picture; None in its place: it was not run."""

    text: str  # "died 3/3"
    tone: Tone
    told: str  # what a reader is told of it: the whole configuration and how its runs ended
    href: str | None = None
    outlined: bool = False  # it is in the crash set


@dataclasses.dataclass(frozen=True)
class Grid:
    """Rows and columns are named by what differs from the known-bad configuration."""

    caption: str
    columns: list[str]
    rows: list[tuple[str, list[Square | None]]]
    file: str  # "plots/matrix.svg", the same picture for markdown
    note: Line = ()


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two texts side by side."""

    left: Code
    right: Code


@dataclasses.dataclass(frozen=True)
class Details:
    """Opened by the reader in a page; a heading in markdown."""

    title: str
    blocks: list[Para | Bullets | Table | Code | Heading]
    opened: bool = False


@dataclasses.dataclass(frozen=True)
class Heading:
    text: str


Block = Para | Bullets | Table | Code | Plot | Heading | Grid | Pair | Details


@dataclasses.dataclass(frozen=True)
class Section:
    id: str
    title: str
    blocks: list[Block]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReportModel:
    name: str
    label: str  # the status in two words
    tone: Tone
    headline: Line  # the verdict in one sentence, for summaries
    verdict: list[tuple[str, Line]]  # five lines: what dies, why, how sure, the fix, what was ruled out
    status: Line  # what the diagnosis says about its own state, and what was tried
    notices: list[Line]  # what must be read first: not complete, two failures
    sections: list[Section]
