"""The house rules that a machine can check: who may import whom, what stays behind the process boundary."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("matrix", "trainer", "reports", "reproducers", "benchmarks")
HEAVY = ("torch", "faiss", "numpy", "pandas", "pydantic", "rich", "matplotlib")
NEVER_IN_MATRIX = ("torch", "faiss", "threadpoolctl", "sklearn", "trainer")

# Rooms of `matrix` and the rooms that each may import.  records is the ground floor; kernel_text and user_pattern are open to all.
OPEN_TO_ALL = ("kernel_text", "user_pattern")
ROOMS: dict[str, set[str]] = {
    "records": set(),
    "kernel_text": set(),
    "user_pattern": set(),
    "console": {"spec", "folder", "runner", "evidence"},
    "spec": {"records"},
    "evidence": {"records"},
    "runner": {"records", "evidence"},
    "executors": {"records", "evidence", "runner"},
    "search": {"records", "spec"},
    "diagnosis": {"records", "evidence", "spec", "search"},
    "view": {"records", "runner"},
    "folder": set(),
    "doctor": {"console", "evidence", "runner"},
    "assembly": {"records", "spec", "evidence", "runner", "taught"},
    "adoption": {"records", "spec", "evidence", "assembly", "runner"},
    "observer_control": {"records", "diagnosis"},
    "taught": {"records"},
    "safekeeping": {"records", "folder"},
    "earlier_deaths": {"records", "spec", "diagnosis", "explain"},
    "planner": {
        "records",
        "spec",
        "assembly",
        "adoption",
        "earlier_deaths",
        "safekeeping",
        "taught",
        "observer_control",
        "runner",
        "executors",
        "search",
        "diagnosis",
    },
    "preview": {"records", "evidence", "spec", "assembly", "runner", "executors", "search", "folder"},
    "packages": {"records", "spec", "adoption"},
    "explain": {"console", "records", "evidence", "search", "diagnosis", "folder", "packages"},
    "shorten": {"records", "spec", "assembly", "executors", "diagnosis"},
    "propose": {"records", "spec", "evidence", "diagnosis", "console", "completion"},
    "completion": {"console", "folder"},
    "replay": {"records", "spec", "assembly", "adoption", "runner", "executors", "diagnosis", "folder"},
    "watch": {
        "console",
        "records",
        "spec",
        "assembly",
        "evidence",
        "runner",
        "search",
        "diagnosis",
        "preview",
        "folder",
        "propose",
    },
    "__main__": {
        "console",
        "evidence",
        "doctor",
        "watch",
        "propose",
        "completion",
        "packages",
        "replay",
        "explain",
        "shorten",
        "records",
        "spec",
        "assembly",
        "runner",
        "executors",
        "planner",
        "preview",
        "view",
        "folder",
    },
}


def modules(package: str) -> list[Path]:
    return sorted(path for path in (ROOT / package).rglob("*.py") if "hook" not in path.parts)


def imports(path: Path) -> set[str]:
    """Full names of everything a module imports, anywhere in it."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def offences(package: str, forbidden: tuple[str, ...]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)} imports {name}" for path in modules(package) for name in imports(path) if name.split(".")[0] in forbidden
    ]


def test_every_package_has_modules_to_check() -> None:
    assert all(modules(package) for package in PACKAGES)


def test_the_doctor_never_imports_what_it_diagnoses_nor_the_patient() -> None:
    assert offences("matrix", NEVER_IN_MATRIX) == []


def test_the_patient_knows_nothing_of_the_doctor() -> None:
    assert offences("trainer", ("matrix", "reports", "reproducers", "threadpoolctl", "sklearn")) == []


def test_reports_read_records_only() -> None:
    wrong = [
        f"{path.name}: {name}"
        for path in modules("reports")
        for name in imports(path)
        if name.startswith("matrix") and not name.startswith("matrix.records")
    ]
    assert wrong == []


def test_only_the_command_line_calls_the_reports() -> None:
    wrong = [path.name for path in modules("matrix") for name in imports(path) if name.split(".")[0] == "reports"]
    assert set(wrong) == {"__main__.py", "packages.py", "command.py"}


@pytest.mark.parametrize("path", modules("matrix"), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_rooms_of_matrix_import_one_way(path: Path) -> None:
    inside = path.relative_to(ROOT / "matrix")
    room = inside.parts[0].removesuffix(".py")
    if room == "__init__":
        return
    in_the_package_itself = {"__version__", "_stop"}
    used = {name.split(".")[1] for name in imports(path) if name.startswith("matrix.")} - {room, *OPEN_TO_ALL} - in_the_package_itself
    assert used <= ROOMS[room], f"{inside} may import {sorted(ROOMS[room])} and itself"


def test_the_rooms_have_no_cycle() -> None:
    settled: set[str] = set()
    while len(settled) < len(ROOMS):
        ready = {room for room, needs in ROOMS.items() if room not in settled and needs <= settled}
        assert ready, f"a cycle among {sorted(set(ROOMS) - settled)}"
        settled |= ready


def test_no_module_has_a_name_of_the_standard_library_or_is_called_utils() -> None:
    taken = set(sys.stdlib_module_names) | {"utils", "helpers", "common", "misc"}
    wrong = [str(path.relative_to(ROOT)) for package in PACKAGES for path in modules(package) if path.stem in taken]
    assert wrong == []


@pytest.mark.parametrize(
    "argv", [["-c", "import matrix"], ["-m", "matrix", "--help"], ["-c", "import reports"], ["-m", "trainer", "--help"]], ids=" ".join
)
def test_starting_up_loads_nothing_heavy(argv: list[str]) -> None:
    done = subprocess.run([sys.executable, "-X", "importtime", *argv], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "site" in loaded
    assert loaded & {*HEAVY, *NEVER_IN_MATRIX[:-1]} == set()
