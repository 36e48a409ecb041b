"""Output of a child to plain files that are followed while they grow, and whose read part is given back to the disk."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE = 1, 2
GIVE_BACK_BYTES = 16 << 20


def open_files(folder: Path) -> tuple[dict[int, str], tuple[int, int]]:
    """Our reading ends by name, and the child's two writing ends; the files have no names, so nothing is left of them."""
    readers, writers = {}, []
    for name in ("stdout", "stderr"):
        path = folder / f".{name}"
        writers.append(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600))
        readers[os.open(path, os.O_RDWR)] = name
        path.unlink()
    return readers, (writers[0], writers[1])


class Space:
    """Gives back what was read; without it, a child that prints gigabytes would fill the disk."""

    def __init__(self) -> None:
        self._given: dict[int, int] = {}

    def give_back(self, descriptor: int) -> None:
        done, given = os.lseek(descriptor, 0, os.SEEK_CUR), self._given.get(descriptor, 0)
        if done - given >= GIVE_BACK_BYTES:
            with contextlib.suppress(AttributeError, OSError):  # not a Linux, or a file system that cannot
                _libc().fallocate(descriptor, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, given, done - given)
            self._given[descriptor] = done


def _libc() -> Any:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return libc
