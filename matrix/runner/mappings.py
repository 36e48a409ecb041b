"""What each process had mapped into its memory, as last seen: it is needed once the process is gone."""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

from matrix.evidence.fault import mapped_files
from matrix.kernel_text import kernel_text

RANGES = re.compile(r"^([0-9a-f]+)-([0-9a-f]+) r", re.M)  # that may be read
LARGEST_TEXT, MOST_RANGES = 1 << 18, 4096  # of a map: to read a larger one line by line would take milliseconds


class Mappings:
    """Read again only where the size of a process's address space has changed."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}  # pid -> its /proc/PID/maps
        self.seen_unix_s: dict[tuple[int, str], float] = {}  # when a file was first seen in a process's mappings
        self.cwds: dict[int, Path] = {}
        self._sizes: dict[int, int] = {}
        self._ranges: dict[int, set[tuple[int, int]]] = {}  # that a process has ever had

    def keep(self, pid: int) -> None:
        with contextlib.suppress(OSError, ValueError, IndexError):
            size = int(kernel_text(f"/proc/{pid}/statm").split()[0])
            if size and size != self._sizes.get(pid):
                self.texts[pid] = kernel_text(f"/proc/{pid}/maps")
                self._sizes[pid] = size
                for path in mapped_files(self.texts[pid]):
                    self.seen_unix_s.setdefault((pid, path), time.time())
                self._remember(pid)
                self.cwds[pid] = Path(f"/proc/{pid}/cwd").readlink()

    def _remember(self, pid: int) -> None:
        known = self._ranges.setdefault(pid, set())
        if len(self.texts[pid]) <= LARGEST_TEXT and len(known) < MOST_RANGES:
            known |= {(int(start, 16), int(end, 16)) for start, end in RANGES.findall(self.texts[pid])}

    def had(self, pid: int, address: int) -> bool:
        """Return True if memory was seen at that address at any look."""
        return any(start <= address < end for start, end in self._ranges.get(pid, ()))
