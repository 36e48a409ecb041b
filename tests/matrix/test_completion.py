"""Shell completion: what is offered, and that a real bash takes it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from matrix.__main__ import main
from tests.matrix.command_line import environment, matrix


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("runs/job/20260101-000000/attempts/0001-aa", "runs/job/20260102-000000/attempts/0002-bb", "runs/other", "configs"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("job.yaml", "notes.txt", "configs/big.yml"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def offered(*words: str) -> list[str]:
    return [item.value for item in ShellComplete(main, {}, "matrix", "_MATRIX_COMPLETE").get_completions(list(words[:-1]), words[-1])]


def test_specifications_runs_attempts_and_options_are_offered(folder: Path) -> None:
    assert offered("run", "") == ["configs/", "job.yaml", "runs/"]
    assert offered("plan", "configs/b") == ["configs/big.yml"]
    assert offered("report", "j") == ["job"]
    assert offered("replay", "runs/job/") == ["runs/job/20260101-000000/", "runs/job/20260102-000000/"]
    assert offered("replay", "job", "") == ["0002-bb"]
    assert offered("replay", "no-such-run", "") == []
    assert "--resume" in offered("run", "job.yaml", "--r")
    assert "openmp-duplicate" in offered("doctor", "--explain", "openmp-")
    assert offered("completion", "") == ["bash", "zsh", "fish"]


def test_where_there_is_nothing_nothing_is_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert offered("run", "") == offered("report", "") == offered("plan", "no/such/") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_a_real_bash_completes_the_installed_command(folder: Path) -> None:
    program = folder / "bin" / "matrix"  # what pip writes for the entry point
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom matrix.__main__ import main\nsys.exit(main())\n")
    program.chmod(0o755)
    script = """
        eval "$(matrix completion bash)"
        complete -p matrix
        COMP_WORDS=(matrix run j); COMP_CWORD=2; COMPREPLY=(); _matrix_completion matrix
        echo "${COMPREPLY[*]}"
    """
    env = {**environment(), "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "--norc", "-c", script], cwd=folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["complete -o nosort -F _matrix_completion matrix", "job.yaml"], done.stderr


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_have_scripts_too(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "matrix", "completion", shell], env=environment(), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0 and "_MATRIX_COMPLETE" in done.stdout


def test_an_unknown_shell_is_refused(tmp_path: Path) -> None:
    done = matrix("completion", "tcsh", cwd=tmp_path)
    assert done.returncode == 2 and "'bash', 'zsh', 'fish'" in done.stderr
