"""A report is written whatever the files are like, and says what it could not read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import reports
from tests.reports.stories import partial

Damage = Callable[[Path], object]


def halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def older(path: Path) -> None:
    path.write_text(json.dumps({"schema": "matrix.something/0", "cells": []}))


def replace_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Damage] = {
    "missing": Path.unlink,
    "empty": lambda path: path.write_bytes(b""),
    "half": halve,
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 40),
    "a list": lambda path: path.write_text("[1, 2]"),
    "nested": lambda path: path.write_text("[" * 100_000),
    "another version": older,
    "a folder": replace_by_folder,
    "a loop": lambda path: (path.unlink(), path.symlink_to(path)),
}
FIRST = "attempts/0001-*/"
FILES = ["plan.json", "verdict.json", FIRST + "attempt.json", FIRST + "observation.json", FIRST + "memory.csv"]


def damaged(root: Path, pattern: str, damage: Damage) -> str:
    """A small story with one file damaged; returns its name."""
    partial(root)
    (target,) = root.glob(pattern)
    damage(target)
    return target.relative_to(root).as_posix()


@pytest.mark.parametrize("pattern", FILES)
def test_a_file_that_was_cut_in_half_is_named_in_the_report(tmp_path: Path, pattern: str) -> None:
    name = damaged(tmp_path, pattern, halve)
    assert {"report.md", "report.html"} <= {path.name for path in reports.write(tmp_path)}
    text = (tmp_path / "report.md").read_text()
    assert name in text.split("## What could not be read")[1] or pattern.endswith(".csv")  # half a table is still a table


@pytest.mark.slow
@pytest.mark.parametrize("pattern", FILES)
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_no_damage_to_any_file_stops_the_report(tmp_path: Path, pattern: str, damage: Damage) -> None:
    name = damaged(tmp_path, pattern, damage)
    assert {"report.md", "report.html"} <= {path.name for path in reports.write(tmp_path)}
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert name in text.split("## What could not be read")[1] or damage is halve


def test_a_file_of_another_version_is_named_with_both_versions(tmp_path: Path) -> None:
    damaged(tmp_path, "plan.json", older)
    reports.write(tmp_path)
    assert "it is of version matrix.something/0, this program writes matrix.plan/1" in (tmp_path / "report.md").read_text()


def test_an_older_record_that_lacks_optional_fields_is_read(tmp_path: Path) -> None:
    partial(tmp_path)
    (target,) = tmp_path.glob(FIRST + "observation.json")
    seen = json.loads(target.read_text())
    required = {"attempt", "key", "trial", "exit", "wall_s", "started_unix_s"}
    target.write_text(json.dumps({name: value for name, value in seen.items() if name in required}))
    reports.write(tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "died 2/2: SIGABRT before its first step" in text or "died 2/2: SIGABRT at step 11" in text


def test_without_any_attempt_folder_there_is_still_a_verdict(tmp_path: Path) -> None:
    partial(tmp_path)
    shutil.rmtree(tmp_path / "attempts")
    reports.write(tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "The cause is not settled" in text and "attempts/ was not read: No such file or directory" in text
