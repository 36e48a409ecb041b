"""The plots of a report as blocks, with words for what they show and links to what they were drawn from; and their files."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from matrix.records import CrashPattern, Verdict
from reports import memory_charts, run_charts
from reports.attempts import attempts
from reports.cells import CellRow
from reports.chart import Chart
from reports.curves import Chosen, Drawn, choose
from reports.draw import inline, still
from reports.estimate import estimate
from reports.folder import RunFolder
from reports.grid import crash_set, grid, picture
from reports.model import Block, Line, Para, Plot, Row, Section, Span, Table, line, strong
from reports.text import one_line, rate_of, sentence

NAMES = ("matrix", "endings", "pattern", "hazard", "memory", "memory-steps", "processes", "timeline")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawings:
    picture: list[Block]  # the matrix as a picture
    endings: list[Block]
    when: Section | None
    memory: Section
    attempts: Section | None
    files: dict[str, str]  # "plots/memory.svg" -> its text
    problems: list[str]


def draw(folder: RunFolder, rows: Sequence[CellRow]) -> Drawings:
    chosen = choose(rows, folder.path)
    files: dict[str, str] = {}
    found = grid(folder, rows)
    if found:
        files[found.file] = picture(found)
    ends = run_charts.endings(rows)
    return Drawings(
        picture=[found] if found else [],
        endings=[_plot(ends, files, _first_rows(ends, rows))] if ends else [],
        when=_when(rows, folder.verdict, files),
        memory=_memory(folder, rows, chosen, files),
        attempts=_attempts(folder, rows, files),
        files=files,
        problems=chosen.problems,
    )


def without_pictures(folder: RunFolder, rows: Sequence[CellRow], why: str) -> Drawings:
    """The same where nothing can be drawn: no memory, or a library that cannot be loaded."""
    said = f"No pictures were drawn: {one_line(why)}"
    table = attempts(folder, rows)
    return Drawings(
        picture=[],
        endings=[],
        when=None,
        memory=Section("memory", "Memory", [Para(line(sentence(said)))]),
        attempts=Section("attempts", "All attempts", [table]) if table else None,
        files={},
        problems=[said],
    )


def _first_rows(ends: Chart, rows: Sequence[CellRow]) -> Line:
    shown = len(ends.y.rows)
    more = f"The first {shown} of {len(rows)} rows. " if len(rows) > shown else ""
    return line(f"{more}One mark for each place where runs ended.")


# ------------------------------------------------------------------ when it dies
def _when(rows: Sequence[CellRow], verdict: Verdict | None, files: dict[str, str]) -> Section | None:
    seen = run_charts.pattern(rows)
    rates = run_charts.hazard(rows, crash_set(rows, verdict))
    blocks: list[Block] = _laws(verdict.pattern) if verdict and verdict.pattern else []
    if seen:
        note = "Deaths one above the other share a step (data, logic, a counter); deaths side by side share a time (a timer, a watchdog)."
        blocks.append(_plot(seen, files, line(note)))
    if rates:
        note = "Deaths over exposure in parts of the way that hold about as many deaths each; exact Poisson intervals."
        blocks += [_plot(rates.chart, files, line(note)), _hazard_table(rates)]
    elif seen:
        blocks.append(Para(line("Fewer than three deaths in the crash set: a hazard cannot be told yet.")))
    return Section("when", "When it dies", blocks) if blocks else None


def _laws(pattern: CrashPattern) -> list[Block]:
    """What the diagnosis says of the moments of death; p is the chance of it if the moment meant nothing."""
    rows = [
        Row([line(law.name), line("yes" if law.holds else "no"), line("–" if law.p is None else rate_of(law.p)), line(sentence(law.text))])
        for law in pattern.laws
    ]
    table = Table(
        "Relations between deaths and their moment", ["Relation", "Holds", "p by chance", "What it says"], rows, prose=frozenset({3})
    )
    return [Para(line(strong(sentence(pattern.text)))), *([table] if rows else [])]


def _hazard_table(rates: run_charts.Hazard) -> Table:
    what = rates.what
    rows = [
        Row([line(f"{part.start:,.0f} to {part.end:,.0f}"), *(line(text) for text in (
            str(part.deaths), f"{part.exposure:,.0f}", rate_of(part.rate), f"{rate_of(part.low)} to {rate_of(part.high)}",
        ))], "", {0: part.start})
        for part in rates.parts
    ]  # fmt: skip
    columns = [f"{what.capitalize()}s", "Deaths", f"Exposure, {what}s", f"Deaths per {what}", "95 % interval"]
    return Table(f"Hazard of {rates.whose}", columns, rows, frozenset({1, 2, 3, 4}))


# ------------------------------------------------------------------ memory
def _memory(folder: RunFolder, rows: Sequence[CellRow], chosen: Chosen, files: dict[str, str]) -> Section:
    shown = [*chosen.died, *chosen.survived]
    shared = " Pages that processes share are counted once for each of them."
    between = " Between two steps a point stands where its time does." + shared
    charts = [
        (memory_charts.over_time(chosen), shown, shared),
        (memory_charts.over_steps(chosen), shown, between),
        (memory_charts.by_process(chosen), chosen.died[:1], shared),
    ]
    blocks: list[Block] = [_plot(chart, files, _sources(folder, runs, note)) for chart, runs, note in charts if chart]
    nothing = Para(line("No memory curve could be drawn." if rows else "No run is complete yet."))
    return Section("memory", "Memory", [*(blocks or [nothing]), *estimate(folder)])


def _sources(folder: RunFolder, runs: Sequence[Drawn], note: str) -> Line:
    spans = [Span(run.seen.attempt.split("-")[0], folder.attempt_href(run.seen.attempt, "memory.csv")) for run in runs]
    return line("From memory.csv of ", *[part for span in spans for part in (span, Span(" "))][:-1], ".", note)


# ------------------------------------------------------------------ all attempts
def _attempts(folder: RunFolder, rows: Sequence[CellRow], files: dict[str, str]) -> Section | None:
    table = attempts(folder, rows)
    if table is None:
        return None
    chart = run_charts.timeline(rows)
    plots = [_plot(chart, files, line("One bar for each run, in as many lanes as ran side by side."))] if chart else []
    return Section("attempts", "All attempts", [*plots, table])


def _plot(chart: Chart, files: dict[str, str], caption: Line) -> Plot:
    file = f"plots/{chart.name}.svg"
    files[file] = still(chart)
    shown = inline(files[file], f"plot-{chart.name}")
    return Plot(file=file, title=chart.title, alt=chart.alt, caption=caption, still=shown, data=chart.data())
