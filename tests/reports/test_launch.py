"""The launch script runs the command of a survivor, as it was, and says what is known about it."""

from __future__ import annotations

import dataclasses
import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import reports
from matrix import records
from matrix.records import Attempt, Cell, Fix, Ranked, Rate, Trial, Verdict
from reports.folder import load
from reports.launch import Launch, launch
from tests.reports.run_folders import Story, aborted, finished
from tests.reports.stories import openmp

ECHO = """
import json, os, sys
mine = {name: value for name, value in os.environ.items() if name.startswith("MX")}
json.dump({"argv": sys.argv[1:], "cwd": os.getcwd(), "env": mine}, open("seen.json", "w"))
"""
WORDS = ["plain", "two words", "it's", '"double"', "$HOME", "`id`", "a\nb", "*", "", "--flag=x y", "\\", "!", "-"]
BAD: Cell = {"runtime": "two", "bs": 1}


def survived(
    tmp_path: Path, *, name: str = "story", argv: list[str] | None = None, run_env: dict[str, str] | None = None, **fix: object
) -> Path:
    """A run folder with a fix whose surviving attempt has the given command; its working folder is beside it."""
    root, cwd = tmp_path / "runs" / "my run", tmp_path / "work dir"
    root.mkdir(parents=True)
    cwd.mkdir()
    story = Story(root, BAD, period_s=2.0)
    story.run({}, aborted(), steps=5, wall_s=4)
    attempt = story.run({"runtime": "one"}, finished(), steps=40, wall_s=4, trial={"purpose": "verify"})
    folder = root / "attempts" / attempt
    full = [sys.executable, "-c", ECHO, *(argv or []), "--out", f"{folder.resolve()}/out"]
    trial = Trial(id=2, cell={**BAD, "runtime": "one"}, purpose="verify")
    command = Attempt(id=attempt, trial=trial, argv=full, env=run_env or {}, cwd=str(cwd), key="k", program="p")
    records.write(folder / "attempt.json", command)
    ranking = [Ranked(cause="openmp_runtime_conflict", probability=0.99, grade="confirmed", summary="")]
    chosen = Fix(kind="cures", set={"runtime": "one"}, cell={**BAD, "runtime": "one"}, advice="", clean_runs=1, clean_steps=40)
    chosen = dataclasses.replace(chosen, failure_rate_upper_95=Rate(value=0.95), **fix)  # type: ignore[arg-type]
    return story.end(
        Verdict(name=name, complete=True, status="diagnosed", status_text="", ranking=ranking, fix=chosen), {"runtime": ["one", "two"]}
    )


def write_script(root: Path) -> None:
    """As `reports.write` does, without the plots."""
    found = launch(load(root))
    assert isinstance(found, Launch)
    (root / "launch.sh").write_text(found.script)


def test_the_script_gives_the_program_the_same_words_environment_and_folder(tmp_path: Path) -> None:
    root = survived(tmp_path, argv=WORDS, run_env={"MX_A": "it's $HOME\n`id`", "MX_B": "", "not a name": "x"})
    reports.write(root)
    target = tmp_path / "new run"
    script = root / "launch.sh"
    subprocess.run([script, target], check=True, env={"PATH": os.environ["PATH"]}, cwd=tmp_path)
    seen = json.loads((tmp_path / "work dir" / "seen.json").read_text())
    assert seen == {
        "argv": [*WORDS, "--out", f"{target.resolve()}/out"],
        "cwd": str((tmp_path / "work dir").resolve()),
        "env": {"MX_A": "it's $HOME\n`id`", "MX_B": ""},
    }
    assert stat.S_IMODE(script.stat().st_mode) == 0o700


def test_without_a_folder_given_each_launch_makes_one_of_its_own(tmp_path: Path) -> None:
    root = survived(tmp_path)
    write_script(root)
    subprocess.run(["/bin/sh", root / "launch.sh"], check=True, cwd=tmp_path)
    (made,) = tmp_path.glob("run-*")
    seen = json.loads((tmp_path / "work dir" / "seen.json").read_text())
    assert seen["argv"] == ["--out", f"{made.resolve()}/out"]


def test_a_run_folder_that_was_moved_leaves_no_old_path_in_the_script(tmp_path: Path) -> None:
    root = survived(tmp_path, argv=["--cache=/tmp/elsewhere/attempts/other"])
    attempt = next(root.glob("attempts/0002-*")).name
    (root / "attempts" / attempt / "attempt.json").write_text(
        (root / "attempts" / attempt / "attempt.json").read_text().replace('"-c"', f'"--log=runs/x/attempts/{attempt}/log", "-c"')
    )
    found = launch(load(root.rename(tmp_path / "moved")))
    assert isinstance(found, Launch)
    assert '"$out"/out' in found.body and "my run" not in found.body and "/tmp/elsewhere/attempts/other" in found.body
    assert '--log="$out"/log' in found.body


def test_names_with_line_ends_stay_inside_their_comment(tmp_path: Path) -> None:
    root = survived(
        tmp_path, name="x\ntouch owned\r\ntouch owned", limits={"memory\ntouch owned": "1GiB"}, packages={"numpy": "2\ntouch owned"}
    )
    write_script(root)
    subprocess.run(["/bin/sh", root / "launch.sh", "out"], check=True, cwd=tmp_path)
    assert list(tmp_path.rglob("owned")) == []
    assert "# Needs the package numpy==2 touch owned" in (root / "launch.sh").read_text()


def test_the_variables_of_a_fix_go_over_those_of_the_run(tmp_path: Path) -> None:
    root = survived(tmp_path, run_env={"MX_A": "1"}, env={"MX_A": "2"})
    write_script(root)
    subprocess.run(["/bin/sh", root / "launch.sh", "out"], check=True, cwd=tmp_path)
    assert json.loads((tmp_path / "work dir" / "seen.json").read_text())["env"] == {"MX_A": "2"}


def test_the_comments_say_what_was_verified_and_what_was_not(tmp_path: Path) -> None:
    root = survived(tmp_path, limits={"memory": "12GiB"}, verified=True)
    write_script(root)
    text = (root / "launch.sh").read_text()
    assert "# Fix: runtime=one\n# Set this limit first: memory=12GiB\n# Verified: 1 fresh run with 40 steps in all, none died; " in text
    assert "too few to exclude a failure that comes in only some runs (up to 95 % of them, with 95 % confidence).\n" in text
    assert "# Not verified: anything after 4.0 s or step 40 of one run" in text


def test_the_command_comes_from_a_verifying_run_to_the_natural_end(tmp_path: Path) -> None:
    folder = load(openmp(tmp_path))
    found = launch(folder)
    assert isinstance(found, Launch) and folder.verdict and folder.verdict.fix
    source = next(seen for attempt, seen in folder.observed if attempt.id == found.attempt)
    assert source.trial.purpose == "verify" and source.trial.cell == folder.verdict.fix.cell and source.trial.max_steps is None


def test_a_length_that_the_run_was_asked_for_is_pointed_out(tmp_path: Path) -> None:
    root = survived(tmp_path, argv=["--max-steps", "40"])
    for name, kind in (("attempt.json", records.Attempt), ("observation.json", records.Observation)):
        (path,) = root.glob(f"attempts/0002-*/{name}")
        record = records.read(kind, path)
        records.write(path, dataclasses.replace(record, trial=dataclasses.replace(record.trial, max_steps=40)))
    write_script(root)
    assert "# The run that this command was taken from was asked for 40 steps only: change 40 below" in (root / "launch.sh").read_text()


def test_without_a_survivor_of_the_fixed_cell_there_is_no_script_and_the_report_says_why(tmp_path: Path) -> None:
    root = survived(tmp_path)
    (attempt,) = root.glob("attempts/0002-*/attempt.json")
    attempt.unlink()
    reports.write(root)
    assert not (root / "launch.sh").exists()
    assert "There is no script, because no readable run survived with exactly this configuration." in (root / "report.md").read_text()


def test_the_number_one_is_not_the_switch_true(tmp_path: Path) -> None:
    root = survived(tmp_path, cell={"runtime": "one", "bs": True})
    assert launch(load(root)) == "There is no script, because no readable run survived with exactly this configuration."
