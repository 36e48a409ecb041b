"""The commands about packages: what the command line hands to `reports.package`, and the words for what comes back."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

if TYPE_CHECKING:
    from matrix.records import Attempt
    from reports.package import Draft, Sources

MIB = 1 << 20


class Refused(click.ClickException):
    """Bad input: exit status 2."""

    exit_code = 2


def pack(run: Path, kind: Literal["minimal", "extended"], *, cores: bool, out: Path | None, max_mib: int, dry_run: bool) -> Path | None:
    """Write the package of a run folder; its path, or None for a dry run, which only lists."""
    from reports.package import LeakFound, Wish, draft
    from reports.package import pack as write

    wish = Wish(kind=kind, cores=cores, sources=_sources(run))
    found = draft(run, wish, cap_bytes=max_mib * MIB, environment=os.environ)
    if dry_run:
        click.echo(listing(found))
        return None
    target = out or run / f"package-{kind}.zip"
    if target.is_dir():
        raise Refused(f"{target} is a folder; --out names the file to write, such as {target / f'package-{kind}.zip'}")
    with click.progressbar(length=2 * found.size, label="package", file=sys.stderr) as bar:
        try:
            return write(found, target, environment=os.environ, progress=_progress(bar))
        except LeakFound as problem:
            raise click.ClickException(str(problem)) from problem


def write_report(run: Path) -> None:
    """The report of a run folder that no matrix made; it goes into the package."""
    import reports

    reports.write(run)


def _progress(bar: object) -> Callable[[str, int, int], None]:
    before = 0

    def show(what: str, done: int, total: int) -> None:
        nonlocal before
        bar.label = what  # type: ignore[attr-defined]  # click does not type its progress bar's attributes
        bar.update(done - before)  # type: ignore[attr-defined]
        before = done

    return show


def _sources(run: Path) -> Callable[[Attempt], Sources]:
    """The program's own files, and which of them are not as they were in the run."""

    def of(attempt: Attempt) -> Sources:
        from matrix import records
        from matrix.adoption import changed_files
        from matrix.spec.fingerprint import own_files
        from reports.package import Sources

        cwd = Path(attempt.cwd)
        if not cwd.is_dir():
            return Sources()
        try:
            observation = records.read(records.Observation, run / "attempts" / attempt.id / "observation.json")
        except (OSError, ValueError):
            changed: list[str] = []
        else:
            changed = changed_files(observation, attempt.cwd, observation.files_written)
        files = {path for argv in _programs(attempt.argv) for path in own_files(argv, cwd)}
        return Sources(files=sorted(files), changed=changed)

    return of


def _programs(argv: list[str]) -> list[list[str]]:
    """The command, and the one that it starts when it is a wrapper: `wrapper options -- program`."""
    return [argv, argv[argv.index("--") + 1 :]] if "--" in argv[1:-1] else [argv]


def listing(found: Draft) -> str:
    """What a package would hold, and what not."""
    lines = [f"{entry.size:>12,}  {entry.name}  ({entry.collector})" for entry in found.entries]
    lines.append(f"{found.size:>12,}  bytes in {len(found.entries)} files, before redaction and compression")
    lines += [f"not packed: {gap.what}: {gap.why}" + (f" ({gap.size:,} bytes)" if gap.size else "") for gap in found.missing]
    return "\n".join(lines)


def verify(package: Path) -> list[str]:
    """What differs from the manifest, as sentences."""
    from reports.package import UnsafePackage, mismatches

    _must_be_file(package)
    try:
        return mismatches(package)
    except UnsafePackage as problem:
        return [f"it must not be unpacked: {problem}"]
    except ValueError as problem:
        raise Refused(f"{problem}; give the .zip file that `package` wrote") from problem


def unpack(package: Path, to: Path | None) -> Path:
    """Unpack into a new folder; the report in it."""
    from reports.package import UnsafePackage
    from reports.package import unpack as write

    _must_be_file(package)
    if to is not None and to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise Refused(f"{to} is there already and is not an empty folder; name a new one with --to")
    target = to or Path(tempfile.mkdtemp(prefix=f"{package.stem}-"))
    try:
        write(package, target)
    except UnsafePackage as problem:
        raise Refused(f"{package} was not unpacked: {problem}") from problem
    except ValueError as problem:
        kept = f"; what could be read is in {target}" if target.is_dir() and any(target.iterdir()) else ""
        raise Refused(f"{problem}{kept}; give the .zip file that `package` wrote") from problem
    report = target / "report.html"
    return report if report.is_file() else target


def _must_be_file(package: Path) -> None:
    if not package.is_file():
        raise Refused(f"{package} is {'not a file' if package.exists() else 'not there'}; give the .zip file that `package` wrote")
