"""What `--resume` takes over: attempts of the program as it is now, whatever way a file came into it, and nothing else."""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from matrix import records
from matrix.adoption import adopt, limit_that_matters
from matrix.assembly import Assembly
from matrix.records import Exit, Observation, Progress, Trial
from matrix.spec import load_spec
from matrix.spec.model import Limits
from tests.matrix.command_line import complete, matrix, observations, only_run, specification, verdict

PROGRAM = """
import ctypes, importlib, json, os, pathlib, subprocess, sys
print("step 1", flush=True)
importlib.import_module("parts" + ".late")
json.load(open("config/job.json"))
pathlib.Path("table.bin").read_bytes()
ctypes.CDLL(os.path.abspath("native.so"))
subprocess.run([sys.executable, "-c", "import importlib; importlib.import_module('ra' + 'nk')"], check=True)
subprocess.run(["sh", "prepare.sh"], check=True)
if os.fork() == 0:
    open("worker.txt").read()
    os._exit(0)
os.wait()
pathlib.Path("cache.tmp").write_text(str(os.getpid()))
os.replace("cache.tmp", "cache.txt")
pathlib.Path("cache.txt").read_text()
open("job.log", "a").write("again")
open("job.log").read()
if "bad" in sys.argv:
    os.abort()
print("step 2", flush=True)
"""
INPUTS = ["job.py", "parts/late.py", "config/job.json", "table.bin", "native.so", "rank.py", "prepare.sh", "worker.txt", "named/far.txt"]


def place(folder: Path) -> Path:
    """A program whose files are found in every way, and a specification that dies with one of two values."""
    for name in ("parts", "config", "named"):
        (folder / name).mkdir(parents=True)
    (folder / "job.py").write_text(PROGRAM)
    for name in ("parts/late.py", "rank.py", "prepare.sh", "worker.txt", "named/far.txt", "cache.txt"):
        (folder / name).write_text("# \n")
    (folder / "config/job.json").write_text("{}")
    (folder / "table.bin").write_bytes(bytes(range(256)) * 8)
    shutil.copy(extension(), folder / "native.so")
    content = {
        "run": {"command": ["python", "job.py", "--data", "named/far.txt", "--log=job.log", "{attempt}"]},
        "matrix": {"mode": ["bad", "good"]},
        "search": {"max_runs": 3},
        "executor": {"jobs": 1},
    }
    specification(folder, content)
    return folder


def extension() -> Path:
    """Some shared library that every Python has."""
    import _ctypes

    return Path(_ctypes.__file__)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = place(tmp_path_factory.mktemp("resumed") / "place")
    ended = matrix("run", "spec.yaml", cwd=folder)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(complete(only_run(folder))) == 3
    return folder


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    """Program and runs at another place."""
    return Path(shutil.copytree(finished, tmp_path / "moved"))


def resumed(folder: Path) -> str:
    """What a resume says; it must succeed."""
    ended = matrix("run", "spec.yaml", "--resume", cwd=folder)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    return ended.stdout


def edit(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n# edited\n")


def first(folder: Path) -> Path:
    return sorted(only_run(folder).glob("attempts/*"))[0]


# ------------------------------------------------------------------ files
def test_an_attempt_names_every_file_that_it_loaded_or_opened_also_when_it_dies_without_warning(finished: Path) -> None:
    """An unwatched attempt has no hook: its files are those of the same cell before."""
    deaths = [seen for seen in observations(only_run(finished)) if seen.exit.signal == "SIGABRT"]
    assert deaths
    for seen in deaths:
        assert {file.name for file in seen.files if file.kind != "elsewhere"} == set(INPUTS)
        assert {"cache.txt", "job.log"} <= set(seen.files_written) or not seen.trial.watched


def test_a_program_that_was_moved_with_its_runs_is_not_run_again(copied: Path) -> None:
    before = complete(only_run(copied))
    resumed(copied)
    assert complete(only_run(copied)) == before


@pytest.mark.parametrize("name", INPUTS)
def test_an_attempt_whose_file_was_edited_does_not_count_and_the_file_is_named(copied: Path, name: str) -> None:
    edit(copied / name)
    adopted = adopt(Assembly(load_spec(copied / "spec.yaml"), only_run(copied).resolve()))
    assert adopted.attempts == []
    assert [note.partition(": ")[0] for note in adopted.notes] == [f"not used, because {name} was changed since"]


@pytest.mark.slow
def test_what_does_not_count_is_kept_and_run_again(copied: Path) -> None:
    edit(copied / "parts/late.py")
    before = complete(only_run(copied))
    said = resumed(copied)
    assert "note: not used, because parts/late.py was changed since: 0001-" in said
    after = complete(only_run(copied))
    assert len(after) == 6 and before.items() <= after.items()
    assert verdict(only_run(copied)).outcomes.keys() == after.keys() - before.keys()


def test_what_the_runs_write_and_read_again_is_no_input(copied: Path) -> None:
    for name in ("cache.txt", "job.log"):
        (copied / name).write_text("something else")
    adopted = adopt(Assembly(load_spec(copied / "spec.yaml"), only_run(copied).resolve()))
    assert (len(adopted.attempts), adopted.notes) == (3, [])


@pytest.mark.slow
def test_a_file_that_is_gone_is_named(copied: Path) -> None:
    (copied / "worker.txt").rename(copied / "worker.old")
    specification(copied, json.loads((copied / "spec.yaml").read_text()) | {"search": {"max_runs": 1}})
    assert "not used, because worker.txt is gone" in resumed(copied)


@pytest.mark.slow
def test_an_edit_while_the_matrix_runs_ends_it_and_the_next_resume_uses_the_new_program_alone(tmp_path: Path) -> None:
    """The program edits its own late module in its second run, as a person might."""
    code = (
        "import pathlib, sys, time\nprint('step 1', flush=True)\nsys.path.insert(0, '.')\n__import__('la' + 'te')\n"
        "if sys.argv[1] == '2': pathlib.Path('go').touch()\n"
    )
    (tmp_path / "job.py").write_text(code)
    (tmp_path / "late.py").write_text("")
    edit = "import os, pathlib; p = pathlib.Path('late.py'); os.path.exists('go') and not p.read_text() and p.write_text('# edited')"
    content = {
        "run": {"command": ["sh", "-c", f"{sys.executable} job.py $1; {sys.executable} -I -c \"$2\"", "sh", "{attempt}", edit]},
        "matrix": {"mode": ["a", "b"]},
        "search": {"max_runs": 6},
        "executor": {"jobs": 1},
    }
    specification(tmp_path, content)
    ended = matrix("run", "spec.yaml", cwd=tmp_path)
    assert ended.returncode == 3 and "late.py was changed while the matrix ran" in ended.stderr
    assert not verdict(only_run(tmp_path)).complete
    said = resumed(tmp_path)
    assert "not used, because late.py was changed" in said
    assert verdict(only_run(tmp_path)).complete


# ------------------------------------------------------------------ what a power cut leaves
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_complete_observation_whose_attempt_record_was_lost_is_kept_and_used(copied: Path, damage: Callable[[Path], object]) -> None:
    before = complete(only_run(copied))
    damage(first(copied) / "attempt.json")
    said = resumed(copied)
    assert f"note: attempts/{first(copied).name}/attempt.json was missing or damaged, and was written again" in said
    assert "not used" not in said and complete(only_run(copied)) == before
    assert records.read(records.Attempt, first(copied) / "attempt.json").id == first(copied).name


def test_it_is_kept_and_not_used_when_the_specification_asks_something_else_now(copied: Path) -> None:
    before = complete(only_run(copied))
    (first(copied) / "attempt.json").unlink()
    content = json.loads((copied / "spec.yaml").read_text())
    specification(copied, content | {"run": {**content["run"], "env": {"COLOUR": "red"}}, "search": {"max_runs": 1}})
    assert "attempt.json is missing or damaged, and the specification asks something else" in resumed(copied)
    assert before.items() <= complete(only_run(copied)).items()


def test_copies_and_strange_names_among_the_attempts_are_left_alone(copied: Path) -> None:
    one = first(copied)
    for name in ("0001a-copy", "0001-copy", "notes", f"{one.name}-old", "0077-" + one.name.partition("-")[2]):
        shutil.copytree(one, one.parent / name)
    (one.parent / "0099-abcdef01").write_text("a file")
    before = complete(only_run(copied))
    said = resumed(copied)
    assert "not used, because they are copies of other attempts: 0077-" in said
    assert complete(only_run(copied)) == before
    assert len(verdict(only_run(copied)).outcomes) == 3


# ------------------------------------------------------------------ limits
SURVIVED = Observation(
    attempt="0001-0",
    key="",
    trial=Trial(id=1, cell={}),
    exit=Exit(returncode=0),
    wall_s=30.0,
    started_unix_s=0.0,
    progress=Progress(first_step_s=4.0, last_step=9, last_step_s=28.0, longest_gap_s=6.0),
    asked_limits=Limits(wall="60s", idle="20s", memory="1GiB").model_dump(),  # type: ignore[call-arg]  # as in a file
)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({}, ""),
        ({"wall": "40s"}, ""),
        ({"wall": "10m"}, ""),
        ({"wall": "20s"}, "limits.wall was 60 s and is 20 s, which they would exceed"),
        ({"startup": "5s"}, ""),
        ({"startup": "3s"}, "limits.startup was 300 s and is 3 s, which they would exceed"),
        ({"idle": "7s"}, ""),
        ({"idle": "5s"}, "limits.idle was 20 s and is 5 s, which they would exceed"),
        ({"memory": "2GiB"}, "limits.memory was 1024 MiB and is 2048 MiB"),
        ({"nofile": 64}, "limits.nofile was no limit and is 64"),
    ],
)
def test_an_edited_limit_matters_only_where_it_could_have_changed_the_end(changed: dict[str, object], why: str) -> None:
    now = Limits(**{"wall": "60s", "idle": "20s", "memory": "1GiB", **changed})  # type: ignore[arg-type]
    assert limit_that_matters(SURVIVED, now) == why


def test_what_a_limit_of_time_ended_is_run_again_under_any_other() -> None:
    cut_off = dataclasses.replace(SURVIVED, exit=Exit(returncode=-9, signal="SIGKILL", ended_by="wall"))
    now = Limits(wall="10m", idle="20s", memory="1GiB")  # type: ignore[call-arg]
    assert "and a limit of time ended them" in limit_that_matters(cut_off, now)
    assert limit_that_matters(cut_off, Limits(wall="60s", idle="20s", memory="1GiB")) == ""  # type: ignore[call-arg]


@pytest.mark.slow
def test_a_larger_wall_limit_runs_nothing_again(copied: Path) -> None:
    content = json.loads((copied / "spec.yaml").read_text())
    specification(copied, content | {"limits": {"wall": "17m", "stall": "11m"}})
    assert "not used" not in resumed(copied)
    assert len(complete(only_run(copied))) == 3
    specification(copied, content | {"limits": {"nofile": 512}})
    assert "not used, because limits.nofile was no limit and is 512: " in resumed(copied)
    assert len(complete(only_run(copied))) == 6
