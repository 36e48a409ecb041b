"""What can stand where a specification, a run or an attempt is named, as click asks for it; read from the folders at hand only."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem

RUNS = Path("runs")
SUFFIXES = (".yaml", ".yml")
MOST = 500


def specifications(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """YAML files, and the folders on the way to them."""
    return _items(_below(incomplete, SUFFIXES))


def runs(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of runs; once a folder is written out, what is below it."""
    return _items(_below(incomplete)) if "/" in incomplete else _items(_starting(RUNS, incomplete))


def attempts(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Attempts of the run that the command line names already."""
    from matrix.folder import NoSuchRun, find

    try:
        return _items(_starting(find(Path(str(context.params["run_folder"]))) / "attempts", incomplete))
    except (NoSuchRun, OSError, KeyError):
        return []


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Whatever the shell itself completes."""
    return [CompletionItem(incomplete, type="file")]


def _items(names: list[str]) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names[:MOST]]


def _starting(parent: Path, start: str) -> list[str]:
    """Names of folders."""
    return sorted(path.name for path in _content(parent) if path.name.startswith(start) and path.is_dir())


def _below(incomplete: str, suffixes: tuple[str, ...] = ()) -> list[str]:
    """Folders, with a slash so that one can go on, and files with these suffixes, as they are written on the command line."""
    parent, slash, start = incomplete.rpartition("/")
    found = [path for path in _content(Path(parent + slash or ".")) if path.name.startswith(start) and not path.name.startswith(".")]
    return sorted(parent + slash + path.name + ("/" if path.is_dir() else "") for path in found if path.is_dir() or path.suffix in suffixes)


def _content(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
