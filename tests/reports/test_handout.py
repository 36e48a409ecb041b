"""What leaves through a report holds no secret, whatever its form; what has to run takes secrets from variables."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import stat
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest

import reports
from matrix.records import Attempt, read, write
from reports.package import Wish, draft, pack, unpack
from reports.redact.command import secrets_in_command
from tests.reports.package_runs import aborting

# How a command or a variable gives it -> what of it nobody may read.
ARGUMENTS = {
    ("--api-token", "qQ7xyzzyPlugh99"): "qQ7xyzzyPlugh99",
    ("--password", "correcthorse"): "correcthorse",
    ("--url=postgres://bob:hunter2pw@db.example.com/x",): "hunter2pw",
    ("--hub", "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH"): "hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH",
    ("--secret-key=it's a\"b$c`d",): "it's a\"b$c`d",
}
VARIABLES = {"DB_PASSWORD": "pa55word-blue", "SERVICE_API_KEY": "k9f8e7d6c5b4a392"}
SECRETS = [*ARGUMENTS.values(), *VARIABLES.values()]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose command has secrets, and whose program prints them."""
    folder = aborting(tmp_path_factory.mktemp("told"))
    words = [word for given in ARGUMENTS for word in given]
    for path in (folder / "attempts").iterdir():
        attempt = read(Attempt, path / "attempt.json")
        write(path / "attempt.json", Attempt(**{**vars(attempt), "argv": [*attempt.argv, *words], "env": {**attempt.env, **VARIABLES}}))
        seen = json.loads((path / "observation.json").read_text())
        seen["output_tail"] = [f"connecting as {secret} now" for secret in SECRETS] + [json.dumps({"password": "correcthorse"})]
        (path / "observation.json").write_text(json.dumps(seen))
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**plan, "command": ["python", "train.py", *words]}))
    return folder


def seen_in(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text or secret.replace('"', "&quot;") in text or json.dumps(secret)[1:-1] in text]


def test_no_file_of_a_report_holds_what_the_command_was_given(run: Path) -> None:
    written = reports.write(run)
    assert {"report.md", "report.html", "launch.sh"} <= {path.name for path in written}
    assert {path.name: seen_in(path.read_text()) for path in written if seen_in(path.read_text())} == {}
    assert "REDACTED-" in (run / "report.md").read_text() and "REDACTED-" in (run / "report.html").read_text()


@pytest.mark.parametrize("form", ["json", "csv", "junit", "summary"])
def test_no_form_for_machines_does_and_each_can_still_be_read(run: Path, form: str) -> None:
    text = reports.export(run, form)
    assert seen_in(text) == []
    if form == "json":
        assert json.loads(text)["attempts"]
    elif form == "csv":
        assert len({len(row) for row in csv.reader(io.StringIO(text))}) == 1
    elif form == "junit":
        assert len(list(ElementTree.fromstring(text).iter("testcase"))) == 3


def test_a_comparison_does_not(run: Path) -> None:
    assert [seen_in(path.read_text()) for path in reports.compare(run, run)] == [[], []]
    assert seen_in(reports.compare_json(run, run)) == []


def test_the_page_keeps_its_script(run: Path) -> None:
    """Its policy names the hash of the script: with one character changed no browser would run it."""
    reports.write(run)
    script = (Path(reports.__file__).parent / "templates" / "report.js").read_text()
    assert f"<script>{script}</script>" in (run / "report.html").read_text()


def test_the_launch_script_asks_for_each_secret_and_gives_it_to_the_program(run: Path, tmp_path: Path) -> None:
    reports.write(run)
    script = (run / "launch.sh").read_text()
    names = re.findall(r'^: "\$\{(\w+):\?', script, re.MULTILINE)
    assert len(names) == len(SECRETS) and stat.S_IMODE((run / "launch.sh").stat().st_mode) == 0o700
    bare = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["sh", str(run / "launch.sh")], env=bare, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode != 0 and "first" in done.stderr
    argv = next(read(Attempt, path / "attempt.json").argv for path in (run / "attempts").iterdir())
    given = {name: secret for secret, name in secrets_in_command(argv, VARIABLES).items()}
    assert set(given) == set(names)
    program = Path(argv[1])
    told = script.replace(f"exec {sys.executable} \\\n", "exec").replace(str(program), "-c 'import sys; print(sys.argv)'")
    (tmp_path / "launch.sh").write_text(told)
    done = subprocess.run(["sh", "launch.sh"], env=bare | given, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    told = [secret in done.stdout or repr(secret)[1:-1] in done.stdout for secret in ARGUMENTS.values()]
    assert all(told), script + done.stdout + done.stderr


def test_the_report_in_a_package_has_the_tokens_of_the_other_files(run: Path, tmp_path: Path) -> None:
    reports.write(run)
    unpack(pack(draft(run, Wish(), environment={}), tmp_path / "p.zip", environment={}), tmp_path / "opened")
    page, record = (tmp_path / "opened/report.md").read_text(), next((tmp_path / "opened/attempts").glob("*/attempt.json")).read_text()
    argv = json.loads(record)["argv"]
    token = argv[argv.index("--api-token") + 1]
    assert token.startswith("REDACTED-") and f"--api-token {token}" in page
    for path in (tmp_path / "opened").rglob("*"):
        assert path.is_dir() or seen_in(path.read_text(errors="replace")) == [], path


def test_the_home_folder_is_shown_as_a_shell_knows_it(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(run.parents[2]))
    reports.write(run)
    text = (run / "report.md").read_text()
    assert "cd -- ~/job" in text or f"cd -- {run.parents[2]}" not in text


def test_a_run_folder_with_a_secret_is_for_its_owner_only_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys\nfor step in range(3): print('step', step, flush=True)\n")
    (tmp_path / "spec.yaml").write_text(textwrap.dedent("""
        name: told
        run: {command: [python, train.py, --api-token, qQ7xyzzyPlugh99], env: {DB_PASSWORD: pa55word-blue}}
        matrix: {bs: [1]}
        search: {max_runs: 1}
    """))
    words = [sys.executable, "-m", "matrix", "run", "spec.yaml"]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    (where,) = (tmp_path / "runs" / "told").iterdir()
    for name in ("spec.yaml", "plan.json"):
        assert stat.S_IMODE((where / name).stat().st_mode) == 0o600
    assert "hold what is given with --api-token, DB_PASSWORD in clear" in done.stdout and "qQ7xyzzyPlugh99" not in done.stdout
    for name in ("report.md", "report.html", "verdict.json"):
        assert "qQ7xyzzyPlugh99" not in (where / name).read_text() and "pa55word-blue" not in (where / name).read_text()
