"""The suspect report: what `pytest reproducers/ --suspect-report FILE` writes, a table for people and for issue trackers."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
from tabulate import tabulate

from reproducers.stand import Row

ORDER = ("convicted", "not judged", "cleared", "could not run")
LIBRARIES = ("torch", "faiss-cpu", "faiss-gpu", "numpy", "scikit-learn", "intel-openmp", "pytest-xdist")
UNFINISHED = "# Suspects on this machine\n\nThis pass has not ended: nothing is judged yet.\n"


def write(path: Path, text: str) -> None:
    """Whole or not at all.  Raises OSError."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def markdown(rows: Sequence[Row], *, asked: int, judged: int, seconds: float) -> str:
    """The whole report.  `asked`: tests that were to run, `judged`: those that have ended."""
    suspects = sorted((row for row in rows if row.part == "suspect"), key=lambda row: (_place(row), row.suspect))
    controls = sorted((row for row in rows if row.part == "control"), key=lambda row: (row.kind == "seen", row.suspect))
    counts = ", ".join(f"{sum(row.kind == kind for row in suspects)} {kind}" for kind in ORDER if any(row.kind == kind for row in suspects))
    unfinished = f"\n\nThe pass was cut short: {judged} of {asked} tests ended." if judged < asked else ""
    parts = [
        "# Suspects on this machine",
        f"{counts or 'No suspect was judged'}; {judged} tests in {seconds:.0f} s.{unfinished}",
        _table(["this machine", ""], list(machine().items())),
        "## Suspects",
        _table(
            ["suspect", "what it asks", "judgement", "evidence, or why it could not run", "cure if convicted", "s", "CPU s"],
            map(_cells, suspects),
        ),
        "## Controls\n\nEach plants a real fault. One that is not seen means that its suspect's check cannot fail.",
        _table(
            ["suspect", "control", "judgement", "evidence", "s", "CPU s"],
            ([row.suspect, row.test, row.kind, row.reason, _s(row.seconds), _s(row.cpu_s)] for row in controls),
        ),
    ]
    return "\n\n".join(parts) + "\n"


def machine() -> dict[str, str]:
    """Facts that a reader elsewhere needs; no names of hosts or people."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "when": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "processor": f"{_processor()}, {platform.machine()}, {os.cpu_count()} processors, {usable} of them usable",
        "memory": f"{psutil.virtual_memory().total / 2**30:.1f} GiB",
        "load": ", ".join(f"{value:.1f}" for value in psutil.getloadavg()) + " (1, 5, 15 minutes, at the end of the pass)",
        "system": f"{platform.system()} {platform.release()}" + (f", {' '.join(platform.libc_ver())}" if platform.libc_ver()[0] else ""),
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "libraries": ", ".join(f"{name} {version}" for name in LIBRARIES if (version := _version(name)))
        or "none of those that are asked about",
    }


def _cells(row: Row) -> list[str]:
    return [row.suspect, row.asks, row.kind, row.reason, row.cure if row.kind == "convicted" else "", _s(row.seconds), _s(row.cpu_s)]


def _place(row: Row) -> int:
    return ORDER.index(row.kind) if row.kind in ORDER else len(ORDER)


def _s(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _table(headers: list[str], rows: object) -> str:
    """Cells are one line each, and a pipe in a message is no border."""
    clean = [[" ".join(str(cell).split()).replace("|", "\\|") for cell in row] for row in rows]  # type: ignore[attr-defined]
    return tabulate(clean, headers, tablefmt="pipe", disable_numparse=True)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or "processor without a name")


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
