"""A FIFO or a device in the place of a record is an error that names it, and nothing waits for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import reports
from matrix.records import Observation, read

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path)])
def test_what_is_no_plain_file_is_not_read(tmp_path: Path, put: object) -> None:
    attempt = tmp_path / "attempts" / "0001-00000000"
    attempt.mkdir(parents=True)
    put(attempt / "observation.json")  # type: ignore[operator]
    with pytest.raises(OSError):
        read(Observation, attempt / "observation.json")
    reports.write(tmp_path)
    assert (tmp_path / "report.md").exists()
