"""When has a child waited too long?  Pure bookkeeping: the caller hands in the time and what it saw.

A process that sleeps and a process that spins can both hang, and both can be healthy.  So silence alone never ends a
child: `idle` needs silence and processes that do nothing, and one that keeps a CPU busy without progress is given
the longer `stall`.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

BUSY_SHARE = 0.05  # of one CPU; a sleeping program's housekeeping threads stay below it


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds; see design section "limits".  None: no limit."""

    wall_s: float | None = None
    startup_s: float | None = 300.0  # until the first step
    idle_s: float | None = 60.0  # no output, no progress, processes that do nothing
    stall_s: float | None = 600.0  # no progress, whatever else it does


class Patience:
    def __init__(self, limits: Limits, *, expects_steps: bool) -> None:
        self._limits = limits
        self._expects_steps = expects_steps
        self._last_output = 0.0
        self._last_progress = 0.0
        self._last_busy = 0.0
        self._heard = False
        self._stepped = False
        self._paused = 0.0

    def paused(self, seconds: float) -> None:
        """Nobody looked for so long (the tool itself was stopped): no limit counts it."""
        self._paused += seconds

    def saw_output(self, now_s: float) -> None:
        self._last_output = now_s - self._paused
        self._heard = True

    def saw_progress(self, now_s: float) -> None:
        """A new step, or the line that says that it has finished."""
        self._last_progress = now_s - self._paused
        self._stepped = True

    def saw_activity(self, now_s: float, window_s: float, cpu_s: float, on_disk: bool) -> None:
        """CPU seconds that all processes used in the last `window_s`, and whether one waits for a disk."""
        if on_disk or cpu_s > BUSY_SHARE * window_s:
            self._last_busy = now_s - self._paused

    def overdue(self, now_s: float) -> Literal["wall", "startup", "idle", "stall"] | None:
        limits, now_s = self._limits, now_s - self._paused
        if _over(now_s, limits.wall_s):
            return "wall"
        if not self._stepped and (self._expects_steps or not self._heard):
            return "startup" if _over(now_s, limits.startup_s) else None
        if _over(now_s - max(self._last_output, self._last_progress, self._last_busy), limits.idle_s):
            return "idle"
        # A program that shows no steps can only be judged by its output.
        last = self._last_progress if self._stepped else self._last_output
        return "stall" if _over(now_s - last, limits.stall_s) else None


def _over(value: float, limit: float | None) -> bool:
    return limit is not None and value > limit
