"""The matrix as it was run: one row for each cell and probe, the known-bad cell first."""

from __future__ import annotations

import dataclasses

from matrix.records import Cell, Observation, Plan, Verdict
from reports.causes import attempt_links
from reports.ending import Ending, ending
from reports.folder import RunFolder
from reports.launch import cell_key
from reports.model import Block, Bullets, Line, Para, Row, Section, Table, Tone, code, line, strong
from reports.text import one_line, plural, size, span_of

TONES: dict[str, Tone] = {"died": "bad", "survived": "good", "censored": "calm", "unavailable": "warn"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class CellRow:
    cell: Cell
    probes: dict[str, str]
    role: str  # "known bad", "fix", "hides" or ""
    changed: frozenset[str]  # axes whose value differs from known-bad
    runs: list[tuple[Observation, Ending]]

    def of(self, kind: str) -> list[Ending]:
        return [end for _, end in self.runs if end.kind == kind]

    @property
    def label(self) -> str:
        """What differs from known-bad, for plots."""
        parts = [f"{name}={value}" for name, value in self.cell.items() if name in self.changed]
        parts += [f"probe {name}={value}" for name, value in self.probes.items()]
        return one_line(" ".join(parts), 90) or self.role or "as it is"


def rows(folder: RunFolder) -> list[CellRow]:
    known_bad = folder.plan.known_bad if folder.plan else {}
    groups: dict[tuple[str, str], list[Observation]] = {}
    for _, seen in folder.observed:
        groups.setdefault((cell_key(seen.trial.cell), cell_key(dict(seen.trial.probes))), []).append(seen)
    found = [_row(runs, known_bad, folder.verdict) for runs in groups.values()]
    return sorted(found, key=lambda row: (row.role != "known bad", row.role != "fix", len(row.changed) + len(row.probes)))


def _row(runs: list[Observation], known_bad: Cell, verdict: Verdict | None) -> CellRow:
    trial = runs[0].trial
    changed = frozenset(
        name for name, value in trial.cell.items() if known_bad and cell_key({name: value}) != cell_key({name: known_bad.get(name, "")})
    )
    role = "" if trial.probes else _role(trial.cell, known_bad, verdict)
    return CellRow(cell=trial.cell, probes=trial.probes, role=role, changed=changed, runs=[(seen, ending(seen, verdict)) for seen in runs])


def _role(cell: Cell, known_bad: Cell, verdict: Verdict | None) -> str:
    key = cell_key(cell)
    if known_bad and key == cell_key(known_bad):
        return "known bad"
    if verdict and verdict.fix and key == cell_key(verdict.fix.cell):
        return "fix"
    return "hides" if verdict and any(fix.kind == "hides" and key == cell_key(fix.cell) for fix in verdict.other_fixes) else ""


# ------------------------------------------------------------------ the section
def matrix(folder: RunFolder, found: list[CellRow], picture: list[Block], plots: list[Block]) -> Section:
    if not found:
        return Section("matrix", "The matrix", [Para(line("No run is complete yet."))])
    axes, constant = _axes(found)
    blocks: list[Block] = [Para(_introduction(found, constant)), *picture, _table(folder, found, axes), *plots]
    skipped = _unavailable(folder.plan)
    return Section("matrix", "The matrix", [*blocks, *([Bullets(skipped)] if skipped else [])])


def _axes(found: list[CellRow]) -> tuple[list[str], Cell]:
    """The axes that differ between rows, and the values of those that never did."""
    names = list(dict.fromkeys(name for row in found for name in row.cell))
    values = {name: {cell_key({name: row.cell.get(name, "")}) for row in found} for name in names}
    constant = {name: found[0].cell[name] for name in names if len(values[name]) == 1}
    return [name for name in names if name not in constant], constant


def _introduction(found: list[CellRow], constant: Cell) -> Line:
    total = sum(len(row.runs) for row in found)
    same = [part for name, value in constant.items() for part in (" ", code(f"{name}={value}"))]
    tail = [". The same in every run:", *same, "."] if same else ["."]
    return line(f"{plural(total, 'run')} in {plural(len(found), 'row')}; values in bold differ from the known-bad cell", *tail)


def _table(folder: RunFolder, found: list[CellRow], axes: list[str]) -> Table:
    probed = any(row.probes for row in found)
    columns = ["Cell", "Outcome", *axes, *(["probe"] if probed else []), "Peak RSS, summed", "Attempts"]
    return Table(
        "Outcome of each cell",
        columns,
        [_table_row(folder, row, axes, probed) for row in found],
        frozenset({len(columns) - 2}),
        frozenset({1}),
    )


def _table_row(folder: RunFolder, row: CellRow, axes: list[str], probed: bool) -> Row:
    values = [_value(row, name) for name in axes]
    probes = [line(strong(" ".join(f"{name}={value}" for name, value in row.probes.items())) if row.probes else "–")] if probed else []
    peaks = [seen.memory.peak_tree_rss_bytes for seen, _ in row.runs if seen.memory.peak_tree_rss_bytes]
    attempts = attempt_links(folder, [seen.attempt for seen, _ in row.runs], 6)
    peak = line(size(max(peaks)) if peaks else "not measured")
    return Row([line(row.role or "–"), line(outcome(row)), *values, *probes, peak, attempts], tone(row))


def _value(row: CellRow, name: str) -> Line:
    value = str(row.cell.get(name, "–"))
    return line(strong(value) if name in row.changed else value)


def tone(row: CellRow) -> Tone:
    """The worst that happened decides."""
    return next((TONES[kind] for kind in TONES if row.of(kind) and (kind != "survived" or not row.of("died"))), "")


def outcome(row: CellRow) -> str:
    """`died 2/2: SIGABRT at step 11`, `survived 3/3 (2,000 steps each)`, `unavailable: no MPS`."""
    total, parts = len(row.runs), []
    if died := row.of("died"):
        parts.append(f"died {len(died)}/{total}: {'; '.join(_deaths(died))}")
    if survived := row.of("survived"):
        parts.append(f"survived {len(survived)}/{total}{_after(survived)}")
    if censored := row.of("censored"):
        parts.append(f"censored {len(censored)}/{total}: {'; '.join(_deaths(censored))}")
    parts += [f"unavailable: {how}" for how in dict.fromkeys(end.how for end in row.of("unavailable"))]
    return "; ".join(parts)


def _deaths(endings: list[Ending]) -> list[str]:
    groups: dict[str, list[Ending]] = {}
    for end in endings:
        groups.setdefault(end.how + (f" [{end.failure}]" if end.failure and end.failure != "A" else ""), []).append(end)
    return [f"{how}{_steps(group)}" for how, group in groups.items()]


def _steps(group: list[Ending]) -> str:
    steps = [end.step for end in group if end.step is not None]
    before = " before its first step" if len(steps) < len(group) and not steps else ""
    return f" at step {span_of(steps)}" if steps else before


def _after(endings: list[Ending]) -> str:
    steps = [end.step for end in endings if end.step is not None]
    return f" ({span_of(steps)} steps each)" if steps else ""


def _unavailable(plan: Plan | None) -> list[Line]:
    return [
        line(code(f"{axis.name}={value}"), f" was not run: {one_line(why).rstrip('.')}.")
        for axis in (plan.axes if plan else [])
        for value, why in axis.unavailable.items()
    ]
