"""Run folders: runs/<name>/<stamp in UTC>, private, locked while in use."""

from __future__ import annotations

import contextlib
import datetime
import re
from collections.abc import Iterator
from pathlib import Path

RUNS = Path("runs")
STAMP = re.compile(r"(?P<time>\d{8}-\d{6})(?P<utc>Z?)(?:-(?P<number>\d{1,9}))?")


class FolderError(Exception):
    """The run folder cannot be made, written or locked."""


class NoSuchRun(Exception):
    """There is no run folder where the user says."""


def create(name: str, *, root: Path = RUNS) -> Path:
    """A new private folder.  Raises FolderError."""
    stamp = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d-%H%M%SZ")
    parent = root / safe(name)
    for attempt in range(100):
        folder = parent / (stamp if not attempt else f"{stamp}-{attempt}")
        try:
            parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            folder.mkdir(mode=0o700)
            (folder / "attempts").mkdir(mode=0o700)
        except OSError as problem:
            if isinstance(problem, FileExistsError) and parent.is_dir():
                continue
            blocked = next((place for place in (root, parent) if place.exists() and not place.is_dir()), None)
            why = f"{blocked} is not a folder; move it away" if blocked else f"{problem.strerror}; run from a folder that you may write to"
            raise FolderError(f"cannot make the run folder {folder.absolute()}: {why}") from problem
        return folder
    raise FolderError(f"cannot find a free name in {parent}; wait a second")


def latest(name: str, *, root: Path = RUNS) -> Path:
    """The newest run of that name.  Raises NoSuchRun."""
    found = _newest(root / safe(name))
    if found is None:
        raise NoSuchRun(f"there is no run of {name!r} in {root.resolve()} to resume; run it without --resume first")
    return found


def find(given: Path) -> Path:
    """The run folder that a user means: the folder itself, runs/<name> (its newest run) or a name.  Raises NoSuchRun."""
    for folder in (given, RUNS / given):
        if (folder / "attempts").is_dir():
            return folder
        newest = _newest(folder)
        if newest:
            return newest
    raise NoSuchRun(f"{given} is not a run folder: give runs/<name>/<stamp>, runs/<name> or a name, from the folder that holds runs/")


def _newest(parent: Path) -> Path | None:
    """By the stamp, then by the number of those made in one second."""
    found = [folder for folder in parent.glob("*") if (folder / "attempts").is_dir()] if parent.is_dir() else []
    return max(found, key=lambda folder: _made(folder.name), default=None)


def _made(name: str) -> tuple[float, int, str]:
    """When a folder was made, and its number among those of one second.  A stamp without Z is of an old version, in local time."""
    stamp = STAMP.fullmatch(name)
    if stamp is None:
        return 0.0, 0, name  # named by hand
    try:
        made = datetime.datetime.strptime(stamp["time"], "%Y%m%d-%H%M%S")
        unix_s = made.replace(tzinfo=datetime.timezone.utc).timestamp() if stamp["utc"] else made.timestamp()
    except (ValueError, OverflowError, OSError):  # no such day, or one before 1970
        return 0.0, 0, name
    return unix_s, int(stamp["number"] or 0), name


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
        raise FolderError(f"cannot write to {folder}: {problem.strerror}; make it writable, or run without --resume") from problem
    try:
        yield
    except OSError as problem:
        problem.filename = problem.filename or str(folder)  # a failed write (a full disk) does not say where
        raise
    finally:
        lock.release()


def safe(name: str) -> str:
    """A name as a folder name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "run"
