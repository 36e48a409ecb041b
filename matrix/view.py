"""What people see while a matrix runs: plain lines when the output is not a terminal, a live table when it is."""

from __future__ import annotations

import collections
import sys
import time
from collections.abc import Mapping
from typing import TextIO

from matrix.records import Attempt, Outcome, Trial, describe_cell
from matrix.runner.attempt import Live

MIB = 1 << 20


def describe(outcome: Outcome) -> str:
    """`died SIGABRT at step 11 after 3.2 s`."""
    text: str = outcome.kind
    if outcome.signature:
        text += f" {outcome.signature}"
    if outcome.steps is not None:
        text += f" at step {outcome.steps}" if outcome.kind == "died" else f" {outcome.steps} steps"
    elif outcome.kind == "died":
        text += " before its first step"
    if outcome.kind != "unavailable":
        text += f" after {outcome.seconds:.1f} s"
    return text + (f" ({outcome.reason})" if outcome.reason else "")


class PlainView:
    """One line when an attempt ends; safe in logs and pipes."""

    def __init__(self, out: TextIO = sys.stdout) -> None:
        self._out = out
        self._learnt = ""

    def started(self, attempt: Attempt) -> None:
        pass

    def finished(self, attempt: str, trial: Trial, outcome: Outcome, learnt: str) -> None:
        print(f"{attempt}  {trial.purpose:9}  {describe_cell(trial.cell)}: {describe(outcome)}", file=self._out)
        if learnt and learnt != self._learnt:
            print(f"           {learnt}", file=self._out)
        self._learnt = learnt
        self._out.flush()

    def refresh(self, running: Mapping[str, Live]) -> None:
        pass

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class LiveView:
    """A table of what runs, what ended and what was learnt, redrawn in place; made for 80 columns over ssh."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._console = Console()
        self._live = RichLive(console=self._console, refresh_per_second=4, transient=True, get_renderable=self._render)
        self._counts: collections.Counter[str] = collections.Counter()
        self._running: Mapping[str, Live] = {}
        self._last = ""
        self._learnt = ""

    def started(self, attempt: Attempt) -> None:
        pass

    def finished(self, attempt: str, trial: Trial, outcome: Outcome, learnt: str) -> None:
        from rich.text import Text

        self._counts[outcome.kind] += 1
        self._learnt = learnt
        colour = {"died": "red", "survived": "green"}.get(outcome.kind, "yellow")
        line = Text(f"{attempt}  {trial.purpose:9}  ", style="dim")
        line.append(f"{describe_cell(trial.cell)}: ", style="default")
        line.append(describe(outcome), style=colour)
        self._console.print(line)

    def refresh(self, running: Mapping[str, Live]) -> None:
        self._running = dict(running)

    def _render(self) -> object:
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        table = Table(expand=True, box=None, pad_edge=False)
        for title, justify in (("running", "left"), ("step", "right"), ("rate", "right"), ("memory", "right"), ("last line", "left")):
            table.add_column(title, justify=justify, no_wrap=True, overflow="ellipsis", ratio=3 if title == "last line" else None)  # type: ignore[arg-type]
        for name, live in self._running.items():
            table.add_row(name.split("-")[0], *_cells(live))
        counts = "  ".join(f"{count} {kind}" for kind, count in self._counts.items()) or "nothing has ended yet"
        return Group(table, Text(counts, style="bold"), Text(self._learnt, no_wrap=True, overflow="ellipsis"))

    def __enter__(self) -> LiveView:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)


def _cells(live: Live) -> tuple[str, str, str, str]:
    age = time.monotonic() - live.started_monotonic
    step = "-" if live.step is None else f"{live.step}" + (f"/{live.total}" if live.total else "")
    rate = f"{live.step / age:.1f}/s" if live.step and age > 0 else f"{age:.0f} s"
    limit = live.attempt.memory_limit_bytes
    memory = "-" if live.rss_bytes is None else f"{live.rss_bytes / MIB:.0f}" + (f"/{limit / MIB:.0f}" if limit else "") + " MiB"
    return step, rate, memory, live.last_line
