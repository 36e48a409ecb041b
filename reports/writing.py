"""Write the report of a run folder; works at any time, before the first run as after the last."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from matrix.records import write_text
from reports.build import build
from reports.cells import CellRow, rows
from reports.drawings import NAMES, Drawings, draw, without_pictures
from reports.folder import RunFolder, load
from reports.launch import Launch, launch
from reports.render_html import to_html
from reports.render_markdown import to_markdown


def write(run_dir: Path, *, why_no_pictures: str = "") -> list[Path]:
    """Write report.md, report.html, plots/*.svg and, when there is a fix, launch.sh; returns what was written.

    Each file is written whole or not at all, and what an earlier report wrote and this one does not is removed (an old
    launch.sh could hold a fix that was since disproved).  What cannot be read is said in the report.
    `why_no_pictures`: a reason to draw none; the report gives that reason.
    Raises FileNotFoundError when there is no such folder, OSError when it cannot be written.
    """
    run_dir = Path(run_dir)
    folder = load(run_dir)
    cells = rows(folder)
    drawings = _drawings(folder, cells, why_no_pictures)
    folder = dataclasses.replace(folder, problems=[*folder.problems, *drawings.problems])
    found = launch(folder)
    model = build(folder, cells, found, drawings)
    texts = {**drawings.files, **({"launch.sh": found.script} if isinstance(found, Launch) else {})}
    texts |= {"report.md": to_markdown(model), "report.html": to_html(model)}
    for name in {"launch.sh", *(f"plots/{plot}.svg" for plot in NAMES)} - set(texts):
        (run_dir / name).unlink(missing_ok=True)
    return [_put(run_dir / name, text) for name, text in texts.items()]


def _drawings(folder: RunFolder, cells: list[CellRow], why_not: str) -> Drawings:
    """The pictures; words instead where they cannot be drawn.  A library that finds no room is no longer importable."""
    if why_not:
        return without_pictures(folder, cells, why_not)
    try:
        return draw(folder, cells)
    except (MemoryError, ImportError) as problem:
        return without_pictures(folder, cells, str(problem) or type(problem).__name__)


def _put(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    write_text(path, text)
    if path.suffix == ".sh":
        path.chmod(0o700)
    return path
