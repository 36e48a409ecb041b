"""Promises of SECURITY.md that a machine can check."""

from __future__ import annotations

import ast
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.matrix import machine_needs
from tests.matrix.command_line import TOOL, environment, matrix, only_run, specification

ROOT = Path(__file__).parents[1]
PACKAGES = ("matrix", "reports")
CONTENT = {
    "run": {"command": ["python", "-c", "print('step 1')"]},
    "matrix": {"a": {"values": [1, 2], "env": ["A"]}},
    "search": {"max_runs": 2},
}


def calls() -> list[tuple[str, ast.Call]]:
    """Every call in our own code, with its place."""
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
            found += [(f"{path.relative_to(ROOT)}:{node.lineno}", node) for node in nodes]
    return found


def test_nothing_is_given_to_a_shell() -> None:
    with_shell = [
        place for place, call in calls() for word in call.keywords
        if word.arg == "shell" and not (isinstance(word.value, ast.Constant) and word.value.value is False)
    ]  # fmt: skip
    by_name = [place for place, call in calls() if ast.unparse(call.func) in ("os.system", "os.popen", "subprocess.getoutput")]
    assert with_shell + by_name == []


def test_no_code_is_made_of_data() -> None:
    words = ("eval", "exec", "pickle.loads", "pickle.load", "marshal.loads")
    assert [place for place, call in calls() if ast.unparse(call.func) in words] == []
    imported = [
        f"{path.relative_to(ROOT)}"
        for package in PACKAGES for path in (ROOT / package).rglob("*.py")
        if re.search(r"^\s*(import|from) (pickle|marshal|shelve|dill|cloudpickle|yaml)\b", path.read_text(encoding="utf-8"), re.M)
    ]  # fmt: skip
    assert imported == []
    unsafe = [place for place, call in calls() if ast.unparse(call.func) == "YAML" and "unsafe" in ast.unparse(call)]
    assert unsafe == []  # of ruamel.yaml only this one makes objects of tags


def test_a_tag_in_a_specification_makes_no_object(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    text = f"name: x\nrun: {{command: !!python/object/apply:os.system ['touch {victim}']}}\nmatrix: {{a: [1]}}\n"
    (tmp_path / "spec.yaml").write_text(text)
    done = matrix("plan", "spec.yaml", cwd=tmp_path)
    assert (done.returncode, victim.exists(), "Traceback" in done.stderr) == (2, False, False)


def test_what_a_run_writes_is_for_its_owner_only_and_the_page_allows_no_other_source(tmp_path: Path) -> None:
    specification(tmp_path, CONTENT)
    words = ["sh", "-c", 'umask 000; exec "$@"', "sh", *TOOL, "run", "spec.yaml"]
    subprocess.run(words, cwd=tmp_path, env=environment(), check=True)
    run = only_run(tmp_path)
    folders = [run.parent, run, run / "attempts", *run.glob("attempts/*")]
    assert {folder.name: oct(stat.S_IMODE(folder.stat().st_mode)) for folder in folders} == {folder.name: "0o700" for folder in folders}
    page = (run / "report.html").read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert "default-src 'none'" in policy[1]
    assert "http:" not in policy[1] and "https:" not in policy[1]


@pytest.mark.slow
@pytest.mark.parametrize("words", [("run", "spec.yaml"), ("plan", "spec.yaml"), ("report", "runs"), ("doctor",), ("package", "runs")])
def test_no_command_speaks_to_a_network(tmp_path: Path, words: tuple[str, ...]) -> None:
    """No process of it asks for a socket of the internet, nor looks a name up."""
    if why := machine_needs.strace():
        pytest.skip(why)
    specification(tmp_path, CONTENT)
    if words[-1] == "runs":
        assert matrix("run", "spec.yaml", cwd=tmp_path).returncode == 0
        words = (*words[:-1], str(only_run(tmp_path)))
    trace = tmp_path / "trace"
    strace = ["strace", "-f", "-qq", "-e", "trace=connect,sendto,sendmsg", "-e", "signal=none", "-o", str(trace)]
    done = subprocess.run([*strace, *TOOL, *words], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=900)
    assert done.returncode in (0, 1), done.stderr
    assert trace.exists()
    assert [line for line in trace.read_text(errors="replace").splitlines() if "AF_INET" in line] == []


@pytest.mark.slow
def test_a_run_is_the_same_where_there_is_no_network(tmp_path: Path) -> None:
    if machine_needs.mounts() or shutil.which("unshare") is None:
        pytest.skip("no namespaces here")
    specification(tmp_path, CONTENT)
    done = subprocess.run(["unshare", "-n", *TOOL, "run", "spec.yaml"], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert sys.platform == "linux"
