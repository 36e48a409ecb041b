"""`pytest reproducers/`: which of the known suspects this machine clears, and which it convicts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.executors.local import LocalPool
from reproducers.stand import Stand


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    with LocalPool(1) as made:
        yield made


@pytest.fixture
def stand(pool: LocalPool, request: pytest.FixtureRequest, tmp_path: Path) -> Stand:
    return Stand(pool, request, tmp_path)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each suspect; the properties come from the workers too under -n."""
    reports = [report for reports in terminalreporter.stats.values() for report in reports if getattr(report, "when", None) == "call"]
    judged = sorted({tuple(value) for report in reports for name, value in report.user_properties if name == "suspect"})
    if judged:
        terminalreporter.section("suspects on this machine")
        for name, kind in judged:
            terminalreporter.write_line(f"{kind:<14} {name}", red=kind == "convicted", green=kind == "cleared")
