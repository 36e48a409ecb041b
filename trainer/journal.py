"""Changes of vectors that are not yet in their file, one record for each.  What was appended outlives the process, if not the machine."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from trainer import InputError
from trainer.chunks import Floats, Rows


class Journal:
    def __init__(self, path: Path, dim: int) -> None:
        """Raises InputError when the file cannot be opened."""
        self.path = path
        self.record = np.dtype([("row", "<i8"), ("value", "<f4", (dim,)), ("check", "<u4")])
        try:
            self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}; expected a file that can be written") from error

    def append(self, rows: Rows, values: Floats) -> None:
        """Raises OSError, and then nothing of it is kept."""
        records = np.zeros(len(rows), self.record)
        records["row"], records["value"] = rows, values
        records["check"] = [_check(record) for record in records]
        before = os.fstat(self.file).st_size
        content = records.tobytes()
        try:
            written = os.write(self.file, content)
            if written < len(content):  # the disk is full: the rest tells why
                os.write(self.file, content[written:])
                raise OSError("a write that was cut off")
        except OSError:
            os.ftruncate(self.file, before)
            raise

    def replay(self) -> Iterator[tuple[int, Floats]]:
        """The changes in their order, up to the first record that is not whole: its writer died in the middle of it."""
        content = self.path.read_bytes()
        whole = len(content) // self.record.itemsize * self.record.itemsize
        for record in np.frombuffer(content[:whole], self.record):
            if record["check"] != _check(record):
                return
            yield int(record["row"]), record["value"]

    def clear(self) -> None:
        os.ftruncate(self.file, 0)

    def close(self) -> None:
        os.close(self.file)


def _check(record: np.void) -> int:
    return zlib.crc32(record.tobytes()[:-4])
