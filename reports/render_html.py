"""A report as one HTML file that needs nothing else: no network, no second file.

One script of ours makes it interactive; the page's own policy names the hash of it and lets no other run, whatever a
program printed.  Without it everything is there still: tables as they are and plots as still pictures.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reports.grid import MARKS
from reports.model import Block, Line, ReportModel, Span
from reports.text import clean

if TYPE_CHECKING:
    from markupsafe import Markup

TEMPLATES = Path(__file__).with_name("templates")
LONGEST_BLOCK = 20_000  # characters of one code block
_UNIT = re.compile(r"(?<=\d) (?=(?:%|s|min|h|[KMGT]?i?B)(?!\w))")  # a figure and its unit stay on one line


def to_html(model: ReportModel) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(
        inline=_inline, clean=clean, block=lambda text: clean(text, LONGEST_BLOCK).strip("\n"), drawn=Markup, data=_data
    )
    environment.tests["kind"] = _is_kind
    environment.globals["mark"] = lambda tone: MARKS.get(tone, "")
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    page = environment.get_template("report.html.j2")
    return page.render(report=model, script=Markup(script), script_hash=Markup(f"sha256-{digest}")) + "\n"


def _is_kind(block: Block, kind: str) -> bool:
    return type(block).__name__ == kind


def _inline(line: Line) -> Markup:
    """Escapes every text; no white space is added between spans."""
    from markupsafe import Markup

    return Markup("".join(map(_span, line)))


def _span(span: Span) -> str:
    text = escape(clean(span.text) if span.style == "code" else _UNIT.sub("\u00a0", clean(span.text)))
    text = f"<{span.style}>{text}</{span.style}>" if span.style else text  # strong and code are names of elements too
    return f'<a href="{escape(span.href)}">{text}</a>' if span.href else text


def _data(data: dict[str, Any]) -> Markup:
    """JSON that cannot end the element it stands in; every text in it cleaned."""
    from markupsafe import Markup

    text = json.dumps(_cleaned(data), ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {name: _cleaned(inner) for name, inner in value.items()}
    return [_cleaned(inner) for inner in value] if isinstance(value, (list, tuple)) else value
