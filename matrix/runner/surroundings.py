"""What bounds a program and what it shares a machine with, looked at twice a second or less often when that costs much."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping

from matrix.evidence.load import LoadWatch
from matrix.evidence.settings import Settings
from matrix.evidence.shared_files import SharedFiles
from matrix.evidence.space import Space
from matrix.records import NotCollected
from matrix.runner.sampler import Pace

COSTS = 200  # the next look no sooner than so many times the CPU time of the last one: half a percent of a core
SPACE_S, SPACE_COSTS = 0.05, 1000
LINUX = sys.platform == "linux"


class Surroundings:
    """Times are seconds since the attempt's start.  On systems without /proc nothing is seen, and `missing` says so."""

    def __init__(self, folders: Mapping[str, str], *, wanted: bool = True, own: str = "") -> None:
        self.settings, self.space, self.load = Settings(), Space(folders, wanted=wanted, own=own), LoadWatch()
        self.shared_files = SharedFiles()
        self._look, self._sample = Pace(COSTS), Pace(SPACE_COSTS)

    def look(self, now_s: float, pids: set[int], main: int, maps: Mapping[int, str], *, at_once: bool = False) -> int:
        """How many threads run or could, 0 when it was not looked; `at_once`: whatever it costs."""
        if not LINUX or (now_s < self._look.next_s and not at_once) or not main:
            return 0
        began = time.thread_time()
        ordered = sorted(pids, key=lambda pid: (pid != main, pid))
        self.settings.look(now_s, ordered, main)
        self.space.look(now_s, ordered, main, maps)
        self.shared_files.look(ordered)
        runnable = self.load.look(ordered, main)
        self._look.spent(now_s, 0.0, time.thread_time() - began)
        return runnable

    def sample(self, now_s: float) -> None:
        """Only the room on disks: it may fill up within a second."""
        if now_s >= self._sample.next_s:
            began = time.thread_time()
            self.space.sample(now_s)
            self._sample.spent(now_s, SPACE_S, time.thread_time() - began)

    def missing(self) -> list[NotCollected]:
        what = "limits and signal handlers of processes, file systems, runnable threads"
        return [] if LINUX else [NotCollected(what=what, why=f"{sys.platform} has no /proc")]
