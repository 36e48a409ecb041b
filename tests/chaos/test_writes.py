"""Death or an error inside each system call of a write: the file is the old or the new one, whole, and nothing half-written stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.matrix import machine_needs
from tests.matrix.command_line import environment

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.skipif(bool(machine_needs.strace()), reason=machine_needs.strace() or "-"),
]
# The number in the name of the part is fixed, so that strace can be told which calls are meant.
WRITES = """
import sys
from matrix import records
records.os.getpid = lambda: 7
try:
    records.write_text(sys.argv[1], "new" * 1000)
except OSError as problem:
    sys.exit(f"{problem.errno} {problem.filename}")
"""
CALLS = ("openat", "write", "fsync", "close", "rename")
OLD, NEW = "old" * 1000, "new" * 1000


def write_with(folder: Path, call: str, fault: str) -> subprocess.CompletedProcess[str]:
    """Write a file anew while that call on it, or on its part, meets a fault; without a call nothing happens."""
    target, part = folder / "x.json", folder / ".x.json.7.part"
    target.write_text(OLD)
    strace = ["strace", "-qq", "-o", str(folder / "trace"), "-P", str(target), "-P", str(part)]
    inject = ["-e", f"trace={','.join(CALLS)}"]
    if call:
        inject += ["-e", f"inject={call}:{fault}:when=1"]
    words = [*strace, *inject, sys.executable, "-c", WRITES, str(target)]
    return subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("call", CALLS)
def test_a_kill_within_a_write_leaves_the_old_file_or_the_new_one(tmp_path: Path, call: str) -> None:
    done = write_with(tmp_path, call, "signal=KILL")
    assert done.returncode in (-9, 137), "the call was not made: the test has seen nothing"
    assert (tmp_path / "x.json").read_text() in (OLD, NEW)
    again = write_with(tmp_path, "", "")  # the next write finds the part of the dead one
    assert (again.returncode, (tmp_path / "x.json").read_text()) == (0, NEW), again.stderr
    assert not list(tmp_path.glob(".*.part"))


@pytest.mark.parametrize("error", ["ENOSPC", "EIO", "EDQUOT", "EROFS"])
@pytest.mark.parametrize("call", ["openat", "write", "fsync", "rename"])
def test_an_error_of_a_write_names_the_file_and_leaves_the_old_one(tmp_path: Path, call: str, error: str) -> None:
    done = write_with(tmp_path, call, f"error={error}")
    assert done.returncode == 1, "the call was not made: the test has seen nothing"
    assert done.stderr.strip().endswith(str(tmp_path / "x.json"))
    assert (tmp_path / "x.json").read_text() == OLD
    assert not list(tmp_path.glob(".*.part"))


def test_what_was_not_synced_is_not_put_in_the_place_of_the_file(tmp_path: Path) -> None:
    """The order of the calls: all is written and on the disk before the new file has the name."""
    write_with(tmp_path, "", "")
    calls = [line.partition("(")[0] for line in (tmp_path / "trace").read_text().splitlines()]
    assert [call for call in calls if call in CALLS] == ["openat", "write", "fsync", "close", "rename"]
