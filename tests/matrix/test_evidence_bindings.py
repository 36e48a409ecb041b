"""Libraries that are really bound in a process that really crashed, and files that processes really share."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from matrix.evidence import cores
from tests.matrix.conftest import Observe

WHY_NOT = cores.plan(Path.cwd()).why_not
needs_cores = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")

FIRST = "long table(long at) { return at + 1; }"
SECOND = "static long rows[8]; long *table(long at) { return rows + (at & 7); } long look(long at) { return *table(at); }"
USES = "long *table(long at); long look(long at) { return *table(at); }"


def library(folder: Path, name: str, text: str, *options: str) -> Path:
    source, target = folder / f"{name}.c", folder / f"lib{name}.so"
    source.write_text(text)
    subprocess.run(["cc", "-shared", "-fPIC", "-O0", "-w", str(source), "-o", str(target), *options], check=True)
    return target


def crash(observe: Observe, *paths: Path) -> list[tuple[str, str, str, bool, list[str]]]:
    load = "; ".join(f"l = ctypes.CDLL({str(path)!r}, mode=ctypes.RTLD_GLOBAL)" for path in paths)
    seen = observe(f"import ctypes; {load}; l.look(5)", stacks=True)
    assert seen.exit.signal == "SIGSEGV"
    return [(b.symbol, Path(b.user).name, Path(b.to).name, b.own, b.others) for b in seen.bindings or ()]


@needs_cores
@needs_cc
def test_a_name_that_the_library_defines_itself_and_gets_from_one_that_was_loaded_before(observe: Observe, tmp_path: Path) -> None:
    first, second = library(tmp_path, "first", FIRST), library(tmp_path, "second", SECOND)
    assert crash(observe, first, second) == [("table", "libsecond.so", "libfirst.so", True, [])]


@needs_cores
@needs_cc
def test_a_name_that_is_needed_and_defined_twice_names_the_one_that_was_taken_and_the_other(observe: Observe, tmp_path: Path) -> None:
    first, second, uses = (library(tmp_path, name, text) for name, text in (("first", FIRST), ("second", SECOND), ("uses", USES)))
    assert ("table", "libuses.so", "libfirst.so", False, ["libsecond.so"]) in crash(observe, first, second, uses)


@needs_cores
@needs_cc
def test_a_crash_in_a_library_that_uses_nothing_of_others_has_no_bindings(observe: Observe, tmp_path: Path) -> None:
    alone = library(tmp_path, "alone", "long look(long at) { return *(long *)at; }")
    assert crash(observe, alone) == []


READERS = """
import os, sys, time
path = sys.argv[1]
def read():
    handle = open(path, "rb", buffering=0) if sys.argv[2] == "own" else shared
    for at in range(200):
        handle.seek((os.getpid() + 7 * at) % 1000); handle.read(512); time.sleep(0.01)
    os._exit(0)
shared = open(path, "rb", buffering=0)
children = []
for _ in range(2):
    if (pid := os.fork()) == 0:
        read()
    children.append(pid)
if sys.argv[2] == "own":
    shared.close()
for pid in children:
    os.waitpid(pid, 0)
"""


@pytest.mark.parametrize("how", ["one", "own"])
def test_files_are_told_that_forked_processes_read_by_one_position_or_each_by_its_own(observe: Observe, tmp_path: Path, how: str) -> None:
    data = tmp_path / "rows.bin"
    data.write_bytes(bytes(4096))
    (tmp_path / "readers.py").write_text(READERS)
    seen = observe([sys.executable, str(tmp_path / "readers.py"), str(data), how])
    found = {(file.own, file.moved) for file in seen.shared_files if file.path == str(data)}
    assert (how == "own", True) in found
    assert all(own == (how == "own") for own, moved in found if moved)


MOVES = """
import ctypes, mmap, time
kept = mmap.mmap(-1, 1 << 24)
address = ctypes.addressof(ctypes.c_char.from_buffer(kept)) + (1 << 20) + 8
print("step 1", flush=True); time.sleep(1.5)
libc = ctypes.CDLL(None); libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.munmap(address - (1 << 20) - 8, 1 << 24)
ctypes.string_at(address + {more})
"""


@needs_cores
@pytest.mark.parametrize(("more", "was"), [("0", True), ("-(1 << 44)", False)], ids=["given back", "never there"])
def test_memory_that_was_at_the_address_before_is_told_from_memory_that_never_was(observe: Observe, more: str, was: bool) -> None:
    seen = observe(MOVES.replace("{more}", more))
    (fault,) = [each for each in seen.faults if each.source == "core"]
    assert (fault.mapping, fault.was_mapped) == ("nothing", was)
