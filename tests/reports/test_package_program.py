"""The program in a package is whole, and `reproduce.py` tells why a run did not end as recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from reports.package import unpack
from reports.package.kit.monitor import endings_in, exceptions_in, last_step
from tests.matrix.command_line import PATIENCE_S, environment, matrix, only_run, specification
from tests.matrix.test_adoption import extension
from tests.matrix.test_adoption import place as program_with_every_kind_of_file

RANKED = """
import os, sys, time
import settled
for step in range(3):
    print("step", step, flush=True)
rank = os.fork()
if rank == 0:
    END
time.sleep(0.5)
sys.exit(1 if os.waitpid(rank, 0)[1] else 0)
"""
ENDS = {"killed": "os.kill(os.getpid(), 9)", "crashed": "os.kill(os.getpid(), 11)", "no data": "open('./data')"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that is found in every way, run and packed."""
    place = program_with_every_kind_of_file(tmp_path_factory.mktemp("whole") / "place")
    (place / "suspects.md").write_text("# Suspects on this machine\n\nNo suspect was judged.\n")
    (place / "notes.md").write_text("# Notes\n")
    return packed(place)


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A rank is killed, and the main process ends with 1; it loads an installed package that another interpreter lacks."""
    place = tmp_path_factory.mktemp("ranked") / "place"
    place.mkdir()
    (place / "job.py").write_text(RANKED.replace("END", ENDS["killed"]))
    installed = place.parent / "site-packages"
    installed.mkdir()
    (installed / "settled.py").write_text("")
    specification(place, {"run": {"command": ["python", "job.py"]}, "matrix": {"mode": ["a", "b"]}, "search": {"max_runs": 1}})
    path = f"{environment()['PYTHONPATH']}{os.pathsep}{installed}"
    words = [sys.executable, "-m", "matrix", "run", "spec.yaml"]
    subprocess.run(words, cwd=place, env={**environment(), "PYTHONPATH": path}, check=True, capture_output=True, timeout=PATIENCE_S)
    return packed(place)


def packed(place: Path) -> Path:
    run = place / "spec.yaml"
    if not (place / "runs").exists():
        ended = matrix("run", str(run), cwd=place)
        assert (ended.returncode, ended.stderr) == (0, "")
    target = place.with_suffix(".zip")
    ended = matrix("package", str(only_run(place)), "--out", str(target), cwd=place)
    assert ended.returncode == 0, ended.stderr
    return target


def reproduce(folder: Path, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    inherited = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        [sys.executable, "reproduce.py", *words], cwd=folder, env=inherited, capture_output=True, text=True, timeout=PATIENCE_S
    )


def names(package: Path) -> set[str]:
    with zipfile.ZipFile(package) as archive:
        return set(archive.namelist())


# ------------------------------------------------------------------ what is packed
def test_everything_that_the_runs_loaded_is_packed_and_data_are_named(whole: Path) -> None:
    loaded = ["job.py", "parts/late.py", "rank.py", "prepare.sh", "config/job.json", "native.so", "worker.txt", "named/far.txt"]
    assert {f"program/{name}" for name in loaded} <= names(whole)
    with zipfile.ZipFile(whole) as archive:
        readme = archive.read("program/README.txt").decode()
        missing = {gap["what"] for gap in json.loads(archive.read("MANIFEST.json"))["not_collected"]}
        assert archive.read("program/native.so") == extension().read_bytes()
    assert "  table.bin (2,048 bytes)" in readme and "none" not in readme
    assert "input table.bin" in missing
    assert not {"program/cache.txt", "program/job.log"} & names(whole)  # the runs wrote these


def test_history_and_the_results_of_suspects_are_packed(whole: Path) -> None:
    assert "suspects/suspects.md" in names(whole) and "suspects/notes.md" not in names(whole)
    with zipfile.ZipFile(whole) as archive:
        lines = archive.read("history/attempts.csv").decode().splitlines()
    assert lines[0] == "attempt,purpose,cell,probes,kind,how,step,wall_s"
    assert len(lines) == 4 and any(",died,SIGABRT," in line for line in lines)


# ------------------------------------------------------------------ what must be there
def test_a_missing_input_is_named_before_anything_is_started(whole: Path, tmp_path: Path) -> None:
    unpack(whole, tmp_path / "opened")
    ended = reproduce(tmp_path / "opened")
    assert ended.returncode == 2
    assert f"missing: input {tmp_path}/opened/program/table.bin (2,048 bytes)" in ended.stdout
    assert not (tmp_path / "opened/replays").exists()
    (tmp_path / "opened/program/table.bin").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "opened/program/table.bin").chmod(0o644)
    (tmp_path / "opened/program/job.log").write_text("")
    ended = reproduce(tmp_path / "opened", "failing")
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    assert "as recorded" in ended.stdout and "note:" not in ended.stdout


def test_an_input_with_another_content_is_named(whole: Path, tmp_path: Path) -> None:
    unpack(whole, tmp_path / "opened")
    (tmp_path / "opened/program/table.bin").write_bytes(bytes(2048))
    assert "table.bin is not the recorded file" in reproduce(tmp_path / "opened", "failing").stdout


def test_a_missing_package_is_named_before_anything_is_started(ranked: Path, tmp_path: Path) -> None:
    unpack(ranked, tmp_path / "opened")
    ended = reproduce(tmp_path / "opened")
    assert ended.returncode == 2 and f"missing: package settled, for {sys.executable}" in ended.stdout
    anyway = reproduce(tmp_path / "opened", "failing", "--anyway", "--tries", "1")
    assert anyway.returncode == 2 and "No module named 'settled'" in anyway.stdout
    assert "not as recorded: ModuleNotFoundError" in anyway.stdout


def test_an_interpreter_that_is_not_there_is_no_answer(ranked: Path, tmp_path: Path) -> None:
    unpack(ranked, tmp_path / "opened")
    assert reproduce(tmp_path / "opened", "failing", "--python", "/nowhere/python3").returncode == 2


# ------------------------------------------------------------------ as recorded?
def opened(package: Path, folder: Path, end: str) -> subprocess.CompletedProcess[str]:
    """The package replayed, with another end of the rank in its program."""
    unpack(package, folder)
    (folder / "program/job.py").write_text(RANKED.replace("END", ENDS[end]))
    return reproduce(folder, "failing", "--tries", "1", path=str(package.parent / "site-packages"))


def test_a_rank_that_is_killed_again_is_as_recorded(ranked: Path, tmp_path: Path) -> None:
    ended = opened(ranked, tmp_path / "opened", "killed")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "recorded: exit 1, after a process (worker) died of SIGKILL at step 2" in ended.stdout


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("no data", "not as recorded: FileNotFoundError: [Errno 2] No such file or directory: './data'"),
        ("crashed", "not as recorded: no worker died of SIGKILL; processes ended with SIGSEGV"),
    ],
)
def test_the_same_exit_status_for_another_reason_is_not_as_recorded(ranked: Path, tmp_path: Path, end: str, why: str) -> None:
    ended = opened(ranked, tmp_path / "opened", end)
    assert ended.returncode == 1 and why in ended.stdout, ended.stdout


def test_the_last_lines_of_a_run_that_ended_otherwise_are_shown(ranked: Path, tmp_path: Path) -> None:
    ended = opened(ranked, tmp_path / "opened", "no data")
    assert "    | FileNotFoundError: [Errno 2] No such file or directory: './data'" in ended.stdout


# ------------------------------------------------------------------ reading an output
def test_exceptions_are_read_with_their_place_also_behind_a_prefix_of_a_launcher() -> None:
    text = (
        "step 1\n[rank0]: Traceback (most recent call last):\n"
        '[rank0]:   File "/home/me/train.py", line 3, in load\n[rank0]:     open(path)\n'
        "[rank0]: FileNotFoundError: [Errno 2] no: 'x'\n"
        'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    f()\ntorch.distributed.ChildFailedError: \n'
    )
    assert exceptions_in(text) == {
        "FileNotFoundError in load of train.py": "[Errno 2] no: 'x'",
        "ChildFailedError in <module> of a.py": "",
    }


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("step 3\nstep 12/24", 12),
        ("iter: 7 loss 3.5", 7),
        (" 12%|##   | 12/100 [00:01<00:10]", 12),
        ("loss 3", None),
        ("global_step=40", 40),
    ],
)
def test_steps_of_the_usual_forms_are_read(text: str, step: int | None) -> None:
    assert last_step(text) == step


@pytest.mark.parametrize(
    ("text", "endings"),
    [
        ("DataLoader worker (pid 12) is killed by signal: Killed. ", ["SIGKILL"]),
        ("  exitcode   : -9 (pid: 12)", ["SIGKILL"]),
        ("died with <Signals.SIGSEGV: 11>.", ["SIGSEGV"]),
        ("exitcode : 1 (pid: 12)", ["exit 1"]),
        ("it ended well, exit", []),
    ],
)
def test_signals_and_statuses_that_the_output_names_are_read(text: str, endings: list[str]) -> None:
    assert endings_in(text) == endings
