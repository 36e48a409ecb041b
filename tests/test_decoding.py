"""Text of others is never decoded strictly: one odd byte in a name, a log or an answer must not end the tool."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_layout import ROOT

PACKAGES = ("matrix", "reports", "reproducers", "trainer")
HELPER = ROOT / "matrix" / "kernel_text.py"
KERNEL_PLACES = ("/proc", "/sys", "/dev/kmsg")
KERNEL_FILES = {
    *("cgroup", "cgroup.procs", "cmdline", "comm", "cpu.max", "environ", "io", "limits", "maps", "meminfo", "mountinfo", "pids.current"),
    *("pids.max", "smaps", "smaps_rollup", "stat", "statm", "status", "wchan"),
}
OURS = ("trainer/config.py", "trainer/estimate.py", "trainer/progress.py")  # files that the trainer wrote, or that its user names
OUR_OWN_JSON = {"matrix/records.py", "matrix/runner/launcher.py", "matrix/evidence/core_notes.py", "reports/render_html.py"}
WITHOUT_MATRIX = ("trainer/", "reports/package/kit/", "reproducers/")  # these may not import the helper
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def offences(path: Path, tree: ast.AST) -> Iterator[str]:
    place = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        where = f"{place}:{call.lineno}"
        if not reads_text(call) or (names_a_kernel_file(call) and writes(call)):
            continue
        if path != HELPER and not place.startswith(WITHOUT_MATRIX) and names_a_kernel_file(call):
            yield f"{where} reads a file of the kernel without kernel_text"
        if "errors" not in keywords(call) and place not in OUR_OWN_JSON and not place.startswith(OURS):
            yield f"{where} decodes or encodes strictly: name errors=, or use kernel_text"


def keywords(call: ast.Call) -> set[str | None]:
    return {keyword.arg for keyword in call.keywords}


def reads_text(call: ast.Call) -> bool:
    """Text that comes from outside, or that goes to a file."""
    function = call.func
    if isinstance(function, ast.Name):
        return function.id == "open" and is_text_mode(call, mode_at=1)
    if not isinstance(function, ast.Attribute):
        return False
    on_text_of_a_distribution = function.attr == "read_text" and bool(call.args)  # importlib.metadata: read_text("RECORD")
    if function.attr == "read_text":
        return not on_text_of_a_distribution
    if function.attr == "decode":
        return not call.args and "errors" not in keywords(call)
    if function.attr == "open":
        return is_text_mode(call, mode_at=0) and not is_of_an_archive(call)
    return any(keyword.arg in ("text", "universal_newlines") and is_true(keyword.value) for keyword in call.keywords)


def is_of_an_archive(call: ast.Call) -> bool:
    """True for `entry.open()` and `packed.open(name, "w")`, which give bytes."""
    return isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id in ("entry", "packed")


def is_text_mode(call: ast.Call, mode_at: int) -> bool:
    given = [keyword.value for keyword in call.keywords if keyword.arg == "mode"] + call.args[mode_at : mode_at + 1]
    if not given:
        return mode_at == 1 or not call.args  # X.open(name) is an archive's, or the operating system's
    return isinstance(given[0], ast.Constant) and isinstance(given[0].value, str) and "b" not in given[0].value and len(given[0].value) < 4


def is_true(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is True


def names_a_kernel_file(call: ast.Call) -> bool:
    words = [node.value for node in ast.walk(call) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return any(word.startswith(KERNEL_PLACES) or word.rpartition("/")[2] in KERNEL_FILES for word in words)


def writes(call: ast.Call) -> bool:
    return any(isinstance(each, ast.Constant) and each.value in ("w", "a") for each in call.args)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_decodes_strictly_or_reads_kernel_text_on_its_own(path: Path) -> None:
    assert list(offences(path, ast.parse(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize(
    "line",
    [
        'Path(f"/proc/{pid}/comm").read_text()',
        'Path(f"/proc/{pid}/comm").read_text(errors="replace")',
        '(folder / "stat").read_text(errors="replace")',
        'open(f"/proc/{pid}/stat")',
        'open("/sys/kernel/mm", encoding="utf-8", errors="replace")',
        "path.read_text()",
        'path.open("a", encoding="utf-8")',
        "path.open()",
        "subprocess.run(argv, capture_output=True, text=True)",
        "done.stdout.decode()",
    ],
)
def test_each_way_to_decode_strictly_is_seen(line: str) -> None:
    assert list(offences(ROOT / "matrix" / "some.py", ast.parse(line)))


@pytest.mark.parametrize(
    "line",
    [
        'kernel_text("/proc/self/maps")',
        'path.open("rb")',
        'archive.open("name.txt")',
        'os.open("/proc/1/stat", os.O_RDONLY)',
        "exit.decode(1)",
    ],
)
def test_what_decodes_nothing_is_no_offence(line: str) -> None:
    assert list(offences(ROOT / "matrix" / "some.py", ast.parse(line))) == []
