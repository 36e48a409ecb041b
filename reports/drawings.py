"""The plots of a report as blocks, with titles, words for what they show, and the files they were drawn from."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from reports import plots
from reports.cells import CellRow, outcome
from reports.curves import Drawn, choose
from reports.folder import RunFolder
from reports.model import Line, Para, Plot, Section, Span, line


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drawings:
    memory: Section
    endings: Plot | None
    files: dict[str, str]  # "plots/memory.svg" -> its text
    problems: list[str]


def draw(folder: RunFolder, rows: Sequence[CellRow]) -> Drawings:
    died, survived, problems = choose(rows, folder.path)
    files: dict[str, str] = {}
    curves = _memory_plots(folder, died, survived, files)
    nothing = Para(line("No memory curve could be drawn." if rows else "No run is complete yet."))
    section = Section("memory", "Memory", [*curves] or [nothing])
    return Drawings(memory=section, endings=_endings(rows, files), files=files, problems=problems)


def _memory_plots(folder: RunFolder, died: Drawn | None, survived: Drawn | None, files: dict[str, str]) -> list[Plot]:
    shown = [run for run in (died, survived) if run]
    if not shown:
        return []
    alt = plots.memory_alt(died, survived)
    made = [_plot("memory", "Memory over time", alt, 4.6, plots.memory(died, survived), files, _sources(folder, shown))]
    if died and sum(died.curve.processes.values()) > 1:
        title = f"Memory by process in the run that died ({died.seen.attempt})"
        made.append(_plot("processes", title, title, 3.6, plots.processes(died), files, _sources(folder, [died])))
    return made


def _sources(folder: RunFolder, runs: Sequence[Drawn]) -> Line:
    spans = [Span(f"{run.seen.attempt}/memory.csv", folder.attempt_href(run.seen.attempt, "memory.csv")) for run in runs]
    note = " Pages that processes share are counted once for each of them."
    return line("From ", *[part for span in spans for part in (span, Span(" "))][:-1], ".", note)


def _endings(rows: Sequence[CellRow], files: dict[str, str]) -> Plot | None:
    rows = [row for row in rows if any(end.kind != "unavailable" for _, end in row.runs)]
    if not rows:
        return None
    drawing, height = plots.endings(rows)
    alt = "Where each run ended. " + ". ".join(f"{row.label}: {outcome(row)}" for row in rows[: plots.MOST_ROWS]) + "."
    more = f"The first {plots.MOST_ROWS} of {len(rows)} rows." if len(rows) > plots.MOST_ROWS else "One mark for each run."
    return _plot("endings", "Where each run ended", alt, height, drawing, files, line(f"{more} The table above has the attempts."))


def _plot(name: str, title: str, alt: str, height: float, drawing: plots.Draw, files: dict[str, str], caption: Line) -> Plot:
    file = f"plots/{name}.svg"
    files[file], wide, narrow = plots.both(name, alt, height, drawing)
    return Plot(file=file, title=title, alt=alt, caption=caption, wide=wide, narrow=narrow)
