"""`pytest reproducers/`: which of the known suspects this machine clears, and which it convicts."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from matrix.executors.local import LocalPool
from reproducers import suspect_report
from reproducers.stand import Row, Stand, in_words

BOARD = pytest.StashKey["Board"]()


@pytest.fixture(scope="session")
def pool() -> Iterator[LocalPool]:
    with LocalPool(1) as made:
        yield made


@pytest.fixture
def stand(pool: LocalPool, request: pytest.FixtureRequest, tmp_path: Path) -> Stand:
    return Stand(pool, request, tmp_path)


@pytest.fixture(scope="session")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A pairs file of the trainer's, with two arrays of 64.5 MB."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.npz"
    rows, few = np.ones((21_000, 768), np.float32), np.ones((8, 768), np.float32)
    np.savez(path, X_train=rows, Y_train=rows, X_val=few, Y_val=few)
    yield path
    path.unlink()  # pytest keeps the folders of its last three sessions


def pytest_addoption(parser: pytest.Parser) -> None:
    help_text = "write what was cleared, convicted or could not run as a table in markdown"
    parser.getgroup("suspects").addoption("--suspect-report", metavar="FILE", type=Path, help=help_text)


def pytest_configure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):  # under -n the rows come to the process that started the workers
        return
    if path := config.getoption("--suspect-report"):
        path = config.invocation_params.dir / path
        _write(path, suspect_report.UNFINISHED)
    config.stash[BOARD] = board = Board(path)
    config.pluginmanager.register(board, "suspects-board")


def _write(path: Path, text: str) -> None:
    try:
        suspect_report.write(path, text)
    except OSError as error:
        said = f"--suspect-report {path}: {error.strerror}; expected a file in a folder that is there and can be written"
        raise pytest.UsageError(said) from error


class Board:
    """Takes down every judgement as it comes in, from the workers too under -n."""

    def __init__(self, path: Path | None) -> None:
        self.path = path  # of the report; None: none is asked for
        self.rows: dict[str, Row] = {}  # by the test's name
        self.asked: set[str] = set()
        self.ended: set[str] = set()
        self.started = time.monotonic()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.asked = {item.nodeid for item in items}

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        self.asked -= {item.nodeid for item in items}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.asked = set(ids)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown" and not report.failed:
            self.ended.add(report.nodeid)
        properties = [value for name, value in report.user_properties if name == "row"]
        row = Row(**properties[-1]) if properties else None  # type: ignore[arg-type]
        if report.failed and (row is None or row.kind in ("cleared", "seen")):
            row = _not_judged(report, row)
        elif report.skipped and row is None:  # before it came to the suspect
            row = _of_test(report, "could not be planted" if "control" in report.keywords else "could not run", _why_skipped(report))
        if row and (report.failed or report.nodeid not in self.rows):
            self.rows[report.nodeid] = row

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self) -> Generator[None, None, None]:
        """After everything else, so that a report that cannot be written takes no other words away."""
        yield
        if self.path:
            text = suspect_report.markdown(
                list(self.rows.values()),
                asked=len(self.asked | self.ended),
                judged=len(self.ended),
                seconds=time.monotonic() - self.started,
            )
            try:
                _write(self.path, text)
            except pytest.UsageError as error:
                pytest.exit(str(error), returncode=pytest.ExitCode.INTERNAL_ERROR)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        judged = sorted((row.suspect, row.kind) for row in self.rows.values() if row.part == "suspect")
        if judged:
            terminalreporter.section("suspects on this machine")
            for name, kind in judged:
                terminalreporter.write_line(f"{kind:<14} {name}", red=kind in ("convicted", "not judged"), green=kind == "cleared")
        if self.path:
            terminalreporter.write_line(f"suspect report: {self.path}")


def _not_judged(report: pytest.TestReport, row: Row | None) -> Row:
    """A test that failed in another way than by a conviction: the stand itself, a fixture, or what a control asserts of its evidence."""
    lines = (report.longreprtext.strip() or "no reason was given").splitlines()
    said = next((line.removeprefix("E").strip() for line in lines if line.startswith("E ")), lines[-1])
    if row is None:
        return _of_test(report, "not judged", said)
    return dataclasses.replace(row, kind="not judged" if row.part == "suspect" else "not seen as it should be", reason=said)


def _of_test(report: pytest.TestReport, kind: str, reason: str) -> Row:
    """What is known when no suspect was asked: the test's name."""
    name = in_words(report.nodeid.rpartition("::")[2])
    part: Literal["suspect", "control"] = "control" if "control" in report.keywords else "suspect"
    return Row(part=part, suspect=name, test=name, asks="", kind=kind, reason=reason, cure="", seconds=None, cpu_s=None)


def _why_skipped(report: pytest.TestReport) -> str:
    said = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    return said.removeprefix("Skipped: ").removeprefix("could not be planted: ").removeprefix("could not run: ")
