"""A report as one HTML file that needs nothing else: no script, no network, no second file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from reports.model import Block, Line, ReportModel, Span
from reports.text import clean

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATES = Path(__file__).with_name("templates")
LONGEST_BLOCK = 20_000  # characters of one code block
_UNIT = re.compile(r"(?<=\d) (?=(?:%|s|min|h|[KMGT]?i?B)(?!\w))")  # a figure and its unit stay on one line


def to_html(model: ReportModel) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(inline=_inline, clean=clean, block=lambda text: clean(text, LONGEST_BLOCK).strip("\n"), drawn=_drawn)
    environment.tests["kind"] = _is_kind
    return environment.get_template("report.html.j2").render(report=model) + "\n"


def _is_kind(block: Block, kind: str) -> bool:
    return type(block).__name__ == kind


def _inline(line: Line) -> Markup:
    """Escapes every text; no white space is added between spans."""
    from markupsafe import Markup

    return Markup("").join(map(_span, line))


def _span(span: Span) -> Markup:
    from markupsafe import Markup, escape

    text = escape(clean(span.text) if span.style == "code" else _UNIT.sub("\u00a0", clean(span.text)))
    tag = {"strong": "strong", "code": "code"}.get(span.style)
    text = Markup(f"<{tag}>{{}}</{tag}>").format(text) if tag else text
    return Markup('<a href="{}">{}</a>').format(span.href, text) if span.href else text


def _drawn(svg: str) -> Markup:
    """Our own SVG, in which matplotlib has escaped every text."""
    from markupsafe import Markup

    return Markup(svg)
