"""A child's output in a file of bounded size: the head and the tail are kept, what is dropped between them is counted."""

from __future__ import annotations

import collections
import contextlib
import os
import sys
from io import FileIO
from pathlib import Path

from matrix.runner.own_files import new_file, put_back

PIPE_BYTES = 1 << 20


class CappedFile:
    """Write any number of bytes; at most about `cap_bytes` reach the disk.

    The head is written at once, the tail is held in memory until `close`.  `lazy`: without a byte there is no file.
    """

    def __init__(self, path: Path | str, cap_bytes: int = 16 << 20, *, lazy: bool = False) -> None:
        self.dropped_bytes = 0
        self.replaced = False  # by the child
        self._path = path
        self._file: FileIO | None = None if lazy else self._open()
        self._head_left = cap_bytes // 2
        self._tail_cap = cap_bytes - cap_bytes // 2
        self._tail: collections.deque[bytes] = collections.deque()
        self._tail_size = 0

    def write(self, data: bytes) -> None:
        if self._file is None:
            self._file = self._open()
        if self._head_left:
            head, data = data[: self._head_left], data[self._head_left :]
            self._file.write(head)
            self._head_left -= len(head)
        if not data:
            return
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= self._tail_cap:
            gone = self._tail.popleft()
            self._tail_size -= len(gone)
            self.dropped_bytes += len(gone)

    def _open(self) -> FileIO:
        return FileIO(new_file(self._path), "r+")

    def close(self) -> None:
        """Write the tail; a second call does nothing."""
        if self._file is None or self._file.closed:
            return
        tail = b"".join(self._tail)
        excess = max(0, len(tail) - self._tail_cap)
        self.dropped_bytes += excess
        if self.dropped_bytes:
            self._file.write(f"\n[... {self.dropped_bytes} bytes of output dropped here ...]\n".encode())
        self._file.write(tail[excess:])
        self.replaced = put_back(self._path, self._file.fileno())
        self._file.close()


def pipes(pty: bool) -> tuple[dict[int, str], tuple[int, int]]:
    """Our reading ends by name, and the child's two writing ends."""
    if pty:
        ours, theirs = os.openpty()
        return {ours: "stdout"}, (theirs, theirs)
    out_read, out_write = os.pipe()
    err_read, err_write = os.pipe()
    if sys.platform == "linux":
        import fcntl

        for descriptor in (out_read, err_read):
            with contextlib.suppress(OSError):  # the user's pipe quota may be spent; then the usual 64 KiB do
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return {out_read: "stdout", err_read: "stderr"}, (out_write, err_write)
