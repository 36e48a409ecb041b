"""When has a child waited too long?  Pure bookkeeping: the caller hands in the time and what it saw.

A process that sleeps and a process that spins can both hang, and both can be healthy.  So silence alone never ends a
child: `idle` needs silence and processes that do nothing, and one that keeps a CPU busy without progress is given
the longer `stall`.  And a process that could run and gets no processor does not hang: of such time the three limits count only
what it ran, up to a bound, beyond which nothing can be said of it.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

Overdue = Literal["wall", "startup", "idle", "stall", "starved"]
BUSY_SHARE = 0.05  # of one CPU; a sleeping program's housekeeping threads stay below it
STRETCHED = 20  # a limit is stretched to so many times itself at the most: then the program had less than that share


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Seconds; see design section "limits".  None: no limit."""

    wall_s: float | None = None
    startup_s: float | None = 300.0  # until the first step
    quiet_startup_s: float | None = None  # the same while nothing is done: no output, processes that do nothing
    idle_s: float | None = 60.0  # no output, no progress, processes that do nothing
    stall_s: float | None = 600.0  # no progress, whatever else it does


@dataclasses.dataclass(frozen=True)
class _Mark:
    """A moment, and how long until then the program had waited for a processor."""

    at_s: float = 0.0
    starved_s: float = 0.0


class Patience:
    def __init__(self, limits: Limits, *, expects_steps: bool) -> None:
        self.starved_s = 0.0  # it could have run so long, and did not
        self.longest_gap_s = 0.0  # between two steps, less what of it was such time
        self._limits = limits
        self._expects_steps = expects_steps
        self._last_output = self._last_progress = self._last_busy = self._last_look = _Mark()
        self._heard = False
        self._stepped = False
        self._paused = 0.0

    def paused(self, seconds: float) -> None:
        """Nobody looked for so long (the tool itself was stopped): no limit counts it."""
        self._paused += seconds

    def saw_output(self, now_s: float) -> None:
        self._last_output = self._mark(now_s)
        self._heard = True

    def saw_progress(self, now_s: float) -> None:
        """A new step, or the line that says that it has finished."""
        before, self._last_progress = self._last_progress, self._mark(now_s)
        if self._stepped:
            gap_s = self._last_progress.at_s - before.at_s - (self._last_progress.starved_s - before.starved_s)
            self.longest_gap_s = max(self.longest_gap_s, gap_s)
        self._stepped = True

    def cannot_see_steps(self) -> None:
        """Nobody reads its steps any more: only its output tells from now on whether it goes on."""
        self._expects_steps = self._stepped = False

    def saw_activity(self, now_s: float, cpu_s: float, *, on_disk: bool, runnable: bool) -> None:
        """CPU seconds that all processes used since the last call, whether one waits for a disk, and whether a thread runs or could."""
        window_s = now_s - self._paused - self._last_look.at_s
        if runnable:
            self.starved_s += max(0.0, window_s - cpu_s)
        self._last_look = self._mark(now_s)
        if on_disk or cpu_s > BUSY_SHARE * window_s:
            self._last_busy = self._last_look

    def overdue(self, now_s: float) -> Overdue | None:
        """As of the last look at its activity, but `wall`.  `starved`: by the clock one of the other limits is long over, by the time
        that the program could use it is not."""
        limits, now = self._limits, self._last_look
        if limits.wall_s is not None and now_s - self._paused > limits.wall_s:
            return "wall"
        if not self._stepped and (self._expects_steps or not self._heard):
            last_sign = max(self._last_output, self._last_busy, key=lambda sign: sign.at_s)
            quiet = _over("startup", last_sign, now, limits.quiet_startup_s)
            return quiet or _over("startup", _Mark(), now, limits.startup_s)
        signs = (self._last_output, self._last_progress, self._last_busy)
        # A program that shows no steps can only be judged by its output.
        last = self._last_progress if self._stepped else self._last_output
        idle = _over("idle", max(signs, key=lambda sign: sign.at_s), now, limits.idle_s)
        return idle or _over("stall", last, now, limits.stall_s)

    def _mark(self, now_s: float) -> _Mark:
        return _Mark(now_s - self._paused, self.starved_s)


def _over(kind: Overdue, since: _Mark, now: _Mark, limit_s: float | None) -> Overdue | None:
    if limit_s is None:
        return None
    passed_s = now.at_s - since.at_s
    if passed_s - (now.starved_s - since.starved_s) > limit_s:
        return kind
    return "starved" if passed_s > STRETCHED * limit_s else None
