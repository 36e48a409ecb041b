"""Files of ours in a place that a child may write to: never a symlink, a FIFO or another file in their place."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

Identity = tuple[int, int]  # device, inode


def identity_of(status: os.stat_result) -> Identity:
    """Device and inode."""
    return status.st_dev, status.st_ino


def aside(path: Path) -> None:
    """Remove an entry; a folder that holds something is kept under another name."""
    try:
        if path.is_symlink() or not path.is_dir():
            path.unlink()
        else:
            path.rmdir()
    except OSError:
        path.rename(free_name(path))


def free_name(path: Path) -> Path:
    """A name beside the path that nothing has."""
    numbers = iter(range(1, 1 << 30))
    return next(name for n in numbers if not os.path.lexists(name := path.with_name(f"{path.name}.replaced-{n}")))


def new_file(path: Path | str) -> int:
    """A descriptor of a new, empty file, to read and write; whatever was there is removed.  Raises OSError."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        aside(Path(path))
        return os.open(path, flags, 0o600)


def copy_all(source: int, target: int) -> None:
    """Copy a file's content from its beginning."""
    with os.fdopen(os.dup(source), "rb") as reader, os.fdopen(os.dup(target), "wb") as writer:
        reader.seek(0)
        shutil.copyfileobj(reader, writer)


def put_back(path: Path | str, descriptor: int) -> bool:
    """Write an open file anew where something else has its name; True if that was so."""
    if is_at(path, descriptor):
        return False
    target = new_file(path)
    try:
        copy_all(descriptor, target)
    finally:
        os.close(target)
    return True


def is_at(path: Path | str, descriptor: int) -> bool:
    """True if the open file is still the one of that name."""
    try:
        return identity_of(os.lstat(path)) == identity_of(os.fstat(descriptor))
    except OSError:
        return False
