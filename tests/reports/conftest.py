"""Each story is written and reported once for all tests that only read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

import reports
from tests.reports.stories import STORIES


@dataclasses.dataclass(frozen=True)
class Told:
    """A story with its report."""

    folder: Path
    written: list[Path]

    @property
    def markdown(self) -> str:
        return (self.folder / "report.md").read_text(encoding="utf-8")

    @property
    def html(self) -> str:
        return (self.folder / "report.html").read_text(encoding="utf-8")

    @property
    def text(self) -> str:
        """The page with no-break spaces made plain, as a reader sees it."""
        return self.html.replace("\u00a0", " ")


@pytest.fixture(scope="session")
def tell(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Told]:
    told: dict[str, Told] = {}

    def story(name: str) -> Told:
        if name not in told:
            folder = tmp_path_factory.mktemp("runs") / name / "20260102-030405"
            folder.mkdir(parents=True)
            STORIES[name](folder)
            told[name] = Told(folder, reports.write(folder))
        return told[name]

    return story
