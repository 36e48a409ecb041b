"""A report as GitHub-flavoured markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence

from reports.model import Block, Bullets, Code, Details, Grid, Heading, Line, Pair, Para, Plot, ReportModel, Section, Span, Table
from reports.text import clean, one_line

_SPECIAL = re.compile(r"([\\`*\[\]<|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")  # an underscore inside a word means nothing

_STARTS_BLOCK = re.compile(r"^(\s*\d*)([#+=.)>-])(?=[#+=-]*(?:\s|$)|(?<=>))")  # a heading, a list, a rule, a quote


def to_markdown(model: ReportModel) -> str:
    lines = Bullets([(Span(f"{name}:", style="strong"), Span(" "), *said) for name, said in model.verdict])
    parts = [f"# {escape(model.name)}: {escape(model.label)}", _block(lines), inline(model.status)]
    parts += [f"> {inline(notice)}" for notice in model.notices]
    return "\n\n".join([*filter(None, parts), *(_section(section) for section in model.sections)]) + "\n"


def _section(section: Section) -> str:
    title = f'<a id="{section.id}"></a>\n\n## {escape(section.title)}'
    return f"{title}\n\n{blocks_to_markdown(section.blocks)}"


def blocks_to_markdown(blocks: Sequence[Block]) -> str:
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: Block) -> str:
    if isinstance(block, Para):
        return _paragraph(block)
    if isinstance(block, Bullets):
        return "\n".join(f"- {inline(line)}" for line in block.lines)
    if isinstance(block, Heading):
        return f"### {escape(block.text)}"
    if isinstance(block, Code):
        return fenced(block.text)
    if isinstance(block, Plot):
        return f"![{escape(one_line(block.alt))}]({block.file})\n\n{inline(block.caption)}"
    if isinstance(block, Grid):
        return f"![{escape(block.caption)}]({block.file})\n\n{inline(block.note)}"
    if isinstance(block, Pair):
        return "\n\n".join(f"{escape(side.label).capitalize()}:\n\n{fenced(side.text)}" for side in (block.left, block.right))
    if isinstance(block, Details):
        return "\n\n".join([f"### {escape(block.title)}", *(_inner(part) for part in block.blocks)])
    return _table(block)


def _inner(block: Block) -> str:
    return f"#### {escape(block.text)}" if isinstance(block, Heading) else _block(block)


def _paragraph(block: Para) -> str:
    text = inline(block.line)
    return f"> {text}" if block.tone else text


def _table(table: Table) -> str:
    from tabulate import tabulate

    rows = [[inline(cell, in_table=True) for cell in row.cells] for row in table.rows[: table.most]]
    align = ["right" if position in table.numeric else "left" for position in range(len(table.columns))]
    text = tabulate(
        rows, [escape(name) for name in table.columns], tablefmt="github", disable_numparse=True, colalign=align if rows else None
    )
    more = len(table.rows) - len(rows)
    return f"{text}\n\n{more:,} more rows are in [report.html](report.html)." if more > 0 else text


def inline(line: Line, in_table: bool = False) -> str:
    text = "".join(_span(span, in_table) for span in line)
    return text if in_table else _STARTS_BLOCK.sub(r"\1\\\2", text)


def _span(span: Span, in_table: bool) -> str:
    text = code(span.text, in_table) if span.style == "code" else escape(span.text)
    if span.style == "strong" and text.strip():
        text = f"**{text.strip()}**" + " " * (len(text) - len(text.rstrip()))
    return f"[{text}]({span.href})" if span.href else text


def escape(text: str) -> str:
    """Text that markdown shows as it is, also inside a table; one line, outer spaces kept."""
    flat = clean(text).replace("\n", " ")
    flat = re.sub(r"&(?=#?\w+;)", "&amp;", flat)
    return _SPECIAL.sub(r"\\\1", flat)


def code(text: str, in_table: bool = False) -> str:
    """A code span whose fence is longer than any in the text; a table ends its cell at a pipe even in one."""
    flat = one_line(text).replace("|", "\\|") if in_table else one_line(text)
    fence = "`" * (_longest_run(flat) + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat}{pad}{fence}" if flat else ""


def fenced(text: str) -> str:
    """A code block whose fence is longer than any in the text."""
    body = clean(text, 20_000).strip("\n")
    fence = "`" * max(3, _longest_run(body) + 1)
    return f"{fence}text\n{body}\n{fence}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
