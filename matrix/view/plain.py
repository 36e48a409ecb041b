"""One line when an attempt ends; safe in logs and pipes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TextIO

from matrix.records import Attempt, Outcome, Plan, Trial
from matrix.runner.attempt import Live
from matrix.view.words import describe, difference


class PlainView:
    def __init__(self, plan: Plan, out: TextIO | None = None) -> None:
        """`out`: None is standard output."""
        self._plan = plan
        self._out = out or sys.stdout
        self._learnt = ""

    def expects(self, runs: int) -> None:
        pass

    def started(self, attempt: Attempt) -> None:
        pass

    def finished(self, attempt: str, trial: Trial, outcome: Outcome, learnt: str) -> None:
        cell = difference(trial.cell, self._plan.known_bad)
        print(f"{attempt}  {trial.purpose:9}  {cell}: {describe(outcome)}", file=self._out)
        if learnt and learnt != self._learnt:
            print(f"           {learnt}", file=self._out)
        self._learnt = learnt
        self._out.flush()

    def refresh(self, running: Mapping[str, Live]) -> None:
        pass

    def note(self, text: str) -> None:
        print(f"note: {text}", file=self._out)

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None:
        pass
