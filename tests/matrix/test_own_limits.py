"""Limits of the shell: they stop the job as they always did, and they do not stop the tool."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from matrix.evidence import own_limits
from matrix.records import Verdict, read
from tests.matrix.command_line import TOOL, environment, only_run, specification

TELLS = """
import json, pathlib, resource, sys
names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
told = {name: resource.getrlimit(getattr(resource, name)) for name in names}
pathlib.Path(sys.argv[1], "told.json").write_text(json.dumps(told))
print("step 1")
"""
TAKES = "import sys; kept = bytearray(int(sys.argv[2]) << 20); print('step 1')"
CORE = "RLIMIT_CORE"  # the tool decides about cores


ONE_BY_ONE = [
    ("ulimit -S -v 2000000", "address space"),
    ("ulimit -S -n 200", "open files"),
    ("ulimit -n 200", "open files"),
    ("ulimit -S -s 1024", "stack"),
    ("ulimit -S -f 4000", "file size"),
    ("ulimit -f 40000", "file size"),
    ("ulimit -S -t 3000", "processor time"),
    ("ulimit -S -u 2000", "processes of the user"),
    ("ulimit -S -d 900000", "data segment"),
]


def under(limits: str, words: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """A command under limits of a shell, soft and hard unless they say otherwise."""
    script = f'{limits}; exec "$@"'
    return subprocess.run(
        ["bash", "-c", script, "bash", *words],
        cwd=cwd, env=environment(), capture_output=True, text=True, timeout=900,
    )  # fmt: skip


def told_under(limits: str, folder: Path) -> dict[str, list[int]]:
    """Limits that a plain child of such a shell has."""
    folder.mkdir(exist_ok=True)
    done = under(limits, [sys.executable, "-c", TELLS, "."], folder)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[int]] = json.loads((folder / "told.json").read_text())
    return found


def spec_that_tells(folder: Path, **more: object) -> Path:
    (folder / "tells.py").write_text(TELLS)
    command = ["python", "tells.py", "{attempt_dir}"]
    content = {"name": "x", "run": {"command": command}, "matrix": {"a": {"values": [1], "env": ["A"]}}}
    search = {"max_runs": 1}
    return specification(folder, {**content, "search": search, "evidence": {"control": False}, **more})


@pytest.mark.parametrize(
    ("limits", "title"),
    [
        ("ulimit -v 2000000", "address space"),
        ("ulimit -S -v 500000 -n 100 -s 512 -f 400 -t 2000 -u 2500 -d 400000", "stack"),
        *(pytest.param(*row, marks=pytest.mark.slow) for row in ONE_BY_ONE),
    ],
)
def test_a_child_has_the_limits_of_the_shell_and_the_tool_says_so(
    tmp_path: Path, limits: str, title: str
) -> None:
    done = under(limits, [*TOOL, "run", str(spec_that_tells(tmp_path))], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = next(line for line in done.stdout.splitlines() if "kept for every attempt" in line)
    assert title in kept
    (told,) = only_run(tmp_path).glob("attempts/*/told.json")
    has, should = json.loads(told.read_text()), told_under(limits, tmp_path / "plain")
    assert {**has, CORE: 0} == {**should, CORE: 0}


def test_without_limits_nothing_is_said_and_nothing_changed() -> None:
    code = (
        "from matrix.evidence import own_limits as o; o.lift_limits();"
        "print(o.describe_inherited(), o.limits_of_children(), o.limits_for_specification())"
    )
    roomy = "ulimit -S -n 1024 -s 8192"
    done = under(roomy, [sys.executable, "-c", code], Path.cwd())
    assert done.stdout == "[] {} {}\n", done.stderr


@pytest.mark.parametrize("kib", [2_000_000, 400_000, 250_000])
@pytest.mark.slow
def test_a_job_that_dies_of_a_hard_limit_of_address_space_gets_its_verdict_and_report(
    tmp_path: Path, kib: int
) -> None:
    sizes = {"few": {"args": ["x", "1"]}, "many": {"args": ["x", "4000"]}}
    content = {
        "name": "x",
        "run": {"command": ["python", "-c", TAKES]},
        "matrix": {"mib": {"choices": sizes}},
        "known_bad": {"mib": "many"},
        "search": {"max_runs": 8},
    }
    done = under(f"ulimit -v {kib}", [*TOOL, "run", str(specification(tmp_path, content))], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    verdict = read(Verdict, only_run(tmp_path) / "verdict.json")
    assert verdict.ranking[0].cause == "resource_limit"
    assert verdict.status_text in done.stdout
    assert "hard one and holds for this tool too" in done.stdout
    report = (only_run(tmp_path) / "report.html").read_text()
    assert "address space" in report
    assert ("No pictures were drawn" in report) == (kib < 1_000_000)


@pytest.mark.parametrize(
    ("limits", "word"),
    [("ulimit -v 60000", "ulimit -v"), ("ulimit -n 12", "ulimit -n"), ("ulimit -f 1", "ulimit -f")],
)
def test_a_limit_too_small_for_the_tool_is_named_without_a_traceback(
    tmp_path: Path, limits: str, word: str
) -> None:
    done = under(limits, [*TOOL, "run", str(spec_that_tells(tmp_path))], tmp_path)
    assert done.returncode == 3, done.stdout + done.stderr
    assert word in done.stderr
    assert "Traceback" not in done.stderr


def test_limits_of_a_specification_reach_the_child(tmp_path: Path) -> None:
    limits = {"address_space": "3GiB", "data": "2GiB", "file_size": "1GiB", "processes": 3000}
    done = under("true", [*TOOL, "run", str(spec_that_tells(tmp_path, limits=limits))], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (told,) = only_run(tmp_path).glob("attempts/*/told.json")
    has = json.loads(told.read_text())
    names = ("RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_FSIZE", "RLIMIT_NPROC")
    assert [has[name][0] for name in names] == [3 << 30, 2 << 30, 1 << 30, 3000]


def test_what_is_out_of_the_ordinary_has_a_key_of_the_specification() -> None:
    code = "from matrix.evidence import own_limits as o; import json; print(json.dumps(o.limits_for_specification()))"
    done = under("ulimit -S -v 2000000 -n 100 -t 500", [sys.executable, "-c", code], Path.cwd())
    assert json.loads(done.stdout) == {"address_space": 2_000_000 << 10, "nofile": 100, "cpu_time": 500}


def test_every_kind_is_a_key_of_the_specification() -> None:
    from matrix.spec.model import Limits

    keys = {field.alias or name for name, field in Limits.model_fields.items()}
    assert {kind.key for kind in own_limits.KINDS.values()} <= keys
    assert all(hasattr(resource, name) for name in own_limits.KINDS)


def test_a_watched_command_keeps_the_limits_of_the_shell(tmp_path: Path) -> None:
    limits = "ulimit -S -v 2000000 -n 100"
    words = [*TOOL, "watch", "--", sys.executable, "-c", TELLS, str(tmp_path)]
    done = under(limits, words, tmp_path)
    assert done.returncode == 0, done.stderr
    has, should = json.loads((tmp_path / "told.json").read_text()), told_under(limits, tmp_path / "plain")
    assert {**has, CORE: 0} == {**should, CORE: 0}
