"""Two runs held against each other, such as before and after a fix."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from matrix.records import Rate, describe_cell, write_text
from reports.cells import rows
from reports.decision import Choice, choices
from reports.exports import configuration
from reports.folder import RunFolder, load
from reports.handout import handed_out
from reports.hazard import upper_share
from reports.head import headline, label
from reports.launch import cell_key
from reports.model import Block, Line, Para, ReportModel, Row, Section, Span, Table, Tone, code, line, strong
from reports.render_html import to_html
from reports.render_markdown import to_markdown
from reports.text import one_line, percent, plural, rate, size
from reports.words import title

Pairs = list[tuple[Choice | None, Choice | None]]


def compare(before: Path, after: Path) -> list[Path]:
    """Write compare.md and compare.html into the second run's folder; returns what was written.

    Raises FileNotFoundError when one of the folders is not there, OSError when it cannot be written.
    """
    folders = load(Path(before)), load(Path(after))
    model = comparison(*folders)
    texts = handed_out(folders, {"compare.md": to_markdown(model), "compare.html": to_html(model)})
    for name, text in texts.items():
        write_text(Path(after) / name, text)
    return [Path(after) / name for name in texts]


def compare_json(before: Path, after: Path) -> str:
    """The configurations of both runs side by side; null where one run has none."""
    folders = load(Path(before)), load(Path(after))
    found = _pairs(*folders)
    sides = [{"before": _figures(old), "after": _figures(new)} for old, new in found]
    text = json.dumps({"schema": "matrix.comparison/1", "configurations": sides}, default=vars, indent=1, ensure_ascii=False) + "\n"
    return handed_out(folders, {"compare.json": text})["compare.json"]


def _figures(choice: Choice | None) -> dict[str, Any] | None:
    return configuration(choice) if choice else None


def _pairs(before: RunFolder, after: RunFolder) -> Pairs:
    """By equal cell; those of both runs first."""
    old = {cell_key(choice.row.cell): choice for choice in choices(rows(before))}
    new = {cell_key(choice.row.cell): choice for choice in choices(rows(after))}
    both = [(old[key], new[key]) for key in old if key in new]
    rest: Pairs = [*((old[key], None) for key in old if key not in new), *((None, new[key]) for key in new if key not in old)]
    return [*both, *rest]


def comparison(before: RunFolder, after: RunFolder) -> ReportModel:
    found = _pairs(before, after)
    sections = [_configurations(found), _causes(before, after), _setting(before, after)]
    name = after.verdict.name if after.verdict else after.path.resolve().name
    verdict = [("Before", _side(before, after)), ("After", _side(after, after)), ("Changed", _changed(before, after, found))]
    tone: Tone = label(after.verdict)[1]
    return ReportModel(
        name=name, label="Before and after", tone=tone, headline=(), verdict=verdict, status=(), notices=[], sections=sections
    )


def _side(folder: RunFolder, home: RunFolder) -> Line:
    """The verdict with a link to the report, as seen from the second run's folder."""
    report = folder.path.resolve() / "report.html"
    href = quote(Path(os.path.relpath(report, home.path.resolve())).as_posix()) if report.is_file() else None
    return (Span(folder.path.resolve().name, href), Span(". "), *headline(folder))


def _changed(before: RunFolder, after: RunFolder, found: Pairs) -> Line:
    """About the configuration that was known bad before: whether the difference can be chance."""
    known = cell_key(before.plan.known_bad) if before.plan else None
    pair = next(((old, new) for old, new in found if old and cell_key(old.row.cell) == known), None)
    if pair is None or pair[0] is None:
        return line("The known-bad configuration of the first run was not run in it.")
    old, new = pair
    if new is None:
        return line("The known-bad configuration of the first run was not run in the second.")
    return line(strong(f"The known-bad configuration died in {_of(old)} before and in {_of(new)} after"), f": {_verdict(old, new)}.")


def _of(choice: Choice) -> str:
    return f"{choice.died} of {plural(choice.died + choice.survived, 'run')}"


def _verdict(old: Choice, new: Choice) -> str:
    first, second = _share(old), _share(new)
    said = f"95 % intervals {percent(first[0])} to {percent(first[1])} and {percent(second[0])} to {percent(second[1])}"
    if second[1] < first[0]:
        return f"it dies less often ({said})"
    if second[0] > first[1]:
        return f"it dies more often ({said})"
    return f"the difference can be chance ({said} overlap); more runs of both would tell"


def _share(choice: Choice) -> tuple[float, float]:
    """Exact interval of the share that dies."""
    runs = choice.died + choice.survived
    if not runs:
        return 0.0, 1.0
    return 1 - upper_share(choice.survived, runs, 0.025), upper_share(choice.died, runs, 0.025)


def _configurations(found: Pairs) -> Section:
    columns = ["Configuration", "Before", "After", "Fails at most before", "After", "Steps/s before", "After", "Peak RSS before", "After"]
    table = Table(
        "Configurations, those of both runs first", columns, [_row(old, new) for old, new in found], frozenset(range(3, 9)), frozenset({0})
    )
    note = "Bounds on how often a run dies are one-sided, exact, with 95 % confidence. Runs with probes are left out."
    blocks: list[Block] = [table, Para(line(note))] if found else [Para(line("Neither run has a complete attempt."))]
    return Section("configurations", "Configurations", blocks)


def _row(old: Choice | None, new: Choice | None) -> Row:
    either = old or new
    assert either is not None  # a pair has at least one side
    name = describe_cell(either.row.cell)
    sides = [old, new]
    cells = [line(one_line(name, 200)), *(line(_outcome(side)) for side in sides)]
    cells += [line(rate(Rate(value=side.per_run)) if side else "–") for side in sides]
    cells += [line(f"{side.steps_per_s:.3g}" if side and side.steps_per_s else "–") for side in sides]
    cells += [line(size(side.peak_bytes) if side and side.peak_bytes else "–") for side in sides]
    return Row(cells, ("bad" if new.died else "good") if new else "")


def _outcome(side: Choice | None) -> str:
    return f"died {side.died}, survived {side.survived}" if side else "not run"


def _causes(before: RunFolder, after: RunFolder) -> Section:
    old, new = ({entry.cause: entry for entry in folder.verdict.ranking} if folder.verdict else {} for folder in (before, after))
    entries = {**old, **new}
    rows_ = [
        Row([line(title(entry), " ", code(name)), line(_entry(old, name)), line(_entry(new, name))]) for name, entry in entries.items()
    ]
    table = Table("Causes before and after", ["Cause", "Before", "After"], rows_, prose=frozenset({0}))
    return Section("causes", "What it can be", [table] if rows_ else [Para(line("Neither run has a ranking."))])


def _entry(side: dict[str, Any], name: str) -> str:
    return f"{percent(side[name].probability)}, {side[name].grade}" if name in side else "–"


def _setting(before: RunFolder, after: RunFolder) -> Section:
    """What else differs: the machine, the command, the axes, the notices."""
    old, new = _settings(before), _settings(after)
    different = [name for name in dict.fromkeys([*old, *new]) if old.get(name) != new.get(name)]
    rows_ = [Row([line(name), line(old.get(name, "–")), line(new.get(name, "–"))]) for name in different]
    table = Table("Settings that differ", ["What", "Before", "After"], rows_, prose=frozenset({1, 2}))
    same = Para(line("Machine, command, strategy and known-bad configuration are the same in both."))
    return Section("settings", "What else differs", [table] if rows_ else [same])


def _settings(folder: RunFolder) -> dict[str, str]:
    plan = folder.plan
    if plan is None:
        return {"plan.json": "could not be read"}
    machine = {name: str(value) for name, value in dataclasses.asdict(plan.machine).items()}
    found = {**machine, "command": " ".join(plan.command), "known bad": describe_cell(plan.known_bad), "strategy": plan.strategy}
    programs = {attempt.attempt.program[:12] for attempt in folder.attempts if attempt.attempt}
    found["program"] = ", ".join(sorted(programs)[:4])
    return {name: one_line(value, 400) for name, value in found.items()}
