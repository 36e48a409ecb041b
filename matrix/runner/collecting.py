"""Isolation of collectors: one that raises is listed as not collected, with the reason, and everything else goes on."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from matrix.records import NotCollected

LONGEST_WHY = 300

T = TypeVar("T")


class Collecting:
    """Calls collectors.  The first reason of each failed collector is kept; a later call may succeed again."""

    def __init__(self, tell: Callable[[Exception], None] | None = None) -> None:
        """`tell` is called when a collector fails for the first time."""
        self._failed: dict[str, NotCollected] = {}
        self._tell = tell

    def __call__(self, what: str, collect: Callable[[], T], otherwise: T) -> T:
        """Return what `collect` returns, or `otherwise` when it raises."""
        try:
            return collect()
        except Exception as problem:
            self.failed(what, problem)
            return otherwise

    def succeeds(self, what: str, collect: Callable[[], object]) -> bool:
        """Call `collect`; False when it raised."""
        try:
            collect()
        except Exception as problem:
            self.failed(what, problem)
            return False
        return True

    def failed(self, what: str, problem: Exception) -> None:
        if what in self._failed:
            return
        self._failed[what] = NotCollected(what=what, why=f"the collector failed: {reason_of(problem)}")
        if self._tell:
            self._tell(problem)

    def missing(self) -> list[NotCollected]:
        return list(self._failed.values())


def reason_of(problem: BaseException) -> str:
    """Name the exception and the line of our code that raised it, so that a report of it can be acted on."""
    frames = traceback.extract_tb(problem.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    said = " ".join(str(problem).split())[:LONGEST_WHY]
    return f"{type(problem).__name__}: {said}{place}"
