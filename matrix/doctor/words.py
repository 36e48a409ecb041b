"""A report as text for people and as a document for machines."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator
from typing import Any

from matrix.doctor.catalogue import CHECKS, Report
from matrix.doctor.finding import GROUPS, SEVERITIES, Check, Finding, Severity
from matrix.doctor.place import Place

SCHEMA = "matrix.doctor/1"
WIDTH = 140
TITLES = {
    "error": "ERRORS: these kill what meets them, or have killed here",
    "warning": "WARNINGS: these harm some programs, or hide why one died",
    "info": "GOOD TO KNOW",
}


def text(report: Report, place: Place, seconds: float) -> str:
    """Plain lines, the gravest first; what was fine in one line a group."""
    python = place.python
    version = ".".join(map(str, python.version))
    lines = [
        f"{python.executable}: {python.implementation} {version}, {len(python.distributions)} packages, {len(place.libraries)} native files"
    ]
    for severity in SEVERITIES:
        found = [finding for finding in report.findings if finding.severity == severity]
        lines += ["", TITLES[severity]] * bool(found)
        lines += [line for finding in found for line in _finding(finding)]
    lines += ["", "FINE", *_fine(report)] if report.fine else []
    if report.not_seen:
        lines += ["", "NOT LOOKED AT", *(_wrapped(f"{each.id}: {why}", "  ") for each, why in report.not_seen)]
    counts = ", ".join(_counted(report.count(severity), severity) for severity in SEVERITIES)
    looked = f"{len(report.fine)} checks fine, {len(report.not_seen)} not possible; {seconds:.1f} s"
    return "\n".join([*lines, "", f"{counts}; {looked}. More about one: --explain ID"])


def _counted(count: int, severity: Severity) -> str:
    return f"{count} {severity}{'s' * (count != 1 and severity != 'info')}"


def _finding(finding: Finding) -> Iterator[str]:
    yield _wrapped(f"{finding.id}: {finding.summary}", "  ")
    if finding.severity != "info":
        yield _wrapped(f"causes: {finding.causes}. Not shown by this: {finding.unproven}", "    ")
        yield _wrapped(f"do: {finding.remedy}", "    ")


def _wrapped(line: str, indent: str) -> str:
    return textwrap.fill(
        line, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False, break_on_hyphens=False
    )


def _fine(report: Report) -> Iterator[str]:
    for group in GROUPS:
        fine = [each for each in report.fine if each.group == group]
        if group == "versions":
            table = sum(each.fine.startswith("not ") for each in fine)
            said = [f"{table} known-bad combinations are not installed", *(each.fine for each in fine if not each.fine.startswith("not "))]
        else:
            said = [each.fine for each in fine]
        if fine:
            yield _wrapped(f"{group}: {'; '.join(said)}", "  ")


def document(report: Report, place: Place, seconds: float) -> str:
    """JSON of schema matrix.doctor/1."""
    python = place.python
    told: dict[str, Any] = {
        "schema": SCHEMA,
        "python": {"executable": python.executable, "version": ".".join(map(str, python.version)), "packages": len(python.distributions)},
        "system": place.system,
        "machine": place.machine,
        "seconds": round(seconds, 3),
        "counts": {severity: report.count(severity) for severity in SEVERITIES},
        "findings": [dataclasses.asdict(finding) for finding in report.findings],
        "fine": [each.id for each in report.fine],
        "not_seen": [{"id": each.id, "why": why} for each, why in report.not_seen],
        "checks": [each.id for each in CHECKS],
    }
    return json.dumps(told, indent=1)


def explanation(of: Check) -> str:
    """All that is known about one check."""
    parts = [
        ("Group", of.group),
        ("Fine when", of.fine),
        ("What it causes", of.causes),
        ("What a finding does not show", of.unproven),
        ("By hand", of.by_hand),
        ("What to do", of.remedy),
        *(("See", reference) for reference in of.references),
    ]
    return "\n".join([of.id, *(_wrapped(f"{name}: {value}", "  ") for name, value in parts)])
