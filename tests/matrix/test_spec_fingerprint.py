"""The fingerprint changes with the program's own files, and with nothing else."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from matrix.spec.fingerprint import fingerprint

FILES = {
    "train.py": "import json\nimport helpers\nfrom pkg import deep\nfrom pkg.sub.leaf import thing as t\n\ndef late():\n    import lazy\n",
    "helpers.py": "import helpers2\n",
    "helpers2.py": "import helpers\n",
    "lazy.py": "",
    "pkg/__init__.py": "",
    "pkg/deep.py": "from . import sibling\nfrom .sub import *\n",
    "pkg/sibling.py": "",
    "pkg/sub/__init__.py": "",
    "pkg/sub/leaf.py": "from ..cousin import x\nimport space.inner\n",
    "pkg/cousin.py": "",
    "pkg/__main__.py": "from pkg import deep\n",
    "space/inner.py": "",
    "native.cpython-311-x86_64-linux-gnu.so": "not really",
    "unused.py": "",
    "data.npz": "many numbers",
}
RUN = ["python", "train.py", "--data", "data.npz"]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "program"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def edited(folder: Path, name: str, argv: list[str]) -> bool:
    """Whether an edit of a file changes the fingerprint."""
    before = fingerprint(argv, folder)
    path = folder / name
    path.write_text(path.read_text() + "\n# edited\n")
    return fingerprint(argv, folder) != before


def test_it_is_short_hex_and_stable(program: Path) -> None:
    assert fingerprint(RUN, program) == fingerprint(RUN, program)
    assert len(fingerprint(RUN, program)) == 16
    assert int(fingerprint(RUN, program), 16) >= 0


@pytest.mark.parametrize(
    "name",
    [
        "train.py",
        "helpers.py",
        "helpers2.py",
        "lazy.py",
        "pkg/__init__.py",
        "pkg/deep.py",
        "pkg/sibling.py",
        "pkg/sub/__init__.py",
        "pkg/sub/leaf.py",
        "pkg/cousin.py",
        "space/inner.py",
    ],
)
def test_it_follows_imports_of_every_form(program: Path, name: str) -> None:
    assert edited(program, name, RUN)


@pytest.mark.parametrize("name", ["unused.py", "data.npz", "pkg/__main__.py"])
def test_it_ignores_what_the_program_does_not_load_and_its_data(program: Path, name: str) -> None:
    assert not edited(program, name, RUN)


@pytest.mark.parametrize("name", ["pkg/__init__.py", "pkg/__main__.py", "pkg/deep.py", "pkg/sub/leaf.py"])
def test_a_module_is_resolved_in_the_working_folder(program: Path, name: str) -> None:
    (program / "pkg/__main__.py").write_text("import pkg.deep, pkg.sub.leaf\n")
    assert edited(program, name, [sys.executable, "-m", "pkg", "train"])
    assert edited(program, name, ["torchrun", "--nproc", "2", "-m", "pkg"])


def test_a_launcher_module_gives_way_to_the_script(program: Path) -> None:
    assert edited(program, "helpers.py", ["python", "-m", "torch.distributed.run", "train.py"])


def test_a_flag_m_of_the_script_is_no_module(program: Path) -> None:
    assert not edited(program, "unused.py", ["python", "helpers.py", "-m", "unused"])


def test_inline_code_is_followed(program: Path) -> None:
    assert edited(program, "helpers2.py", ["python", "-c", "import helpers"])


def test_native_modules_beside_the_script_count(program: Path) -> None:
    (program / "train.py").write_text("import native\n")
    assert edited(program, "native.cpython-311-x86_64-linux-gnu.so", RUN)


def test_a_shell_script_and_a_script_without_suffix_count(program: Path) -> None:
    (program / "go.sh").write_text("python train.py\n")
    (program / "tool").write_text("#!/usr/bin/env python3\nimport helpers\n")
    assert edited(program, "go.sh", ["bash", "go.sh"])
    assert edited(program, "tool", ["./tool"])
    assert edited(program, "helpers.py", ["./tool"])


def test_a_binary_counts_by_its_content(program: Path) -> None:
    shutil.copy("/bin/true", program / "prog")
    before = fingerprint(["./prog"], program)
    shutil.copy("/bin/false", program / "prog")
    assert fingerprint(["./prog"], program) != before


def test_a_program_with_nothing_of_its_own_counts_by_the_installed_file(program: Path) -> None:
    assert fingerprint(["true"], program) != fingerprint(["false"], program)


def test_a_moved_program_keeps_its_fingerprint(program: Path, tmp_path: Path) -> None:
    before = fingerprint(RUN, program)
    program.rename(tmp_path / "elsewhere")
    assert fingerprint(RUN, tmp_path / "elsewhere") == before


def test_a_script_outside_the_working_folder_finds_its_own_neighbours(program: Path, tmp_path: Path) -> None:
    argv = ["python", str(program / "train.py")]
    before = fingerprint(argv, tmp_path)
    (program / "helpers2.py").write_text("# edited\n")
    assert fingerprint(argv, tmp_path) != before


def test_environments_of_packages_are_left_out(program: Path) -> None:
    for name in (".venv/bin/launch", ".venv/lib/python3.11/site-packages/torch/run.py"):
        (program / name).parent.mkdir(parents=True, exist_ok=True)
        (program / name).write_text("#!/usr/bin/python3\nimport helpers\n")
    (program / ".venv/pyvenv.cfg").touch()
    assert not edited(program, ".venv/bin/launch", [".venv/bin/launch", "train.py"])
    installed = ".venv/lib/python3.11/site-packages/torch/run.py"
    assert not edited(program, installed, ["python", installed, "train.py"])


@pytest.mark.parametrize("text", ["def broken(:\n", "\0", "x = " + "(" * 5000])
def test_a_file_that_is_no_python_counts_by_its_content(program: Path, text: str) -> None:
    (program / "train.py").write_text(text)
    assert edited(program, "train.py", RUN)


@pytest.mark.parametrize(
    "argv", [[], ["no-such-program"], ["python", "missing.py"], ["python", "-m", "../x"], ["x" * 5000, "\0"], ["python", "-m"]]
)
def test_whatever_the_command_there_is_a_fingerprint(program: Path, argv: list[str]) -> None:
    assert len(fingerprint(argv, program)) == 16
