"""What each process had mapped into its memory, as last seen: it is needed once the process is gone."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from matrix.evidence.fault import mapped_files
from matrix.kernel_text import kernel_text


class Mappings:
    """Read again only where the size of a process's address space has changed."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}  # pid -> its /proc/PID/maps
        self.seen_unix_s: dict[tuple[int, str], float] = {}  # when a file was first seen in a process's mappings
        self.cwds: dict[int, Path] = {}
        self._sizes: dict[int, int] = {}

    def keep(self, pid: int) -> None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            size = int(kernel_text(f"/proc/{pid}/statm").split()[0])
            if size and size != self._sizes.get(pid):
                self.texts[pid] = kernel_text(f"/proc/{pid}/maps")
                self._sizes[pid] = size
                for path in mapped_files(self.texts[pid]):
                    self.seen_unix_s.setdefault((pid, path), time.time())
                self.cwds[pid] = Path(f"/proc/{pid}/cwd").readlink()
