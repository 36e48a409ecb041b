"""The live view: keeps what the picture shows, and draws it a few times a second."""

from __future__ import annotations

import collections
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from matrix.records import Attempt, Outcome, OutcomeKind, Plan, Trial
from matrix.runner.attempt import Live
from matrix.view import words
from matrix.view.picture import Row, Scene, ansi, draw, result_line
from matrix.view.terminal import Terminal

REDRAW_S = 0.45  # the supervisors look at their processes twice a second
PACE_S = 10.0  # a rate is of the last so many seconds
WORST_FIRST: tuple[OutcomeKind, ...] = ("died", "survived", "censored", "unavailable")
SHORT_OF_MEMORY = 0.9  # of the limit


class LiveView:
    """Use as a context manager, in the main thread; standard output must be a terminal."""

    def __init__(self, plan: Plan, max_wall_s: float | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._plan = plan
        self._max_wall_s = max_wall_s
        self._now = now
        self._begun = now()
        self._drawn = float("-inf")
        self._colour = not os.environ.get("NO_COLOR")
        self._terminal = Terminal(sys.stdout.fileno(), sys.stdout.encoding)
        self._expected: int | None = None
        self._outcomes: dict[str, Outcome] = {}  # the last one of each attempt: later runs may have shown what it was
        self._cells: dict[str, OutcomeKind] = {}
        self._paces: dict[str, Pace] = collections.defaultdict(Pace)
        self._learnt = self._asking = ""

    def expects(self, runs: int) -> None:
        """How many runs there will probably be, those that have ended included."""
        self._expected = runs

    def started(self, attempt: Attempt) -> None:
        self._asking = words.clean(f"{attempt.trial.why} ({number(attempt.id)})")

    def finished(self, attempt: str, trial: Trial, outcome: Outcome, learnt: str) -> None:
        cell = words.difference(trial.cell, self._plan.known_bad)
        self._outcomes[attempt] = outcome
        self._cells[cell] = min(outcome.kind, self._cells.get(cell, outcome.kind), key=WORST_FIRST.index)
        self._learnt = words.clean(learnt)
        self._paces.pop(attempt, None)
        line = result_line(number(attempt), trial.purpose, cell, words.describe(outcome), outcome.kind)
        self._terminal.say(ansi(line, colour=self._colour))

    def note(self, text: str) -> None:
        self._terminal.say(words.clean(f"note: {text}"))

    def refresh(self, running: Mapping[str, Live]) -> None:
        now = self._now()
        for name, live in running.items():
            self._paces[name].see(now, live.step)
        if now - self._drawn >= REDRAW_S:
            self._drawn = now
            columns, lines = self._terminal.size
            picture = draw(self._scene(dict(running), now), max(columns - 1, 1), max(lines - 1, 1))
            self._terminal.show([ansi(line, colour=self._colour) for line in picture])

    def __enter__(self) -> LiveView:
        self._terminal.enter()
        return self

    def __exit__(self, *_: object) -> None:
        self._terminal.leave()

    def _scene(self, running: Mapping[str, Live], now: float) -> Scene:
        ages = [now - live.started_monotonic for live in running.values()]
        seconds = [outcome.seconds for outcome in self._outcomes.values() if outcome.kind != "unavailable"]
        left = estimate_left(seconds, ages, self._expected, self._plan.jobs)
        elapsed = now - self._begun
        if left is not None and self._max_wall_s is not None:
            left = min(left, max(0.0, self._max_wall_s - elapsed))
        return Scene(
            title=words.clean(self._plan.name),
            clock=f"{words.duration(elapsed)}, {words.time_left(left)}",
            runs=collections.Counter(outcome.kind for outcome in self._outcomes.values()),
            cells=collections.Counter(self._cells.values()),
            expected=self._expected,
            absent_values=sum(len(axis.unavailable) for axis in self._plan.axes),
            learnt=self._learnt,
            asking=self._asking if running else "",
            rows=[self._row(name, live, now) for name, live in running.items()],
        )

    def _row(self, name: str, live: Live, now: float) -> Row:
        step = "no step yet" if live.step is None else f"step {live.step}" + (f"/{live.total}" if live.total else "")
        limit, used = live.attempt.memory_limit_bytes, live.rss_bytes
        return Row(
            number=number(name),
            cell=words.difference(live.attempt.trial.cell, self._plan.known_bad),
            figures=(
                step,
                words.speed(self._paces[name].steps_per_s(now)),
                words.memory(used, limit),
                words.duration(now - live.started_monotonic),
            ),
            memory_is_short=bool(used and limit and used > SHORT_OF_MEMORY * limit),
            last_line=words.clean(live.last_line),
        )


class Pace:
    """Steps per second over the last seconds; slow steps are followed over the last three of them."""

    def __init__(self) -> None:
        self._seen: collections.deque[tuple[float, int]] = collections.deque()  # (when, step) of each advance

    def see(self, now: float, step: int | None) -> None:
        if step is not None and (not self._seen or step != self._seen[-1][1]):
            self._seen.append((now, step))
        while len(self._seen) > 3 and self._seen[1][0] < now - PACE_S:
            self._seen.popleft()

    def steps_per_s(self, now: float) -> float | None:
        """None: there have not been two different steps.  Falls while no step comes."""
        if len(self._seen) < 2:
            return None
        (since, first), (_, last) = self._seen[0], self._seen[-1]
        return max(0, last - first) / (now - since) if now > since else None


def estimate_left(seconds: Sequence[float], ages: Sequence[float], expected: int | None, jobs: int) -> float | None:
    """Seconds until the expected number of runs has ended; None: nothing to judge by.

    `seconds`: of the attempts that ended; `ages`: of those that run.  Each run is taken to last as long as the median.
    """
    if not seconds or expected is None or len(seconds) + len(ages) > expected:
        return None
    each = statistics.median(seconds)
    running = [max(0.0, each - age) for age in ages]
    waiting = (expected - len(seconds) - len(ages)) * each
    return max([*running, (waiting + sum(running)) / jobs])


def number(attempt: str) -> str:
    """`0007` of `0007-ab12cd34`."""
    return attempt.partition("-")[0]
