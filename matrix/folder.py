"""Run folders: runs/<name>/<stamp>, private, locked while in use."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterator
from pathlib import Path

RUNS = Path("runs")


class FolderError(Exception):
    """The run folder cannot be made, written or locked, or there is none."""


def create(name: str, *, root: Path = RUNS) -> Path:
    """A new private folder.  Raises FolderError."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    parent = root / safe(name)
    for attempt in range(100):
        folder = parent / (stamp if not attempt else f"{stamp}-{attempt}")
        try:
            parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.mkdir(mode=0o700)
        except FileExistsError:
            continue
        except OSError as problem:
            raise FolderError(
                f"cannot make the run folder {folder}: {problem.strerror}; run from a folder that you may write to"
            ) from problem
        (folder / "attempts").mkdir(mode=0o700)
        return folder
    raise FolderError(f"cannot find a free name in {parent}")


def latest(name: str, *, root: Path = RUNS) -> Path:
    """The newest run of that name.  Raises FolderError."""
    found = sorted(folder for folder in (root / safe(name)).glob("*") if (folder / "attempts").is_dir())
    if not found:
        raise FolderError(f"there is no run of {name!r} in {root.resolve()} to resume; run it without --resume first")
    return found[-1]


def find(given: Path) -> Path:
    """The run folder that a user means: the folder itself, runs/<name> (its newest run) or a name.  Raises FolderError."""
    for folder in (given, RUNS / given):
        if (folder / "attempts").is_dir():
            return folder
        inner = sorted(f for f in folder.glob("*") if (f / "attempts").is_dir()) if folder.is_dir() else []
        if inner:
            return inner[-1]
    raise FolderError(f"{given} is not a run folder: give runs/<name>/<stamp>, runs/<name> or a name")


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder for this process alone.  Raises FolderError when another process holds it or it is not writable."""
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".lock", timeout=0)
    try:
        lock.acquire()
    except Timeout as problem:
        raise FolderError(f"{folder} is in use by another run; wait for it to end, or run without --resume") from problem
    except OSError as problem:
        raise FolderError(f"cannot write to {folder}: {problem.strerror}") from problem
    try:
        yield
    finally:
        lock.release()


def safe(name: str) -> str:
    """A name as a folder name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "run"
