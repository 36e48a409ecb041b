"""What goes into a package, the most important first, and what does not and why."""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Literal

from matrix.records import Attempt, describe_cell
from reports.ending import ending
from reports.folder import AttemptFolder, RunFolder
from reports.package.choose import Chosen
from reports.package.manifest import Missing
from reports.package.replaying import LARGEST_INPUT, Program, is_native_library, program_of, recipe, used_by, written_by
from reports.package.summary import summary
from reports.text import plural

Kind = Literal["minimal", "extended"]
KIT = Path(__file__).with_name("kit")
EVIDENCE = (".json", ".jsonl", ".log", ".csv", ".txt", ".svg", ".png")
COLLECTORS = {
    "memory.csv": "memory sampler",
    "hook.jsonl": "hook in the child",
    "maps.txt": "library census",
    "stdout.log": "output",
    "stderr.log": "output",
    "attempt.json": "planner",
    "observation.json": "supervisor",
}
NATIVE = "native library"  # collector of what is packed as bytes
SETTINGS = (".yaml", ".yml", ".json", ".toml", ".cfg", ".ini")
MOST_SETTINGS = 20  # of one output folder
MOST_ELSEWHERE = 40
SUSPECTS = b"# Suspects on this machine"
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entry:
    """One file to be packed: a file on disk, or bytes that were just made."""

    name: str
    content: Path | bytes
    collector: str
    duration_s: float | None = None

    @functools.cached_property
    def size(self) -> int:
        return len(self.content) if isinstance(self.content, bytes) else self.content.stat().st_size

    @property
    def is_ours(self) -> bool:
        """A script of the kit: it came with this program and holds nothing of a run."""
        return isinstance(self.content, Path) and self.content.parent == KIT

    def open(self) -> BinaryIO:
        return io.BytesIO(self.content) if isinstance(self.content, bytes) else self.content.open("rb")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sources:
    """The program's own files as they are now."""

    files: Sequence[Path] = ()
    changed: Sequence[str] = ()  # names of those that are not as they were in the run


@dataclasses.dataclass(frozen=True, kw_only=True)
class Wish:
    """What the user asks for."""

    kind: Kind = "minimal"
    cores: bool = False
    sources: Callable[[Attempt], Sources] = lambda _: Sources()  # of the program of an attempt, to replay it


def contents(folder: RunFolder, chosen: Chosen, wish: Wish, environment: list[dict[str, Any]]) -> tuple[list[Entry], list[Missing]]:
    missing = [Missing(what=entry["name"], why=entry["why"]) for entry in environment if entry["status"] != "collected"]
    seconds = sum(entry["duration_s"] for entry in environment)
    entries = [Entry(name="SUMMARY.md", content=summary(folder, chosen, wish.kind).encode(errors="backslashreplace"), collector="package")]
    entries += _top(folder, missing)
    entries.append(Entry(name="environment.json", content=_json(environment), collector="environment", duration_s=round(seconds, 3)))
    entries += _replay(folder, chosen, wish, _modules(environment), missing)
    for found in chosen.cited:
        entries += _attempt(found, wish, missing)
    entries += [*_history(folder), *_suspects(folder, chosen)]
    rest = [found for found in folder.attempts if found.id not in chosen.ids]
    if wish.kind == "extended":
        for found in rest:
            entries += _attempt(found, wish, missing)
        entries += _freeze(chosen, missing)
    elif rest:
        missing.append(
            Missing(what=plural(len(rest), "other attempt"), why="only the chosen ones are in a minimal package; --extended adds all")
        )
    return entries, [*missing, *_problems(folder)]


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode(errors="backslashreplace")  # which is JSON's own escape


def _top(folder: RunFolder, missing: list[Missing]) -> Iterator[Entry]:
    names = ["report.html", "report.md", "verdict.json", "plan.json", "spec.yaml", "launch.sh"]
    names += sorted(path.relative_to(folder.path).as_posix() for path in (folder.path / "plots").glob("*") if _is_plain(path))
    for name in names:
        path = folder.path / name
        if _is_plain(path):
            yield Entry(name=name, content=path, collector="report" if name.startswith(("report", "plots", "launch")) else "planner")
        elif name == "launch.sh":
            missing.append(Missing(what=name, why="the verdict names no fix for which a run survived"))
        else:
            missing.append(Missing(what=name, why="the run folder has no such file"))


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


# ------------------------------------------------------------------ to run it again
def _replay(folder: RunFolder, chosen: Chosen, wish: Wish, modules: dict[str, str], missing: list[Missing]) -> Iterator[Entry]:
    source = next((found.attempt for found in (chosen.failing, chosen.surviving) if found and found.attempt), None)
    if source is None:
        missing.append(Missing(what="reproduce.py", why="no complete attempt died or survived, so there is nothing to replay"))
        return
    sources = wish.sources(source)
    program = program_of(source, sources.files, used_by(folder), written_by(folder))
    yield Entry(name="reproduce.py", content=KIT / "reproduce.py", collector="package")
    yield Entry(name="scripts/isolate.sh", content=KIT / "isolate.sh", collector="package")
    yield Entry(name="scripts/monitor.py", content=KIT / "monitor.py", collector="package")
    yield Entry(name="scripts/replay.json", content=_json(recipe(folder, chosen, program, modules)), collector="package")
    yield Entry(name="program/README.txt", content=_about(program, sources).encode(errors="backslashreplace"), collector="package")
    for name, path in program.files.items():
        yield Entry(name=name, content=path, collector=NATIVE if is_native_library(name) else "program")
    for name, entry in program.inputs.items():
        missing.append(Missing(what=f"input {name}", why=entry.why, size=entry.size))
    if not program.files:
        missing.append(Missing(what="program", why="no file of its own was found: it is an installed program"))


def _modules(environment: list[dict[str, Any]]) -> dict[str, str]:
    """The distribution of each module that is installed, as `name==version`; {}: the interpreter could not be asked."""
    facts = next((entry.get("value") for entry in environment if entry["name"] == "interpreter"), None)
    return dict(facts.get("modules") or {}) if isinstance(facts, dict) else {}


def _about(program: Program, sources: Sources) -> str:
    changed = f"Not as in the run, so a replay may end differently: {', '.join(sources.changed)}\n" if sources.changed else ""
    listed = "".join(f"  {name} ({entry.size:,} bytes): {entry.why}\n" for name, entry in program.inputs.items()) or "  none\n"
    others = "".join(f"  {name}\n" for name in program.elsewhere[:MOST_ELSEWHERE])
    read = f"Files outside of the program that it read as well, and that are not packed:\n{others}" if others else ""
    return (
        f"The program's own files ({len(program.files)}): what its command names and imports, and what the runs loaded and opened;\n"
        f"installed packages are not here (their versions are in environment.json).\n{changed}"
        f"Inputs that are not packed; put them at the same place below this folder to replay it:\n{listed}{read}"
    )


# ------------------------------------------------------------------ attempts
def _attempt(found: AttemptFolder, wish: Wish, missing: list[Missing]) -> Iterator[Entry]:
    seen = found.observation
    base = f"attempts/{found.id}"
    for path in sorted(found.path.iterdir()) if found.path.is_dir() else []:
        name = f"{base}/{path.name}"
        if path.is_symlink():
            missing.append(Missing(what=name, why="it is a link"))
        elif path.is_dir():
            missing.append(Missing(what=f"{name}/", why="of the program's own output only its settings are packed"))
            yield from _settings(path, name)
        elif not path.is_file():
            missing.append(Missing(what=name, why="it is a pipe, a socket or a device"))
        elif path.name.startswith("core"):
            if wish.cores:
                yield Entry(name=name, content=path, collector="kernel", duration_s=seen.wall_s if seen else None)
            else:
                missing.append(
                    Missing(what=name, why="a core holds the whole memory of a process; --cores packs it", size=path.stat().st_size)
                )
        elif path.suffix in EVIDENCE and not path.name.startswith("."):
            collector = COLLECTORS.get(path.name, "stacks" if "stacks" in path.name else "attempt")
            yield Entry(name=name, content=path, collector=collector, duration_s=round(seen.wall_s, 3) if seen else None)
        else:
            missing.append(Missing(what=name, why="it is no file that the tool wrote", size=path.stat().st_size))
    missing += [Missing(what=f"{base}: {gap.what}", why=gap.why) for gap in (seen.not_collected if seen else [])]


def _settings(output: Path, name: str) -> Iterator[Entry]:
    """Small files of settings that the program wrote beside its results: often the only place that tells all of them."""
    found = sorted(path for pattern in ("*", "*/*") for path in output.glob(pattern) if path.suffix in SETTINGS and _is_plain(path))
    for path in found[:MOST_SETTINGS]:
        if path.stat().st_size <= LARGEST_INPUT:
            yield Entry(name=f"{name}/{path.relative_to(output).as_posix()}", content=path, collector="program")


# ------------------------------------------------------------------ what was tried
def _suspects(folder: RunFolder, chosen: Chosen) -> Iterator[Entry]:
    """Reports of `pytest reproducers/ --suspect-report FILE` beside the program, the runs or this run."""
    attempt = next((found.attempt for found in chosen.cited if found.attempt), None)
    run = folder.path.resolve()
    places = [run, run.parent, run.parent.parent, run.parent.parent.parent, *([Path(attempt.cwd)] if attempt else [])]
    known: set[bytes] = set()
    for path in (path for place in dict.fromkeys(places) for path in sorted(place.glob("*.md")) if _is_plain(path)):
        text = path.read_bytes() if path.stat().st_size <= LARGEST_INPUT else b""
        if text.startswith(SUSPECTS) and text not in known:
            known.add(text)
            yield Entry(name=f"suspects/{path.name}", content=text, collector="pytest reproducers")


def _history(folder: RunFolder) -> Iterator[Entry]:
    """All attempts in one table, and each different specification among the runs of this name, under the stamp of its first run."""
    yield Entry(name="history/attempts.csv", content=_table(folder).encode(errors="backslashreplace"), collector="package")
    known: set[bytes] = set()
    for path in sorted(folder.path.resolve().parent.glob("*/spec.yaml")):
        text = path.read_bytes()
        if text not in known:
            known.add(text)
            yield Entry(name=f"history/{path.parent.name}-spec.yaml", content=text, collector="package")


def _table(folder: RunFolder) -> str:
    """One line for each complete attempt: what was asked and how it ended."""
    sink = io.StringIO()
    rows = csv.writer(sink, lineterminator="\n")
    rows.writerow(["attempt", "purpose", "cell", "probes", "kind", "how", "step", "wall_s"])
    for found, seen in folder.observed:
        how = ending(seen, folder.verdict)
        trial = seen.trial
        probes = " ".join(trial.probes)
        rows.writerow([found.id, trial.purpose, describe_cell(trial.cell), probes, how.kind, how.how, how.step, round(seen.wall_s, 3)])
    return sink.getvalue()


# ------------------------------------------------------------------ what only the extended package has
def _freeze(chosen: Chosen, missing: list[Missing]) -> Iterator[Entry]:
    attempt = next((found.attempt for found in chosen.cited if found.attempt), None)
    if attempt is None or not _PYTHON.search(attempt.argv[0]):
        missing.append(Missing(what="pip-freeze.txt", why="the command starts no Python interpreter"))
        return
    try:
        command = [attempt.argv[0], "-m", "pip", "--disable-pip-version-check", "freeze", "--all"]
        done = subprocess.run(command, cwd="/", capture_output=True, timeout=120, check=True, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as problem:
        missing.append(Missing(what="pip-freeze.txt", why=f"pip cannot be asked: {type(problem).__name__}"))
        return
    yield Entry(name="pip-freeze.txt", content=done.stdout, collector="pip freeze")


def _problems(folder: RunFolder) -> list[Missing]:
    return [Missing(what="a file of the run folder", why=text) for text in folder.problems]
