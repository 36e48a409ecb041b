"""`replay`: one attempt again, in the same isolation, and whether it ended alike."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from matrix.folder import NoSuchRun
from matrix.replay import find
from tests.matrix.command_line import matrix, only_run, specification
from tests.reports.package_runs import aborting

PROGRAM = """
import os, sys
from pathlib import Path
Path(sys.argv[sys.argv.index("--out") + 1]).mkdir(parents=True)
for step in range(3):
    print("step", step, flush=True)
if "32" in sys.argv and not Path("mended").exists():
    os.abort()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that aborts at batch size 32, run with every batch size once."""
    where = tmp_path_factory.mktemp("replay")
    (where / "train.py").write_text(PROGRAM)
    command = [sys.executable, "train.py", "--out", "{attempt_dir}/out"]
    search = {"strategy": "full", "max_runs": 3}
    content = {"name": "r", "run": {"command": command}, "matrix": {"bs": [32, 8]}, "search": search}
    done = matrix("run", str(specification(where, content)), cwd=where)
    assert done.returncode == 0, done.stderr
    return where


@pytest.mark.slow
def test_a_replay_that_ends_alike_is_said_to_and_leaves_the_evidence_alone(folder: Path) -> None:
    run = only_run(folder)
    before = {path: path.stat().st_mtime_ns for path in (run / "attempts").rglob("*") if path.is_file()}
    done = matrix("replay", str(run), "1", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "then: died at step 2" in done.stdout and "it ended alike" in done.stdout and "(SIGABRT)" in done.stdout
    assert {path: path.stat().st_mtime_ns for path in (run / "attempts").rglob("*") if path.is_file()} == before
    (again,) = (run / "replays").glob("0001-*")
    assert (again / "observation.json").is_file() and (again / "out").is_dir()


@pytest.mark.slow
def test_a_replay_that_ends_otherwise_has_exit_status_1_and_an_edited_program_is_named(folder: Path) -> None:
    program, mended = folder / "train.py", folder / "mended"
    mended.touch()
    program.write_text(PROGRAM + "# edited\n")
    try:
        done = matrix("replay", "r", "0001", cwd=folder)
    finally:
        mended.unlink()
        program.write_text(PROGRAM)
    assert done.returncode == 1
    assert "the program was edited since" in done.stdout and "it did not end alike" in done.stdout


@pytest.mark.parametrize("wanted", ["99", "", "nothing", "00", "²"])
def test_an_attempt_that_is_not_there_or_may_be_several_is_refused_with_those_there_are(tmp_path: Path, wanted: str) -> None:
    with pytest.raises(NoSuchRun, match="0001-"):
        find(aborting(tmp_path), wanted)


@pytest.mark.parametrize("wanted", ["2", "0002", "0002-"])
def test_an_attempt_is_found_by_its_number_or_the_beginning_of_its_name(tmp_path: Path, wanted: str) -> None:
    attempt, seen = find(aborting(tmp_path), wanted)
    assert attempt.id == seen.attempt and attempt.id.startswith("0002-")


@pytest.mark.slow
def test_bad_input_is_one_sentence_and_exit_status_2(folder: Path) -> None:
    for words in (("replay", "r", "99"), ("replay", "nothing", "1")):
        done = matrix(*words, cwd=folder)
        assert done.returncode == 2 and len(done.stderr.strip().splitlines()) == 1, done.stderr
