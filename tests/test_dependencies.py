"""The packages that we rely on: locked with hashes, allowed by pyproject.toml, and each with a stated purpose."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)([^\\\n]*)\\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
LOCK = (ROOT / "development.lock").read_text()
NOT_LOCKED = {"torch", "crash-matrix"}  # constraints.txt pins torch, whose builds differ between indexes


def requirements_of(*extras: str) -> list[Requirement]:
    optional = PROJECT["optional-dependencies"]
    texts = PROJECT["dependencies"] + [text for extra in extras for text in optional[extra]]
    found = [Requirement(text) for text in texts]
    return [requirement for requirement in found if requirement.name not in NOT_LOCKED]


@pytest.mark.parametrize("requirement", requirements_of("trainer", "dev", "stacks"), ids=lambda requirement: requirement.name)
def test_the_lock_holds_a_version_that_pyproject_allows(requirement: Requirement) -> None:
    wanted = canonicalize_name(requirement.name)
    versions = {entry[2] for entry in ENTRY.finditer(LOCK) if canonicalize_name(entry[1]) == wanted}
    assert versions, f"{requirement.name} is not in development.lock; run: make lock"
    assert all(requirement.specifier.contains(version) for version in versions)


def test_every_locked_package_has_hashes() -> None:
    pinned = re.findall(r"^([A-Za-z0-9._-]+)==", LOCK, re.MULTILINE)
    assert pinned == [entry[1] for entry in ENTRY.finditer(LOCK)]


def test_the_lock_names_no_place_and_no_torch() -> None:
    assert not re.search(r"://|^torch==|^nvidia", LOCK, re.MULTILINE)


def test_each_dependency_has_a_purpose_in_contributing() -> None:
    _, _, table = (ROOT / "CONTRIBUTING.md").read_text().partition("| package | what it is for |")
    told = {canonicalize_name(name) for row in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for name in row.split(", ")}
    named = {canonicalize_name(requirement.name) for requirement in requirements_of(*PROJECT["optional-dependencies"])}
    assert named - told == set()
    assert told - named == {"torch"}
