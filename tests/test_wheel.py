"""The built wheel: everything that runs is in it, nothing else is, and it runs where it may not write."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from matrix import records
from matrix.records import Observation
from tests.matrix.command_line import CAN_DROP_RIGHTS, NO_RIGHTS, ROOT, only_run, specification

PACKAGES = ("matrix", "reports", "reproducers", "trainer")
LISTED = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True).stdout.split("\0")
TREE = [name for name in LISTED if name and (ROOT / name).is_file()]

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not TREE, reason="not a checkout: what belongs to the tree is not known")]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a clean copy of the tree, without a network."""
    place = tmp_path_factory.mktemp("wheel")
    for name in TREE:
        target = place / "tree" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((ROOT / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", place, place / "tree"]
    built = subprocess.run(pip, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (found,) = place.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """A folder to put on the import path, which its user may not write."""
    target = wheel.parent / "installed"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-compile", "--target", str(target), str(wheel)]
    subprocess.run(pip, check=True, capture_output=True)
    for path in (target, *target.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    return target


def test_the_source_archive_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    build = f"import setuptools.build_meta as backend; print(backend.build_sdist({str(tmp_path)!r}))"
    tree = wheel.parent / "tree"
    built = subprocess.run([sys.executable, "-c", build], cwd=tree, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    (archive,) = tmp_path.glob("*.tar.gz")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index", "-w", tmp_path, archive]
    again = subprocess.run(pip, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert _contents_of(next(tmp_path.glob("*.whl"))) == _contents_of(wheel)


@pytest.mark.nightly
def test_the_wheel_with_its_own_dependencies_alone_runs_a_matrix(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv/bin/python"
    installed = subprocess.run([python, "-m", "pip", "install", "-q", wheel], capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr
    program = "import os, sys; print('step 1', flush=True); 'bad' in sys.argv and os.abort()"
    specification(tmp_path, {"run": {"command": ["python", "-c", program]}, "matrix": {"mode": ["bad", "good"]}})
    ended = subprocess.run([python, "-m", "matrix", "run", "spec.yaml"], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (only_run(tmp_path) / "report.html").stat().st_size > 10_000


def _contents_of(wheel: Path) -> dict[str, int]:
    """Return the name and checksum of each packed file; RECORD lists them in an order of its own."""
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist() if not each.filename.endswith("/RECORD")}


def test_the_wheel_holds_the_packages_whole_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = next(archive.read(name).decode() for name in archive.namelist() if name.endswith("/METADATA"))
    assert names == {name for name in TREE if name.startswith(tuple(f"{package}/" for package in PACKAGES))}
    assert {"matrix/runner/hook/sitecustomize.py", "matrix/runner/guardian.py", "reports/templates/report.html.j2"} <= names
    assert "License-Expression: MIT" in metadata and "Requires-Python: <3.14,>=3.10" in metadata


@pytest.mark.skipif(not CAN_DROP_RIGHTS, reason="the rights of root cannot be dropped here")
def test_the_installed_tool_runs_from_an_empty_folder_and_writes_its_report(installed: Path, tmp_path: Path) -> None:
    ours = f"[path for path in sys.path if path.startswith({str(installed)!r})]"
    program = f"import os, sys; print('ours:', *{ours}); print('step 1', flush=True); 'bad' in sys.argv and os.abort()"
    specification(tmp_path, {"run": {"command": ["python", "-c", program]}, "matrix": {"mode": ["bad", "good"]}})
    env = {**os.environ, "PYTHONPATH": str(installed)}
    which = [sys.executable, "-c", "import matrix; print(matrix.__file__)"]
    assert subprocess.run(which, cwd=tmp_path, env=env, capture_output=True, text=True).stdout == f"{installed}/matrix/__init__.py\n"
    tool = [*NO_RIGHTS, sys.executable, "-m", "matrix", "run", "spec.yaml"]
    ended = subprocess.run(tool, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (0, "")
    run = only_run(tmp_path)
    assert {"report.html", "report.md", "launch.sh"} <= {path.name for path in run.iterdir()} and list(run.glob("plots/*.svg"))
    seen = [records.read(Observation, path) for path in run.glob("attempts/*/observation.json")]
    assert {observation.exit.signal for observation in seen} == {"SIGABRT", None}
    assert all(o.crash_stack for o in seen if o.exit.signal and o.trial.watched)  # the hook saw the death
    assert {observation.output_tail[0] for observation in seen} == {"ours:"}  # and nothing of ours is in the child's import path
