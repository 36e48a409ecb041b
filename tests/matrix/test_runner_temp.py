"""The temp folder of an attempt: where the shell's TMPDIR is, if that is another file system, and gone afterwards."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from matrix.runner.attempt import Job, run
from matrix.runner.launcher import LONGEST_TEMP, ROOT, SHORT_TEMP, Guardian, shell_temp
from tests.matrix.command_line import PATIENCE_S

SHM = Path("/dev/shm")
needs_shm = pytest.mark.skipif(
    not os.access(SHM, os.W_OK) or SHM.stat().st_dev == SHORT_TEMP.stat().st_dev, reason="no second file system to write to"
)
SAYS_TEMP = "import os, pathlib; print(os.environ['TMPDIR']); pathlib.Path(os.environ['TMPDIR'], 'big').write_bytes(bytes(1000))"


@pytest.fixture
def ramdisk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=SHM, prefix="t"))
    monkeypatch.setenv("TMPDIR", str(folder))
    yield folder
    shutil.rmtree(folder)


def _temp_of_a_run(job: Callable[..., Job]) -> Path:
    guardian = Guardian()
    try:
        made = job(SAYS_TEMP)
        seen = run(made, guardian, stop=threading.Event())
        assert seen.exit.returncode == 0
        return Path((made.folder / "stdout.log").read_text().strip())
    finally:
        guardian.close()


@needs_shm
def test_temporary_files_stay_on_the_file_system_of_the_shells_tmpdir_and_are_removed(job: Callable[..., Job], ramdisk: Path) -> None:
    """Elsewhere a program that dies of a full TMPDIR would be called healthy."""
    temp = _temp_of_a_run(job)
    assert temp.parents[1] == ramdisk
    assert list(ramdisk.iterdir()) == []


@needs_shm
def test_a_tmpdir_that_is_too_long_for_sockets_is_not_used(job: Callable[..., Job], ramdisk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = ramdisk / ("x" * LONGEST_TEMP)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    assert _temp_of_a_run(job).parents[1] == SHORT_TEMP


@pytest.mark.parametrize("given", ["", "/no/such/folder", str(SHORT_TEMP), "a\0b"])
def test_no_tmpdir_a_missing_one_and_one_of_the_same_file_system_change_nothing(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"TMPDIR": given})
    assert shell_temp() is None


@needs_shm
def test_killing_the_tool_leaves_no_folder_in_tmpdir(ramdisk: Path) -> None:
    code = (
        f"import sys, time; sys.path.insert(0, {str(ROOT)!r}); from matrix.runner.launcher import Guardian\n"
        "guardian = Guardian(); (guardian.programs_temp(guardian.temp()) / 'left').touch(); print('made', flush=True); time.sleep(300)"
    )
    tool = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert tool.stdout and tool.stdout.readline() == b"made\n"
    assert list(ramdisk.glob(f"mx-{tool.pid}-*/*/left"))
    tool.kill()
    tool.wait()
    deadline = time.monotonic() + PATIENCE_S
    while list(ramdisk.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert list(ramdisk.iterdir()) == []


def test_files_in_the_programs_own_temp_folder_are_no_part_of_the_program(job: Callable[..., Job]) -> None:
    guardian = Guardian()
    try:
        made = job(SAYS_TEMP + "; open(os.path.join(os.environ['TMPDIR'], 'big'), 'rb').close()")
        run(made, guardian, stop=threading.Event())
    finally:
        guardian.close()
    assert "/big" not in (made.folder / "hook.jsonl").read_text()
