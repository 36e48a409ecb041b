"""Write the report of a run folder; works at any time, before the first run as after the last."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from matrix.records import write_text
from reports.build import build
from reports.cells import CellRow, rows
from reports.drawings import NAMES, Drawings, draw, without_pictures
from reports.folder import RunFolder, load
from reports.handout import handed_out
from reports.launch import Launch, launch
from reports.render_html import to_html
from reports.render_markdown import to_markdown


def write(run_dir: Path, *, why_no_pictures: str = "") -> list[Path]:
    """Write report.md, report.html, plots/*.svg and, when there is a fix, launch.sh; returns what was written.

    Each file is written whole or not at all, and what an earlier report wrote and this one does not is removed (an old
    launch.sh could hold a fix that was since disproved).  None holds a secret, for reports are mailed.  What cannot be read is
    said in the report.
    `why_no_pictures`: a reason to draw none; the report gives that reason.
    Raises FileNotFoundError when there is no such folder, OSError when it cannot be written.
    """
    run_dir = Path(run_dir)
    folder, texts, script = _rendered(run_dir, why_no_pictures)
    texts = handed_out([folder], texts) | script
    for name in {"launch.sh", *(f"plots/{plot}.svg" for plot in NAMES)} - set(texts):
        (run_dir / name).unlink(missing_ok=True)
    return [_put(run_dir / name, text) for name, text in texts.items()]


def render(run_dir: Path) -> dict[str, str]:
    """Return report.md, report.html and plots/*.svg as they are before anything is taken out."""
    return _rendered(run_dir, "")[1]


def _rendered(run_dir: Path, why_no_pictures: str) -> tuple[RunFolder, dict[str, str], dict[str, str]]:
    """Return the folder, the texts for people, and the launch script, which holds no secret and has to keep its paths."""
    folder = load(run_dir)
    cells = rows(folder)
    drawings = _drawings(folder, cells, why_no_pictures)
    folder = dataclasses.replace(folder, problems=[*folder.problems, *drawings.problems])
    found = launch(folder)
    model = build(folder, cells, found, drawings)
    texts = {**drawings.files, "report.md": to_markdown(model), "report.html": to_html(model)}
    return folder, texts, {"launch.sh": found.script} if isinstance(found, Launch) else {}


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
