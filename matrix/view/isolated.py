"""A view whose faults end no run: the first one is told, and the matrix goes on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping

from matrix.records import Attempt, Outcome, Trial
from matrix.runner.attempt import Live
from matrix.runner.collecting import reason_of
from matrix.view.live import LiveView
from matrix.view.plain import PlainView


class IsolatedView:
    """Hands everything on.  An OSError is raised: nobody reads the output any more, which ends the run tidily."""

    def __init__(self, view: PlainView | LiveView) -> None:
        self._view = view
        self._told = False

    def expects(self, runs: int) -> None:
        self._safely(lambda: self._view.expects(runs))

    def started(self, attempt: Attempt) -> None:
        self._safely(lambda: self._view.started(attempt))

    def finished(self, attempt: str, trial: Trial, outcome: Outcome, learnt: str) -> None:
        self._safely(lambda: self._view.finished(attempt, trial, outcome, learnt))

    def note(self, text: str) -> None:
        self._safely(lambda: self._view.note(text))

    def refresh(self, running: Mapping[str, Live]) -> None:
        self._safely(lambda: self._view.refresh(running))

    def __enter__(self) -> IsolatedView:
        self._safely(self._view.__enter__)
        return self

    def __exit__(self, *problem: object) -> None:
        self._safely(lambda: self._view.__exit__(*problem))

    def _safely(self, show: Callable[[], object]) -> None:
        try:
            show()
        except OSError:
            raise
        except Exception as problem:
            if not self._told:
                self._told = True
                print(f"not all is shown: {reason_of(problem)}; the runs go on", file=sys.stderr)
