"""What a report says, before it is markdown or HTML: sections of a few kinds of block, made of lines.

A `Span` holds raw text; the renderers clean and escape it, so no builder can forget to.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

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


@dataclasses.dataclass(frozen=True)
class Table:
    caption: str
    columns: list[str]
    rows: list[Row]
    numeric: frozenset[int] = frozenset()  # columns aligned to the right
    prose: frozenset[int] = frozenset()  # columns that need room for a sentence


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
    wide: str = ""  # the SVG for a page; "" when only the file exists
    narrow: str = ""  # the same for a phone


@dataclasses.dataclass(frozen=True)
class Heading:
    text: str


Block = Para | Bullets | Table | Code | Plot | Heading


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
    headline: Line  # the verdict in one sentence
    status: Line  # what the diagnosis says about its own state
    key_figures: list[tuple[str, str]]
    notices: list[Line]  # what must be read first: not complete, two failures
    sections: list[Section]
