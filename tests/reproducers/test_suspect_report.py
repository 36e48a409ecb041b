"""`--suspect-report` as people use it: a real pytest over small suspects that clear, die, are missing, or break the stand itself."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
CONFTEST = "from reproducers.conftest import *\n"
SUSPECTS = """
import os
import numpy as np
import pytest
from reproducers.stand import Suspect

@pytest.fixture
def pairs(tmp_path):
    rows = np.ones((60, 768), np.float32)
    np.savez(tmp_path / "pairs.npz", X_train=rows, Y_train=rows, X_val=rows, Y_val=rows)
    return str(tmp_path / "pairs.npz")

def suspect(name, *arguments):
    return Suspect(name=name, asks=f"is {name} | bad?", program="npz_loading", arguments=arguments, cure=f"avoid {name}")

@pytest.fixture
def broken():
    raise OSError("the stand is on fire")

def test_broken(broken, stand):
    stand.clears(suspect("never asked"))

@pytest.mark.quick
def test_good(stand, pairs):
    stand.clears(suspect("good", pairs, "--steps", "2"))

def test_dying(stand, pairs):
    stand.clears(suspect("dying", pairs, "--truncate-at", "1"))

@pytest.mark.control
def test_unplantable(stand):
    pytest.skip("could not be planted: no compiler")

def test_absent(stand):
    stand.clears(suspect("absent"), missing="no such device")

@pytest.mark.quick
@pytest.mark.control
def test_planted(stand, pairs):
    observation, report = stand.convicts(suspect("planted", pairs, "--truncate-at", "1"))
    assert observation.exit.signal == "SIGBUS"

@pytest.mark.control
def test_otherwise(stand, pairs):
    observation, report = stand.convicts(suspect("otherwise", pairs, "--truncate-at", "1"))
    assert observation.exit.signal == "SIGSEGV"

@pytest.mark.control
def test_blind(stand, pairs):
    stand.convicts(suspect("blind", pairs, "--steps", "1"))
"""


VANISHES = """
import shutil, pytest
@pytest.fixture(autouse=True)
def vanish():
    shutil.rmtree("gone")
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("suspects")
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_suspects.py").write_text(SUSPECTS)
    return folder


def stand(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(place / "temp"), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=300)


def cells(text: str) -> set[tuple[str, ...]]:
    """The first three cells of every row, and what evidence it gives."""
    lines = [line.replace("\\|", "/").strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {tuple(cell.strip() for cell in line[:4]) for line in lines}


@pytest.mark.parametrize("workers", [[], pytest.param(["-n", "2"], marks=pytest.mark.slow)], ids=["one process", "two workers"])
def test_the_report_tells_of_every_suspect_and_every_control_whatever_fails(place: Path, workers: list[str]) -> None:
    ended = stand(place, "--suspect-report", "out.md", *workers)
    assert ended.returncode == 1
    text = (place / "out.md").read_text()
    assert "1 convicted, 1 not judged, 1 cleared, 1 could not run; 8 tests" in text
    assert "cut short" not in text
    assert cells(text) >= {
        ("dying", "is dying / bad?", "convicted", "SIGBUS (status -7), last step 1"),
        ("broken", "", "not judged", "OSError: the stand is on fire"),
        ("good", "is good / bad?", "cleared", "finished, last step 2"),
        ("absent", "is absent / bad?", "could not run", "no such device"),
        ("planted", "planted", "seen", "SIGBUS (status -7), last step 1"),
        ("otherwise", "otherwise", "not seen as it should be", "AssertionError: assert 'SIGBUS' == 'SIGSEGV'"),
        ("blind", "blind", "not seen", "finished, last step 1"),
        ("unplantable", "unplantable", "could not be planted", "no compiler"),
    }
    assert "avoid dying" in text
    assert "avoid good" not in text
    assert f"{platform.system()} {platform.release()}" in text
    assert f"{os.cpu_count()} processors" in text
    assert f"numpy {np.__version__}" in text
    assert platform.node() not in text
    said = [tuple(line.split(None, 1)) for line in ended.stdout.splitlines() if line.startswith(("cleared ", "convicted "))]
    assert said == [("convicted", "dying"), ("cleared", "good")]


def test_a_quick_suspect_comes_with_its_control(place: Path) -> None:
    listed = stand(place, "--collect-only", "-m", "quick").stdout
    assert {line.rpartition("::test_")[2] for line in listed.splitlines() if "::" in line} == {"good", "planted"}


@pytest.mark.slow
def test_an_interrupted_pass_says_how_far_it_came(place: Path) -> None:
    ended = stand(place, "--suspect-report", "cut.md", "-x", "-k", "broken or absent")
    assert ended.returncode == 1
    assert "The pass was cut short: " in (place / "cut.md").read_text()


def test_a_report_that_cannot_be_written_is_refused_before_anything_runs(place: Path) -> None:
    ended = stand(place, "--suspect-report", ".")
    assert ended.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--suspect-report" in ended.stderr
    assert "expected a file in a folder that is there and can be written" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(place.glob(".*.part")) == []


@pytest.mark.slow
def test_a_folder_that_vanishes_meanwhile_is_told_at_the_end_and_not_with_status_0(place: Path) -> None:
    (place / "conftest.py").write_text(CONFTEST + VANISHES)
    (place / "gone").mkdir()
    ended = stand(place, "--suspect-report", "gone/out.md", "-k", "absent")
    (place / "conftest.py").write_text(CONFTEST)
    assert ended.returncode == pytest.ExitCode.INTERNAL_ERROR
    assert "gone/out.md: No such file or directory" in ended.stderr
    assert "could not run  absent" in ended.stdout
