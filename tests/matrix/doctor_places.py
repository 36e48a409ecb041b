"""Interpreters and machines for the doctor: real virtual environments with real ELF files in made packages, and folders like /proc."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from matrix.doctor import catalogue
from matrix.doctor.finding import Finding
from matrix.doctor.interpreter import Distribution, Interpreter, examine
from matrix.doctor.place import Place

LINUX = sys.platform == "linux"


@dataclasses.dataclass(frozen=True)
class Environment:
    """A virtual environment whose packages are folders with metadata, as installers leave them."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site(self) -> Path:
        return next(self.folder.glob("lib/python3*/site-packages"))

    def add(self, name: str, version: str, files: dict[str, Path | str | bytes], tag: str = "py3-none-any") -> None:
        """`files`: by path in site-packages; a Path is copied."""
        for path, content in files.items():
            target = self.site / path
            target.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                shutil.copy(content, target)
            else:
                target.write_bytes(content.encode() if isinstance(content, str) else content)
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nTag: {tag}\n")
        (info / "RECORD").write_text("".join(f"{path},,\n" for path in files))

    def place(self, **fields: object) -> Place:
        return Place(python=examine(str(self.python)), environment={}, **fields)  # type: ignore[arg-type]


def make_environment(folder: Path) -> Environment:
    """As the venv module would, without its scripts."""
    real = Path(os.path.realpath(sys.executable))
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(real)
    (folder / "pyvenv.cfg").write_text(f"home = {real.parent}\ninclude-system-site-packages = false\n")
    (folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages").mkdir(parents=True)
    return Environment(folder)


def installed(*packages: str, version: tuple[int, int, int] = (3, 12, 0), machine: str = "x86_64") -> Interpreter:
    """An interpreter with these packages, given as `name==version`."""
    found = tuple(Distribution(name=name, version=number) for name, _, number in (package.partition("==") for package in packages))
    return Interpreter(executable="python", version=version, machine=machine, glibc=(2, 42), distributions=found)


def look(check: str, place: Place) -> list[Finding]:
    """What one check finds; it must have been able to look."""
    report = catalogue.run(place, (catalogue.find(check),))
    assert report.not_seen == []
    return report.findings


def severities(check: str, place: Place) -> list[str]:
    return [finding.severity for finding in look(check, place)]


def real_library(package: str, start: str) -> Path:
    """A native library of an installed wheel, whose file name starts like this."""
    try:
        files = importlib.metadata.files(package) or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    for file in files:
        if file.name.startswith(start) and ".so" in file.name:
            return Path(str(file.locate())).resolve()
    pytest.skip(f"the {package} wheel has no {start} for this platform")


def compiled(folder: Path, name: str, source: str, *options: str) -> Path:
    """A shared library of this C source."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = folder / name
    subprocess.run([compiler, "-shared", "-fPIC", "-x", "c", "-o", library, "-", *options], input=source.encode(), check=True)
    return library
