"""How often to look, so that the recorder stays below one percent of a core whatever it follows."""

from __future__ import annotations

import time
from pathlib import Path

from matrix.runner.cgroup import Group
from matrix.runner.sampler import FIRST_SHARES_S, Pace, Sampler

SHARE = 0.005  # of a core, in the long run
CREDIT_S = 0.2  # of processor time that may be spent ahead of it: a death in the first seconds is seen as finely
SLOWEST = 32.0
SHARES_COSTS = 1000  # PSS at 0.1 % of a core
SAMPLE_S, LOOK_S = 0.1, 1.0  # at factor 1
UP, DOWN = 1.3, 1.1  # factors of a look


class Governor:
    """One factor for all intervals, by the processor time that this process has used."""

    def __init__(self, now_s: float) -> None:
        self.factor = 1.0
        self.began_cpu_s = time.process_time()
        self._last = now_s, self.began_cpu_s
        self._credit_s = CREDIT_S

    @property
    def used_cpu_s(self) -> float:
        return time.process_time() - self.began_cpu_s

    def look(self, now_s: float) -> None:
        then_s, then_cpu_s = self._last
        self._last = now_s, time.process_time()
        self._credit_s = min(CREDIT_S, self._credit_s + SHARE * (now_s - then_s) - (self._last[1] - then_cpu_s))
        if self._credit_s < 0:
            self.factor = min(SLOWEST, self.factor * UP)
        elif self._credit_s > CREDIT_S / 3:
            self.factor = max(1.0, self.factor / DOWN)


class PacedSampler(Sampler):
    """The runner's, at the governor's pace from the beginning: a long run has time enough for its first seconds."""

    def __init__(self, path: Path, governor: Governor, *, group: Group | None, folders: dict[str, str]) -> None:
        super().__init__(path, group=group, folders=folders)
        self._governor = governor
        self._shares = Pace(SHARES_COSTS, FIRST_SHARES_S)

    def sample(self, now_s: float, step: int | None) -> None:
        super().sample(now_s, step)
        self.next_s = max(self.next_s, now_s + SAMPLE_S * self._governor.factor)
