"""The memory curve of a process tree, cheap enough not to change what it measures.

/proc/PID/statm is read with descriptors that stay open (about 2 us a process); psutil elsewhere.  Each sample is
several rows of memory.csv in long form, so that devices can be added without a new format.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import psutil

PAGE = os.sysconf("SC_PAGE_SIZE")
HEADER = "time,step,pid,role,rank,device,kind,bytes\n"


class Sampler:
    """Rows go to `path`; times are seconds since the attempt's start."""

    def __init__(self, path: Path, role: Callable[[int], str]) -> None:
        self.samples = 0
        self.first_step_total: int | None = None
        self.last_total: int | None = None
        self.peak_total: int | None = None
        self.system_available: int | None = None
        self._role = role
        self._open: dict[int, int] = {}  # pid -> descriptor of its statm
        self._roles: dict[int, str] = {}
        self._file = path.open("w", encoding="utf-8")
        self._file.write(HEADER)

    def follow(self, pids: set[int]) -> None:
        """The processes to sample from now on."""
        for pid in set(self._open) - pids:
            os.close(self._open.pop(pid))
        for pid in pids - set(self._open):
            with contextlib.suppress(OSError):
                self._open[pid] = os.open(f"/proc/{pid}/statm", os.O_RDONLY)
                self._roles[pid] = self._role(pid)
        if not Path("/proc/self").exists():
            self._roles = {pid: self._role(pid) for pid in pids}
        self.system_available = psutil.virtual_memory().available
        self._file.flush()

    def sample(self, now_s: float, step: int | None) -> None:
        total, rows = 0, []
        for pid, rss, shared in self._read():
            total += rss
            prefix = f"{now_s:.3f},{'' if step is None else step},{pid},{self._roles.get(pid, 'other')},,host"
            rows.append(f"{prefix},rss,{rss}\n{prefix},shared,{shared}\n")
        if not rows:
            return
        self._file.write("".join(rows))
        self.samples += 1
        self.last_total = total
        self.peak_total = max(total, self.peak_total or 0)
        if step is not None and self.first_step_total is None:
            self.first_step_total = total

    def _read(self) -> list[tuple[int, int, int]]:
        found = []
        for pid, descriptor in list(self._open.items()):
            try:
                _, resident, shared, *_ = os.pread(descriptor, 128, 0).split()
            except (OSError, ValueError):  # it is gone
                os.close(self._open.pop(pid))
                continue
            if resident != b"0":
                found.append((pid, int(resident) * PAGE, int(shared) * PAGE))
        if not self._open and not Path("/proc/self").exists():
            for pid in self._roles:
                with contextlib.suppress(psutil.Error):
                    memory = psutil.Process(pid).memory_info()
                    found.append((pid, memory.rss, getattr(memory, "shared", 0)))
        return found

    def close(self) -> None:
        self.follow(set())
        self._file.close()
