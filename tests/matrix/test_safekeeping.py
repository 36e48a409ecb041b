"""Files that were there before a matrix have their old content after it, however the program overwrites them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from matrix import safekeeping
from matrix.safekeeping import Safekeeping
from tests.matrix.command_line import PATIENCE_S, matrix, only_run, specification, start, verdict

OLD = b"the user's model"
PROGRAM = """
import argparse, os
p = argparse.ArgumentParser()
p.add_argument("--bs", type=int, default=4)
p.add_argument("--save", default="model.pt")
a = p.parse_args()
for step in range(1, 4):
    print("step", step, flush=True)
{writes}
print("done")
"""
WAYS = {
    "truncates": "open(a.save, 'wb').write(b'new')",
    "replaces": "open('part', 'wb').write(b'new'); os.replace('part', a.save)",
    "removes": "os.remove(a.save)",
    "appends": "open(a.save, 'ab').write(b'new')",
    "without Python": "os.system('printf new > model.pt')",
}


def spec_of(command: list[str], **sections: Any) -> dict[str, Any]:
    return {"name": "job", "run": {"command": command}, "matrix": {"bs": [4, 8]}, "search": {"max_runs": 3}, **sections}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("jobs", [1, 2])
def test_an_output_flag_left_at_its_default_costs_nobody_his_file(tmp_path: Path, way: str, jobs: int) -> None:
    (tmp_path / "job.py").write_text(PROGRAM.format(writes=WAYS[way]))
    model = tmp_path / "model.pt"
    model.write_bytes(OLD)
    os.utime(model, ns=(10**18, 10**18))
    done = matrix("run", str(specification(tmp_path, spec_of(["python", "job.py"]))), "--jobs", str(jobs), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (model.read_bytes(), model.stat().st_mtime_ns) == (OLD, 10**18)
    run = only_run(tmp_path)
    (note,) = verdict(run).notes
    assert "model.pt (the default of --save)" in note and note in done.stdout and "model.pt" in (run / "report.md").read_text()
    left = [path.read_bytes() for path in (run / safekeeping.FOLDER).iterdir()]
    assert len(left) == (way != "removes") and all(content.endswith(b"new") for content in left), "what the program wrote is kept too"


def test_new_files_stay_and_files_that_are_only_read_are_untouched(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(PROGRAM.format(writes="open('cache.bin', 'wb').write(open('data.bin', 'rb').read())"))
    data = tmp_path / "data.bin"
    data.write_bytes(OLD)
    before = data.stat()
    done = matrix("run", str(specification(tmp_path, spec_of(["python", "job.py"]))), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cache.bin").read_bytes() == OLD
    assert (data.stat().st_mtime_ns, data.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert verdict(only_run(tmp_path)).notes == []


@pytest.mark.parametrize("again", [["--resume"], []], ids=["resumed", "run anew"])
def test_a_tool_that_was_killed_before_it_could_put_a_file_back_does_so_at_its_next_start(tmp_path: Path, again: list[str]) -> None:
    waits = "open(a.save, 'wb').write(b'new'); import time; time.sleep(0 if os.path.exists('go') else 600)"
    (tmp_path / "job.py").write_text(PROGRAM.format(writes=waits))
    model = tmp_path / "model.pt"
    model.write_bytes(OLD)
    path = specification(tmp_path, spec_of(["python", "job.py"]))
    tool = start("run", str(path), "--jobs", "1", cwd=tmp_path)
    deadline = time.monotonic() + PATIENCE_S
    while model.read_bytes() != b"new":
        assert time.monotonic() < deadline and tool.poll() is None
        time.sleep(0.05)
    tool.send_signal(signal.SIGKILL)
    tool.communicate()
    assert model.read_bytes() == b"new", "nothing had to be put back: this tests nothing"
    (tmp_path / "go").touch()
    done = matrix("run", str(path), *again, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert model.read_bytes() == OLD


# ------------------------------------------------------------------ changes that may be somebody else's
def other_process(cwd: Path) -> subprocess.Popen[str]:
    """Start a process in that folder that is no child of ours; it ends when it reads a line."""
    argv = ["setsid", "--fork", sys.executable, "-c", "input()"]
    started = subprocess.Popen(argv, cwd=cwd, stdin=subprocess.PIPE, text=True)
    started.wait()
    return started


def attempt(kept: Safekeeping, number: int, written: tuple[str, ...] = ()) -> None:
    kept.note_attempt(f"{number:04d}-0", written)
    kept.put_back()


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """A run folder and a working folder."""
    run, cwd = tmp_path / "runs" / "job" / "1", tmp_path / "cwd"
    run.mkdir(parents=True)
    cwd.mkdir()
    return run, cwd


def test_a_change_beside_another_process_of_the_folder_is_put_back_only_when_the_program_made_it(places: tuple[Path, Path]) -> None:
    run, cwd = places
    model = cwd / "model.pt"
    model.write_bytes(OLD)
    with other_process(cwd) as other:
        kept = Safekeeping(run, cwd)
        kept.begin()
        model.write_bytes(b"of another job")
        attempt(kept, 1)
        assert model.read_bytes() == b"of another job"
        attempt(kept, 2)
        assert model.read_bytes() == b"of another job", "a change of once was taken for two"
        model.write_bytes(b"again")
        attempt(kept, 3)
        assert model.read_bytes() == OLD, "what changes with two attempts is the program's"
        model.write_bytes(b"of another job, long after")
        kept.end()
        other.communicate("\n")
    (note,) = kept.notes
    assert "model.pt" in note


def test_a_file_that_the_program_was_seen_to_write_is_put_back_though_others_work_there(places: tuple[Path, Path]) -> None:
    run, cwd = places
    notes = cwd / "notes.txt"
    notes.write_bytes(OLD)
    with other_process(cwd) as other:
        kept = Safekeeping(run, cwd)
        kept.begin()
        notes.write_bytes(b"new")
        attempt(kept, 1, ("notes.txt",))
        other.communicate("\n")
    assert notes.read_bytes() == OLD


@pytest.mark.parametrize("name", ["settings.yaml", "settings.json", "table.csv", "notes", "train.log"])
def test_a_text_that_nobody_saw_the_program_write_is_left_as_it_is_and_its_old_content_kept(places: tuple[Path, Path], name: str) -> None:
    run, cwd = places
    settings = cwd / name
    settings.write_bytes(OLD)
    kept = Safekeeping(run, cwd)
    kept.begin()
    settings.write_bytes(b"edited meanwhile")
    attempt(kept, 1)
    kept.end()
    (note,) = kept.notes
    (copy,) = (run / safekeeping.FOLDER).iterdir()
    assert settings.read_bytes() == b"edited meanwhile" and copy.read_bytes() == OLD and copy.name in note


def test_what_was_too_large_to_be_saved_is_named(places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    run, cwd = places
    monkeypatch.setattr(safekeeping, "MOST_BYTES", 4)
    (cwd / "large.bin").write_bytes(OLD)
    kept = Safekeeping(run, cwd)
    kept.begin()
    (cwd / "large.bin").write_bytes(b"new")
    attempt(kept, 1)
    assert "too large to be saved before: large.bin" in kept.notes[0]


def test_sources_installed_packages_and_runs_are_not_copied(places: tuple[Path, Path]) -> None:
    run, cwd = places
    for name in ("train.py", "env/pyvenv.cfg", "env/lib/x.bin", ".git/index", "runs/a/1/attempts/0001/stdout.log", "pictures/keep"):
        (cwd / name).parent.mkdir(parents=True, exist_ok=True)
        (cwd / name).write_bytes(OLD)
    for number in range(safekeeping.MANY_ALIKE + 1):
        (cwd / f"pictures/{number}.jpg").write_bytes(b"x")
    kept = Safekeeping(run, cwd)
    kept.begin()
    assert set(kept._files) == {str(cwd / "pictures/keep")}
