"""Write a package: choose, collect, redact, pack, and look at the finished archive once more before it gets its name."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matrix.records import write_text
from reports.folder import RunFolder, load
from reports.package import archive, manifest
from reports.package.choose import Chosen, choose
from reports.package.contents import NATIVE, Entry, Wish, contents
from reports.package.environment import collect
from reports.package.manifest import Held, Missing
from reports.redact import Leak, Redactor, leaks, names_of_here
from reports.redact.source import is_source, structure_of
from reports.redact.vault import MARK

CAP_BYTES = 100 << 20  # of the unpacked package
REDACTION = "REDACTION.md"
Progress = Callable[[str, int, int], None]  # what is being done, bytes done, bytes in all


class LeakFound(Exception):
    """The finished archive still held a secret, so it was not kept."""

    def __init__(self, found: list[Leak]) -> None:
        self.found = found
        named = "; ".join(f"{leak.member} ({leak.what})" for leak in found[:5])
        super().__init__(
            f"the finished package still held {len(found)} secrets and was removed: {named}. "
            "Remove these files from the run folder, or pack without --cores"
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Draft:
    """What a package will hold; sizes are those before redaction."""

    folder: RunFolder
    chosen: Chosen
    wish: Wish
    entries: list[Entry]
    missing: list[Missing]
    environment: list[dict[str, Any]]

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)


def draft(run: Path, wish: Wish, *, cap_bytes: int = CAP_BYTES, environment: Mapping[str, str]) -> Draft:
    """Choose and collect; nothing is packed yet.  Writes the report when there is none of this verdict.

    Raises FileNotFoundError when there is no such run folder."""
    _report(run)
    folder = load(run)
    chosen = choose(folder)
    facts = _environment(folder, chosen, environment)
    entries, missing = contents(folder, chosen, wish, facts)
    entries = _with_raw_report(run, entries)
    kept: list[Entry] = []
    left = cap_bytes
    for entry in entries:
        if entry.size <= left:
            kept.append(entry)
            left -= entry.size
        else:
            why = f"over the size cap of {cap_bytes >> 20} MiB; raise it with --max-size"
            missing.append(Missing(what=entry.name, why=why, size=entry.size, status="left out"))
    return Draft(folder=folder, chosen=chosen, wish=wish, entries=kept, missing=missing, environment=facts)


def pack(found: Draft, target: Path, *, environment: Mapping[str, str], progress: Progress = lambda *_: None) -> Path:
    """Write the package whole or not at all.  Raises LeakFound, and OSError when it cannot be written."""
    redactor = Redactor(names_of_here(), environment)
    done, total = 0, 2 * found.size
    for entry in found.entries:
        if entry.is_ours:
            redactor.vault.spare(_text_of(entry))
        elif entry.collector == "program":
            redactor.spare_names(entry.name, entry.open)
    for entry in found.entries:
        progress("reading", done, total)
        if not _is_binary(entry) and not entry.is_ours:
            redactor.learn(entry.name, entry.open)
        done += entry.size
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        held: list[Held] = []
        with zipfile.ZipFile(part, "w") as packed:
            for entry in found.entries:
                progress("packing", done, total)
                held.append(_put(packed, entry, redactor))
                done += entry.size
            _finish(packed, found, held, redactor)
        progress("looking for what was missed", total, total)
        if left := leaks(part, redactor.vault):
            raise LeakFound(left)
        os.replace(part, target)  # noqa: PTH105
    finally:
        part.unlink(missing_ok=True)
    return target


def _text_of(entry: Entry) -> str:
    with entry.open() as stream:
        return stream.read().decode(errors="surrogateescape")


def _is_binary(entry: Entry) -> bool:
    return entry.collector in ("kernel", NATIVE)


def _put(packed: zipfile.ZipFile, entry: Entry, redactor: Redactor) -> Held:
    name = archive.portable(redactor.text("file names", entry.name))
    digest, size = hashlib.sha256(), 0
    with packed.open(archive.info(name), "w", force_zip64=True) as sink:
        if entry.is_ours:
            with entry.open() as source:
                parts = iter([source.read()])
        elif _is_binary(entry):
            with entry.open() as source:
                parts = iter([redactor.mask(entry.name, source.read())])
        else:
            parts = iter(redactor.redact(entry.name, entry.open))
        for part in parts:
            digest.update(part)
            size += len(part)
            sink.write(part)
    structure = _structure(entry) if entry.name not in redactor.changed else None
    return Held(
        name=name, size=size, sha256=digest.hexdigest(), collector=entry.collector, duration_s=entry.duration_s, structure=structure
    )


def _structure(entry: Entry) -> str | None:
    if entry.collector != "program" or not is_source(entry.name, text := _text_of(entry)):
        return None
    return structure_of(text.encode(errors="surrogateescape"))


def _finish(packed: zipfile.ZipFile, found: Draft, held: list[Held], redactor: Redactor) -> None:
    """The redaction report and the manifest, which tell of everything else."""
    clean = [
        dataclasses.replace(gap, what=redactor.text(manifest.NAME, gap.what), why=redactor.text(manifest.NAME, gap.why))
        for gap in found.missing
    ]
    report = redaction_report(redactor).encode(errors="backslashreplace")
    packed.writestr(archive.info(REDACTION), report)
    held = [*held, Held(name=REDACTION, size=len(report), sha256=hashlib.sha256(report).hexdigest(), collector="package", duration_s=None)]
    run = redactor.text(manifest.NAME, found.folder.path.resolve().name)
    collectors = [{key: entry[key] for key in ("name", "status", "duration_s")} for entry in found.environment]
    packed.writestr(archive.info(manifest.NAME), manifest.to_json(run, found.wish.kind, held, clean, collectors))


def redaction_report(redactor: Redactor) -> str:
    """How many of which kind were taken out of which file."""
    lines = ["# What was taken out", "", "The same value has the same token everywhere in this package.", ""]
    rows = [
        (redactor.text("file names", name), kind, count)
        for name, counts in redactor.counts.items()
        for kind, count in counts.items()
        if count
    ]
    if not rows:
        return "\n".join([*lines, "Nothing was found to take out.", ""])
    lines += ["| file | kind | places |", "|---|---|---|", *(f"| {name} | {kind} | {count} |" for name, kind, count in sorted(rows))]
    return "\n".join([*lines, ""])


def _report(run: Path) -> None:
    """The report is older than the verdict when the run was interrupted before it was written."""
    from reports.writing import write

    page, verdict = run / "report.html", run / "verdict.json"
    if not page.exists() or (verdict.exists() and verdict.stat().st_mtime_ns > page.stat().st_mtime_ns):
        write(run)


def _with_raw_report(run: Path, entries: list[Entry]) -> list[Entry]:
    """The report on disk has tokens of its own, so it is made again: the same value has the same token everywhere in a package."""
    from reports.writing import render

    page = run / "report.md"
    if not page.is_file() or MARK not in page.read_text(errors="replace"):
        return entries
    raw = {name: text.encode(errors="surrogateescape") for name, text in render(run).items()}
    return [dataclasses.replace(entry, content=raw.get(entry.name, entry.content)) for entry in entries]


def _environment(folder: RunFolder, chosen: Chosen, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """Collected once for each run and kept in its folder, so that a second package of it has the same bytes."""
    kept = folder.path / "environment.json"
    try:
        facts: list[dict[str, Any]] = json.loads(kept.read_bytes())
    except (OSError, ValueError):
        attempt = next((found.attempt for found in chosen.cited if found.attempt), None)
        facts = collect(folder.plan.machine if folder.plan else None, attempt, environment)
        try:
            write_text(kept, json.dumps(facts, indent=1) + "\n")
            kept.chmod(0o600)
        except OSError:  # someone else's folder: it is told anew each time
            pass
    return facts
