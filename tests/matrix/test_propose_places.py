"""`init`: where a program writes is redirected and said in one line, unless the death may be about the place."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.propose import Facts, specification
from matrix.propose.from_log import of_log
from matrix.propose.places import is_output
from matrix.propose.settings import Setting
from matrix.propose.usage import Option
from matrix.spec import Spec, load_spec
from tests.matrix.command_line import TOOL, environment

ROOM = "OSError: [Errno 28] No space left on device"
PARSER = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--bs", type=int, default=8)
parser.add_argument("--out-dir", default="results")
parser.add_argument("--save", default="model.pt", help="path to save the final model")
parser.add_argument("--final", default="weights/last.bin", help="where the weights are written")
parser.add_argument("--data", default="data/train", help="path of the dataset to read")
parser.parse_args()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(PARSER)
    monkeypatch.chdir(tmp_path)  # runs are written below the working folder
    return tmp_path


def proposed(folder: Path, *words: str, facts: Facts | None = None) -> tuple[Spec, str]:
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    text = specification(["python", "train.py", *words], cwd=folder, env=env, facts=facts)
    (folder / "spec.yaml").write_text(text)
    return load_spec(folder / "spec.yaml"), text


def death(folder: Path, end: str) -> Facts:
    log = folder / "run.log"
    log.write_text("".join(f"step {step}/50\n" for step in range(1, 20)) + end + "\n")
    return of_log(log, shown_as="run.log")


def traceback_of(error: str) -> str:
    return f'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    save()\n{error}'


# ------------------------------------------------------------------ redirected
def test_what_is_redirected_stands_in_one_line_also_an_option_left_at_its_default(folder: Path) -> None:
    spec, text = proposed(folder, "--out-dir", "here")
    line = next(line for line in text.splitlines() if "redirected into a folder of each attempt" in line)
    for named in ("--out-dir here", "--save model.pt (its default)", "--final weights/last.bin (its default)"):
        assert named in line
    assert "--data" not in line and "folder" not in spec.known_bad
    words = " ".join(spec.run.command)
    assert "--out-dir {attempt_dir}/here" in words and "--save {attempt_dir}/model.pt" in words
    done = subprocess.run([*TOOL, "init", "--force", "--", "python", "train.py"], cwd=folder, env=environment(), capture_output=True)
    assert b"redirected into a folder of each attempt: --out-dir results (its default), --save model.pt" in done.stdout


@pytest.mark.parametrize(
    ("flag", "value", "help_text", "expected"),
    [
        ("--final", "w.bin", "where the weights are written", True),
        ("--trace", "out/trace.json", "file to store the trace in", True),
        ("--init", "w.bin", "path of saved weights to load", False),
        ("--title", "my run", "name to save with the results", False),
        ("--every", "100", "save the model every N steps to disk", False),
    ],
)
def test_help_tells_an_option_that_is_written_to(flag: str, value: str, help_text: str, expected: bool) -> None:
    option = Option(flags=(flag,), text=help_text, default=value)
    assert is_output(Setting(name=flag[2:], role=None, value=value, flag=flag, option=option)) is expected


def test_files_that_the_sources_write_by_name_are_told(folder: Path) -> None:
    source = (
        "import argparse\n"
        "def save_checkpoint(state, best, filename='checkpoint.pth.tar'):\n    pass\n"
        "open('notes.txt', 'w').close(); open('input.txt').close(); save(model, args.out)\n"
    )
    (folder / "train.py").write_text(source)
    done = subprocess.run([*TOOL, "init", "--", "python", "train.py"], cwd=folder, env=environment(), capture_output=True, text=True)
    line = next(line for line in done.stdout.splitlines() if "no option moves it" in line)
    assert "checkpoint.pth.tar, notes.txt (" in line


# ------------------------------------------------------------------ kept
@pytest.mark.parametrize(
    "end",
    [
        traceback_of(ROOM),
        traceback_of("OSError: [Errno 122] Disk quota exceeded: '/data/out/model.pt'"),
        traceback_of("PermissionError: [Errno 13] Permission denied: 'here/model.pt'"),
        traceback_of("OSError: [Errno 30] Read-only file system: 'here'"),
        traceback_of("OSError: [Errno 27] File too large"),
        traceback_of("RuntimeError: cannot write here/step_19.pt"),
    ],
    ids=lambda end: end.rpartition("\n")[2],
)
def test_a_place_that_the_log_of_a_death_concerns_is_an_axis_and_the_job_writes_where_it_did(folder: Path, end: str) -> None:
    spec, text = proposed(folder, "--out-dir", "here", facts=death(folder, end))
    assert spec.known_bad["folder"] == "as_it_is" and set(spec.axis("folder").values) == {"as_it_is", "attempt_folder"}
    bad = spec.launch(spec.known_bad, max_steps=None, placeholders={"attempt_dir": "A"}).argv
    other = spec.launch({**spec.known_bad, "folder": "attempt_folder"}, max_steps=None, placeholders={"attempt_dir": "A"}).argv
    assert bad[bad.index("--out-dir") + 1] == "here" and other[other.index("--out-dir") + 1] == "A/here"
    assert bad.count("--out-dir") == other.count("--out-dir") == 1
    assert spec.observed[0].died and "--out-dir here" in text


def test_of_several_places_the_one_that_the_error_names_stays(folder: Path) -> None:
    facts = death(folder, traceback_of("OSError: [Errno 28] No space left on device: 'here/model.pt'"))
    spec, _ = proposed(folder, "--out-dir", "here", "--save", "other.pt", facts=facts)
    words = spec.launch(spec.known_bad, max_steps=None, placeholders={"attempt_dir": "A"}).argv
    assert words[words.index("--out-dir") + 1] == "here" and words[words.index("--save") + 1] == "A/other.pt"


def test_a_death_about_something_else_and_a_good_end_leave_no_place(folder: Path) -> None:
    for facts in (death(folder, "Segmentation fault"), death(folder, "training finished; saved to here")):
        spec, text = proposed(folder, "--out-dir", "here", facts=facts)
        assert "folder" not in spec.known_bad and "redirected" in text


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)], capture_output=True)
    if done.returncode and os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    assert done.returncode == 0, done.stderr
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_place_on_a_small_file_system_is_an_axis_without_any_log(folder: Path, small_disk: Path) -> None:
    spec, text = proposed(folder, "--out-dir", str(small_disk / "out"))
    assert spec.known_bad["folder"] == "as_it_is" and "file system is small: 4 MiB" in text


def test_a_small_folder_for_temporary_files_is_an_axis_and_stays_what_the_shell_has(folder: Path, small_disk: Path) -> None:
    """The tool gives every attempt a folder of its own for them, which takes such a fault away."""
    env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    (folder / "spec.yaml").write_text(
        specification(["python", "train.py"], cwd=folder, env={**env, "TMPDIR": str(small_disk)})
    )
    spec = load_spec(folder / "spec.yaml")
    assert spec.known_bad["temp"] == "as_it_is"
    launch = spec.launch(spec.known_bad, max_steps=None, placeholders={"attempt_dir": "A"})
    other = spec.launch({**spec.known_bad, "temp": "of_the_attempt"}, max_steps=None, placeholders={"attempt_dir": "A"})
    assert (launch.env.get("TMPDIR"), other.env.get("TMPDIR")) == (str(small_disk), None)
    plain = specification(["python", "train.py"], cwd=folder, env={**env, "TMPDIR": str(folder)})
    assert "TMPDIR" not in plain


def test_a_full_disk_stays_the_cause_by_init_and_run(folder: Path, small_disk: Path) -> None:
    """The tool once moved the output of such a job and called the job healthy."""
    (folder / "train.py").write_text(
        """
import argparse, os
parser = argparse.ArgumentParser()
parser.add_argument("--out", default="out")
parser.add_argument("--bs", type=int, default=8)
args = parser.parse_args()
os.makedirs(args.out, exist_ok=True)
for step in range(1, 9):
    print(f"step {step}/8", flush=True)
    with open(f"{args.out}/{step}.bin", "wb") as target:
        target.write(bytes(1 << 20))
"""
    )
    words = ["--", "python", "train.py", "--bs", "8", "--out", str(small_disk / "out")]
    done = subprocess.run([*TOOL, "init", *words], cwd=folder, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0 and "folder" in done.stdout
    spec = load_spec(folder / "train.yaml")
    bad = spec.launch(spec.known_bad, max_steps=None, placeholders={"attempt_dir": str(folder / "A")})
    other = spec.launch(
        {**spec.known_bad, "folder": "attempt_folder"}, max_steps=None, placeholders={"attempt_dir": str(folder / "A")}
    )
    run = {"cwd": folder, "env": environment(), "capture_output": True, "text": True}
    assert "No space left" in subprocess.run([sys.executable, *bad.argv[1:]], **run).stderr  # type: ignore[call-overload]
    assert subprocess.run([sys.executable, *other.argv[1:]], **run).returncode == 0  # type: ignore[call-overload]
