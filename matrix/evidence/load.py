"""How many threads of the tree want to run at once, and how long they waited for a processor."""

from __future__ import annotations

import contextlib
import os

from matrix.records import Load

MOST_THREADS = 512  # looked at each time; beyond it the count is a lower bound


class LoadWatch:
    def __init__(self) -> None:
        self._counts: list[int] = []
        self._waited: dict[int, int] = {}  # thread -> nanoseconds on a run queue
        self._cpus = 0

    def look(self, pids: list[int], main: int) -> int:
        """Count the threads that run or could; `cpus` is what the main process may use."""
        found = [(pid, tid) for pid in pids for tid in _threads(pid)][:MOST_THREADS]
        self._counts.append(sum(_runs(pid, tid) for pid, tid in found))
        for pid, tid in found:
            with contextlib.suppress(OSError, ValueError, IndexError):
                self._waited[tid] = int(_read(f"/proc/{pid}/task/{tid}/schedstat").split()[1])
        with contextlib.suppress(OSError):
            self._cpus = len(os.sched_getaffinity(main))
        return self._counts[-1]

    def record(self) -> Load | None:
        if not self._counts or not self._cpus:
            return None
        return Load(
            cpus=self._cpus,
            runnable_mean=round(sum(self._counts) / len(self._counts), 2),
            runnable_most=max(self._counts),
            looks=len(self._counts),
            wait_s=round(sum(self._waited.values()) / 1e9, 3) if self._waited else None,
        )


def runnable(pid: int) -> int:
    """Threads of one process that run or could."""
    return sum(_runs(pid, tid) for tid in _threads(pid)[:MOST_THREADS])


def _threads(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    return []


def _runs(pid: int, tid: int) -> bool:
    with contextlib.suppress(OSError, IndexError):
        return _read(f"/proc/{pid}/task/{tid}/stat").rpartition(b")")[2].split(maxsplit=1)[0] == b"R"
    return False


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1024)
    finally:
        os.close(descriptor)
