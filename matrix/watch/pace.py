"""How often to look, so that the recorder stays below one percent of a core whatever it follows."""

from __future__ import annotations

import time
from pathlib import Path

from matrix.runner.cgroup import Group
from matrix.runner.sampler import Sampler

MOST, FEW = 0.006, 0.003  # of a core: above it everything is done less often, below it more often again
SLOWEST = 32.0
SAMPLE_S, LOOK_S = 0.05, 1.0  # at factor 1
WEIGHT_S = 10.0  # of the past


class Governor:
    """One factor for all intervals, by the processor time that this process has used."""

    def __init__(self, now_s: float) -> None:
        self.factor = 1.0
        self.began_cpu_s = time.process_time()
        self._last = now_s, self.began_cpu_s
        self._share = MOST

    @property
    def used_cpu_s(self) -> float:
        return time.process_time() - self.began_cpu_s

    def look(self, now_s: float) -> None:
        then_s, then_cpu_s = self._last
        cpu_s, wall_s = time.process_time(), now_s - then_s
        if wall_s <= 0:
            return
        self._last = now_s, cpu_s
        part = min(1.0, wall_s / WEIGHT_S)
        self._share += part * ((cpu_s - then_cpu_s) / wall_s - self._share)
        if self._share > MOST:
            self.factor = min(SLOWEST, self.factor * 1.3)
        elif self._share < FEW:
            self.factor = max(1.0, self.factor / 1.1)


class PacedSampler(Sampler):
    """The runner's, at the governor's pace from the beginning: a long run has time enough for its first seconds."""

    def __init__(self, path: Path, governor: Governor, *, group: Group | None, folders: dict[str, str]) -> None:
        super().__init__(path, group=group, folders=folders)
        self._governor = governor
        self._last_s = -SAMPLE_S

    @property
    def next_s(self) -> float:
        return max(super().next_s, self._last_s + SAMPLE_S * self._governor.factor)

    def sample(self, now_s: float, step: int | None) -> None:
        self._last_s = now_s
        super().sample(now_s, step)
