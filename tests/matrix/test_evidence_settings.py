"""What bounds a process beside its own limits: the room of its cgroup for processes and threads."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.evidence.settings import group_of_pids

ROOT = Path("/sys/fs/cgroup/pids")  # of version 1, where a group can be made without further ado


@pytest.fixture
def group() -> Iterator[Path]:
    path = ROOT / f"test-{os.getpid()}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no group of processes can be made here: {error}")
    yield path
    path.rmdir()


def test_a_group_says_how_many_processes_it_allows_and_has(group: Path) -> None:
    (group / "pids.max").write_text("24")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        (group / "cgroup.procs").write_text(str(child.pid))
        assert group_of_pids(Path(f"/proc/{child.pid}/cgroup").read_text()) == (24, 1)
        (group / "pids.max").write_text("max")
        assert group_of_pids(Path(f"/proc/{child.pid}/cgroup").read_text()) == (None, None)
    finally:
        with contextlib.suppress(BrokenPipeError):
            child.communicate(b"\n", timeout=60)


def test_a_group_that_cannot_be_read_is_no_limit() -> None:
    assert group_of_pids("8:pids:/no/such/group\n1:name=systemd:/\n0::/nor/this\n") == (None, None)
