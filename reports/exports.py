"""A run folder for machines: JSON, CSV, JUnit XML for CI systems, and the summary of a CI job in markdown."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from matrix.records import describe_cell
from reports.attempts import AttemptRow, attempt_rows
from reports.cells import CellRow, outcome, rows
from reports.decision import Choice, choices, decision
from reports.folder import RunFolder, load
from reports.handout import handed_out
from reports.head import headline, label, verdict_lines
from reports.model import Line, Row, Section, Span, Table
from reports.render_markdown import blocks_to_markdown, escape, inline
from reports.surroundings import untested
from reports.text import clean, one_line

SCHEMA = "matrix.report/1"
SUMMARY_ROWS = 20


def export(run_dir: Path, form: str) -> str:
    """The run as json, csv, junit or summary, without secrets.  Raises FileNotFoundError when there is no such folder."""
    folder = load(Path(run_dir))
    name = f"report.{SUFFIXES[form]}"
    return handed_out([folder], {name: FORMS[form](folder)})[name]


# ------------------------------------------------------------------ JSON and CSV
def to_json(folder: RunFolder) -> str:
    """The verdict, every attempt and every configuration; null where a file could not be read."""
    found = {
        "schema": SCHEMA,
        "name": folder.verdict.name if folder.verdict else folder.plan.name if folder.plan else folder.path.resolve().name,
        "headline": clean("".join(span.text for span in headline(folder))),
        "verdict": folder.verdict,
        "plan": folder.plan,
        "attempts": attempt_rows(folder),
        "configurations": [configuration(choice) for choice in choices(rows(folder))],
        "problems": folder.problems,
    }
    return json.dumps(found, default=vars, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def configuration(choice: Choice) -> dict[str, Any]:
    """Figures of one configuration, without the runs themselves."""
    figures = {field.name: getattr(choice, field.name) for field in dataclasses.fields(choice) if field.name != "row"}
    attempts = [seen.attempt for seen, _ in choice.row.runs]
    return {"cell": choice.row.cell, "role": choice.row.role or None, **figures, "attempts": attempts}


def to_csv(folder: RunFolder) -> str:
    """One line for each attempt, with a column for each axis and each probe."""
    found = attempt_rows(folder)
    axes = list(dict.fromkeys(name for row in found for name in row.cell))
    probes = list(dict.fromkeys(name for row in found for name in row.probes))
    plain = [field.name for field in dataclasses.fields(AttemptRow) if field.name not in {"cell", "probes"}]
    sink = io.StringIO()
    table = csv.writer(sink, lineterminator="\n")
    table.writerow([*plain, *(_safe(f"axis:{name}") for name in axes), *(_safe(f"probe:{name}") for name in probes)])
    for row in found:
        values = [
            *(getattr(row, name) for name in plain),
            *(row.cell.get(name) for name in axes),
            *(row.probes.get(name) for name in probes),
        ]
        table.writerow([_safe(value) if isinstance(value, str) else value for value in values])
    return sink.getvalue()


def _safe(text: str) -> str:
    """Spreadsheets run what begins with these signs; a number may begin with a minus."""
    text = one_line(text)
    try:
        float(text)
    except ValueError:
        return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text
    return text


# ------------------------------------------------------------------ CI systems
def to_junit(folder: RunFolder) -> str:
    """One test case for each configuration: failed where a run died, skipped where none came to an end."""
    found = rows(folder)
    name = folder.verdict.name if folder.verdict else folder.path.resolve().name
    failed, skipped = sum(bool(row.of("died")) for row in found), sum(_skipped(row) for row in found)
    seconds = sum(seen.wall_s for row in found for seen, _ in row.runs)
    suite = ElementTree.Element(
        "testsuite", name=clean(name), tests=str(len(found)), failures=str(failed), skipped=str(skipped), errors="0", time=f"{seconds:.3f}"
    )
    for row in found:
        _case(suite, row, clean(name))
    system = ElementTree.SubElement(suite, "system-out")
    system.text = "\n".join(f"{title}: {clean(''.join(span.text for span in said))}" for title, said in _cleaned(verdict_lines(folder)))
    whole = ElementTree.Element("testsuites")
    whole.append(suite)
    ElementTree.indent(whole)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(whole, encoding="unicode") + "\n"


def _skipped(row: CellRow) -> bool:
    return not row.of("died") and not row.of("survived")


def _case(suite: ElementTree.Element, row: CellRow, name: str) -> None:
    probes = "".join(f" probe:{probe}={setting}" for probe, setting in row.probes.items())
    seconds = sum(seen.wall_s for seen, _ in row.runs)
    case = ElementTree.SubElement(suite, "testcase", classname=name, name=one_line(describe_cell(row.cell) + probes), time=f"{seconds:.3f}")
    if row.of("died"):
        seen, end = next(run for run in row.runs if run[1].kind == "died")
        failure = ElementTree.SubElement(case, "failure", message=clean(outcome(row)), type=one_line(end.how, 200))
        failure.text = clean("\n".join([f"attempt {seen.attempt}", *seen.output_tail[-12:]]), 20_000)
    elif _skipped(row):
        ElementTree.SubElement(case, "skipped", message=clean(outcome(row)))


def to_summary(folder: RunFolder) -> str:
    """For $GITHUB_STEP_SUMMARY: the verdict in five lines, the safest configurations, what was not tested; no links."""
    text, _ = label(folder.verdict)
    name = folder.verdict.name if folder.verdict else folder.path.resolve().name
    parts = [f"## {escape(name)}: {escape(text)}", *(f"- **{title}:** {inline(said)}" for title, said in _cleaned(verdict_lines(folder)))]
    table = decision(folder, rows(folder))
    sections = [*([_shortened(table)] if table else []), untested(folder)]
    body = [part for section in sections for part in (f"### {escape(section.title)}", blocks_to_markdown(section.blocks))]
    return "\n".join(parts) + "\n\n" + "\n\n".join(body) + "\n"


def _cleaned(lines: list[tuple[str, Line]]) -> list[tuple[str, Line]]:
    """Without links, and without what is only a link to elsewhere in the page."""
    return [(title, _unlinked(tuple(span for span in said if not (span.href or "").startswith("#")))) for title, said in lines]


def _unlinked(said: Line) -> Line:
    return tuple(Span(span.text, style=span.style) for span in said)


def _shortened(section: Section) -> Section:
    table = next(block for block in section.blocks if isinstance(block, Table))
    kept = [Row([_unlinked(cell) for cell in row.cells[:-1]], row.tone) for row in table.rows[:SUMMARY_ROWS]]
    return Section(section.id, section.title, [Table(table.caption, table.columns[:-1], kept, table.numeric)])


SUFFIXES = {"json": "json", "csv": "csv", "junit": "xml", "summary": "md"}
FORMS: dict[str, Callable[[RunFolder], str]] = {"json": to_json, "csv": to_csv, "junit": to_junit, "summary": to_summary}
