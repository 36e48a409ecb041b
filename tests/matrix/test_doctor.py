"""`matrix doctor`: what it prints, how it ends, and that it imports nothing of what it looks at."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from matrix.__main__ import main
from matrix.doctor import catalogue
from matrix.doctor.finding import GROUPS, SEVERITIES
from matrix.doctor.interpreter import NoInterpreter, examine
from matrix.doctor.place import Place
from tests.matrix.doctor_places import LINUX, Environment, installed, make_environment

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "faiss", "numpy", "pandas", "pydantic", "rich", "matplotlib", "threadpoolctl", "sklearn"}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """One with a combination that is an error, and a package that tells when it is imported."""
    made = make_environment(tmp_path_factory.mktemp("doctor") / "venv")
    made.add("pandas", "2.1.4", {"pandas/__init__.py": "import pathlib; pathlib.Path(__file__).with_name('imported').touch()\n"})
    made.add("Num_Py.x", "1.0", {"x.py": ""})
    made.add("numpy", "2.2.6", {"numpy/__init__.py": "raise SystemExit('imported')\n"})
    return made


def doctor(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["doctor", *map(str, arguments)])


def test_an_error_is_printed_first_with_what_it_causes_and_what_to_do(environment: Environment) -> None:
    done = doctor("--python", environment.python)
    assert done.exit_code == 1
    lines = done.output.splitlines()
    assert lines[0].startswith(f"{environment.python}: CPython 3.") and " packages, " in lines[0]
    assert lines[2:4] == ["ERRORS: these kill what meets them, or have killed here", "  pandas-numpy-2: pandas 2.1.4 with numpy 2.2.6"]
    assert lines[4].startswith('    causes: ValueError "numpy.dtype size changed" at import.')
    assert any(line.strip() == "do: pip install --upgrade pandas, or 'numpy<2'" for line in lines[5:8])
    assert re.search(r"^1 error, \d+ warnings?, \d+ info; \d+ checks fine, \d+ not possible; [\d.]+ s\. ", lines[-1])
    assert not any(len(line) > 140 for line in lines if "/" not in line)
    assert "\x1b" not in done.output


def test_nothing_that_is_looked_at_is_imported(environment: Environment) -> None:
    assert not (environment.site / "pandas" / "imported").exists()


def test_the_document_accounts_for_every_check_once(environment: Environment) -> None:
    done = doctor("--python", environment.python, "--json")
    told = json.loads(done.output)
    assert done.exit_code == 1 and told["schema"] == "matrix.doctor/1"
    ids = [each.id for each in catalogue.CHECKS]
    accounted = {finding["id"] for finding in told["findings"]} | set(told["fine"]) | {each["id"] for each in told["not_seen"]}
    assert told["checks"] == ids and accounted == set(ids)
    assert len(told["fine"]) + len(told["not_seen"]) + len({finding["id"] for finding in told["findings"]}) == len(ids)
    [error] = [finding for finding in told["findings"] if finding["severity"] == "error"]
    assert error == {
        "id": "pandas-numpy-2",
        "group": "versions",
        "severity": "error",
        "summary": "pandas 2.1.4 with numpy 2.2.6",
        "evidence": [],
        "causes": 'ValueError "numpy.dtype size changed" at import',
        "unproven": "nothing, where it is imported; tried with pandas 2.1.4, scikit-learn 1.4.1 and scipy 1.12.0 beside numpy 2.2.6",
        "remedy": "pip install --upgrade pandas, or 'numpy<2'",
    }
    assert told["counts"]["error"] == 1 and told["python"]["executable"] == str(environment.python)


def test_names_of_packages_are_compared_in_their_normal_form(environment: Environment) -> None:
    assert examine(str(environment.python)).installed("num-py-x") is not None


def test_packages_that_the_job_gets_by_pythonpath_are_seen_and_not_run(
    environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late-3.0.dist-info").mkdir()
    (tmp_path / "late-3.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 3.0\n")
    (tmp_path / "sitecustomize.py").write_text("raise SystemExit('run')\n")
    assert examine(str(environment.python)).installed("late") is None
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = examine(str(environment.python)).installed("late")
    assert found is not None and found.version == "3.0"


def test_it_loads_nothing_heavy_into_itself() -> None:
    """Of the very environment with torch and numpy that it looks into."""
    argv = [sys.executable, "-X", "importtime", "-m", "matrix", "doctor", "--json"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True)
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines() if line.startswith("import time:")}
    told = json.loads(done.stdout)
    assert done.returncode == (1 if told["counts"]["error"] else 0)
    assert "packaging" in loaded
    assert loaded & HEAVY == set()


def test_one_check_is_explained_with_its_references() -> None:
    done = doctor("--explain", "openmp-duplicate")
    assert done.exit_code == 0
    for words in ("openmp-duplicate", "What it causes: a process that uses two", "By hand: ", "What to do: ", "See: https://"):
        assert words in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--explain", "openmp-duplicat"], "did you mean openmp-duplicate?"),
        (["--explain", "zzz"], "there is no check 'zzz'"),
        (["--explain", ""], "there is no check ''"),
        (["--python", ""], "'': no such program"),
        (["--python", "/nowhere/python"], "/nowhere/python: no such program"),
        (["--python", "/"], "no such program, or not executable"),
        (["--python", "true"], "is no Python interpreter that can be examined"),
        (["--python", "false"], "is no Python interpreter that can be examined (status 1)"),
        (["--python", "ls"], "is no Python interpreter that can be examined (status 2)"),
    ],
    ids=" ".join,
)
def test_bad_input_is_one_clear_line(arguments: list[str], words: str) -> None:
    done = doctor(*arguments)
    assert done.exit_code == 2
    assert words in done.output and len(done.output.splitlines()) == 1


def test_an_interpreter_without_what_the_look_needs_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'Python 3.6 has no importlib.metadata; 3.8 is the oldest' >&2; exit 1\n")
    broken.chmod(0o755)
    with pytest.raises(NoInterpreter, match=r"3\.8 is the oldest"):
        examine(str(broken))


def test_every_check_has_an_id_of_its_own_and_all_that_an_explanation_needs() -> None:
    ids = [each.id for each in catalogue.CHECKS]
    assert len(set(ids)) == len(ids)
    for each in catalogue.CHECKS:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", each.id), each.id
        assert each.group in GROUPS
        assert all((each.fine, each.causes, each.unproven, each.by_hand, each.remedy)), each.id
        assert not any(text.endswith(".") for text in (each.fine, each.causes, each.unproven, each.remedy)), each.id


def test_on_a_machine_without_proc_everything_ends_and_says_what_could_not_be_seen(tmp_path: Path) -> None:
    """As macOS looks, which this was never run on."""
    report = catalogue.run(Place(python=installed(), environment={}, root=tmp_path, system="darwin", machine="arm64", cwd=tmp_path))
    whys = {each.id: why for each, why in report.not_seen}
    assert {"memory-limit", "oom-daemon", "shm-room", "core-pattern", "stacks-of-live-processes", "instruction-set"} <= whys.keys()
    assert whys["core-pattern"] == "darwin has no /proc"
    assert all(finding.severity in SEVERITIES for finding in report.findings)


def test_a_container_that_hides_proc_files_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    report = catalogue.run(Place(python=installed(), environment={}, root=tmp_path, cwd=tmp_path))
    whys = {each.id: why for each, why in report.not_seen}
    if LINUX:
        assert whys["swap"] == "/proc/meminfo: No such file or directory"
