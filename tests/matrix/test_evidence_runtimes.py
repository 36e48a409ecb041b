"""The census, the core's notes and the registrations of real runtimes in real processes."""

from __future__ import annotations

import importlib.metadata
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from matrix.evidence import runtimes
from matrix.evidence.core_notes import read_core
from matrix.records import Library, OmpRegistration

CHILDREN = Path(__file__).parents[1] / "children"
CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
CORE_BYTES = 1 << 20
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, ELF files and Linux cores")
needs_core = pytest.mark.skipif(
    not CORE_PATTERN.exists() or CORE_PATTERN.read_text().strip() != "core", reason="cores do not go to the working folder here"
)


@pytest.fixture(scope="module")
def libiomp5() -> Path:
    """The real LLVM/Intel runtime."""
    try:
        files = importlib.metadata.files("intel-openmp") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("the intel-openmp wheel is not installed")
    for file in files:
        if file.name == "libiomp5.so":
            return Path(str(file.locate())).resolve()
    pytest.skip("the intel-openmp wheel has no libiomp5.so for this platform")


@pytest.fixture
def two_copies(libiomp5: Path, tmp_path: Path) -> list[Path]:
    copies = [tmp_path / "a" / "libiomp5.so", tmp_path / "b" / "renamed-0a1b.so"]
    for copy in copies:
        copy.parent.mkdir()
        shutil.copy(libiomp5, copy)
    return copies


def start(folder: Path, *argv: str | Path) -> subprocess.Popen[bytes]:
    """A child with a small core limit and one thread, in a folder of its own."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CORE, (CORE_BYTES, CORE_BYTES))

    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen([sys.executable, *map(str, argv)], cwd=folder, env=env, preexec_fn=limit, stderr=subprocess.PIPE)


def build(folder: Path, name: str, source: str, *options: str) -> Path:
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    (folder / f"{name}.c").write_text(source)
    subprocess.run(["gcc", "-shared", "-fPIC", *options, str(folder / f"{name}.c"), "-o", str(folder / name)], check=True)
    return folder / name


def maps_line(path: Path) -> str:
    return f"7f0000000000-7f0000001000 r-xp 00000000 08:01 {path.stat().st_ino} {path}\n"


# ------------------------------------------------------------------ census
def test_a_runtime_is_told_by_its_symbols_whatever_its_name(two_copies: list[Path]) -> None:
    libraries = runtimes.census("".join(map(maps_line, two_copies)), pid=7, seen="core")
    assert [(library.pid, library.path, library.family, library.seen) for library in libraries] == [
        (7, str(path), "openmp-llvm", "core") for path in two_copies
    ]


def test_a_library_that_only_imports_or_hides_the_symbol_is_no_runtime(tmp_path: Path) -> None:
    imports = "void __kmpc_fork_call(); void f() { __kmpc_fork_call(); }"
    importer = build(tmp_path, "importer.so", imports)
    hidden = build(tmp_path, "hidden.so", "void __kmpc_fork_call() {} void f() { __kmpc_fork_call(); }", "-fvisibility=hidden")
    exporter = build(tmp_path, "exporter.so", "void __kmpc_fork_call() {} void GOMP_parallel() {}", "-Wl,--build-id=0xabcdef")
    old_hash = build(tmp_path, "old.so", f"void GOMP_parallel() {{}} {imports}", "-Wl,--hash-style=sysv")
    libraries = runtimes.census("".join(map(maps_line, (importer, hidden, exporter, old_hash))), pid=1, seen="exit")
    assert [(Path(library.path).name, library.family, library.build_id) for library in libraries] == [
        ("exporter.so", "openmp-llvm", "abcdef"),
        ("old.so", "openmp-gnu", libraries[1].build_id),
    ]


@pytest.mark.slow
def test_the_runtimes_of_torch_and_faiss_are_found_with_their_wheels() -> None:
    code = "import faiss, torch; print(open('/proc/self/maps').read())"
    maps = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    found = {(library.family, (library.owner or "").partition(" ")[0]) for library in runtimes.census(maps, pid=1, seen="sampled")}
    assert ("openmp-gnu", "faiss_cpu") in found
    assert ("blas-openblas", "faiss_cpu") in found
    assert {family for family, wheel in found if wheel == "torch"} & {"openmp-gnu", "openmp-llvm"}


def test_a_library_in_the_prefix_belongs_to_the_wheel_that_put_it_there(libiomp5: Path) -> None:
    (library,) = runtimes.census(maps_line(libiomp5), pid=1, seen="exit")
    assert (library.owner or "").startswith("intel_openmp ")


def test_a_library_that_was_deleted_is_still_read_from_a_living_process(two_copies: list[Path], tmp_path: Path) -> None:
    code = "import ctypes, sys, os; ctypes.CDLL(sys.argv[1]); os.unlink(sys.argv[1]); print(1, flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code, str(two_copies[0])], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout
    child.stdout.readline()
    libraries = runtimes.census(Path(f"/proc/{child.pid}/maps").read_text(), pid=child.pid, seen="sampled")
    child.communicate()
    assert [library.path for library in libraries if library.family == "openmp-llvm"] == [f"{two_copies[0]} (deleted)"]


def test_lines_that_are_no_files_or_hold_no_code_are_passed_over(libiomp5: Path) -> None:
    data = maps_line(libiomp5).replace("r-xp", "r--p")
    other = "7ff0-7ff1 rwxp 0 00:00 0 \n7ff2-7ff3 r-xp 0 00:00 0 [vdso]\n7ff4-7ff5 r-xp 0 00:05 9 /memfd:x (deleted)\nnonsense\n"
    assert runtimes.census(data + other + maps_line(Path(__file__)), pid=1, seen="exit") == []


def test_copies_are_duplicates_and_links_are_not(two_copies: list[Path], tmp_path: Path) -> None:
    link = tmp_path / "link.so"
    link.hardlink_to(two_copies[0])
    linked = runtimes.census(maps_line(two_copies[0]) + maps_line(link), pid=1, seen="core")
    copied = runtimes.census("".join(map(maps_line, two_copies)), pid=1, seen="core")
    elsewhere = runtimes.census(maps_line(two_copies[1]), pid=2, seen="core")
    assert len(linked) == 2
    assert runtimes.duplicates(linked) == []
    assert runtimes.duplicates(copied[:1] + elsewhere) == []
    assert runtimes.duplicates(copied) == [copied]


def test_two_runtimes_that_do_not_register_are_no_duplicates() -> None:
    gnu = [Library(pid=1, path=f"/{name}", family="openmp-gnu", inode=name) for name in "ab"]
    assert runtimes.duplicates(gnu) == []


# ------------------------------------------------------------------ at the moment of death
@needs_core
@pytest.mark.parametrize("imports", [[], pytest.param(["--torch"], marks=pytest.mark.slow)], ids=["small", "torch and faiss"])
def test_a_small_core_shows_the_runtime_that_was_loaded_just_before_the_abort(
    two_copies: list[Path], tmp_path: Path, imports: list[str]
) -> None:
    child = start(tmp_path, CHILDREN / "uses_openmp_runtimes.py", *imports, *two_copies)
    _, stderr = child.communicate()
    assert b"OMP: Error #15" in stderr
    core = tmp_path / "core"
    assert core.stat().st_blocks * 512 <= CORE_BYTES + (64 << 10)  # its apparent size counts holes too
    found = read_core(core)
    assert found and found.pid == child.pid
    (group,) = runtimes.duplicates(runtimes.census(found.maps, pid=child.pid, seen="core"))
    assert sorted(library.path for library in group) == sorted(map(str, two_copies))
    assert runtimes.registrations({child.pid}) == [OmpRegistration(pid=child.pid, library="libiomp5.so")]
    runtimes.remove_registrations({child.pid})
    assert runtimes.registrations({child.pid}) == []


@needs_core
def test_inodes_of_a_core_agree_with_the_memory_map(libiomp5: Path, tmp_path: Path) -> None:
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]); print(open('/proc/self/maps').read(), flush=True); ctypes.string_at(0)"
    child = subprocess.run(
        [sys.executable, "-c", code, libiomp5],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CORE, (CORE_BYTES, CORE_BYTES)),
    )
    found = read_core(tmp_path / "core")
    assert found
    from_core = runtimes.census(found.maps, pid=1, seen="core")
    assert from_core == runtimes.census(child.stdout, pid=1, seen="core")
    assert [library.path for library in from_core] == [str(libiomp5)]


@needs_core
def test_a_core_names_its_threads_with_the_dead_one_first(tmp_path: Path) -> None:
    child = start(tmp_path, CHILDREN / "segfaults_in_a_thread.py")
    child.communicate()
    notes = read_core(tmp_path / "core")
    assert notes and notes.pid == child.pid
    assert len(notes.threads) == 2
    assert notes.threads[0] != child.pid
    assert child.pid in notes.threads


@needs_core
def test_a_core_that_was_cut_off_within_its_notes_is_none(tmp_path: Path) -> None:
    child = start(tmp_path, CHILDREN / "segfaults_in_a_thread.py")
    child.communicate()
    whole = (tmp_path / "core").read_bytes()
    assert read_core(tmp_path / "core")
    for size in (0, 3, 60, 1000, 4096):
        (tmp_path / "core").write_bytes(whole[:size])
        assert read_core(tmp_path / "core") is None


def test_a_file_that_is_no_core_is_none(tmp_path: Path) -> None:
    assert read_core(Path(sys.executable)) is None
    assert read_core(Path(__file__)) is None
    assert read_core(tmp_path / "absent") is None


# ------------------------------------------------------------------ registrations
def test_a_registration_of_a_living_process_is_left_alone(libiomp5: Path) -> None:
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).omp_get_max_threads(); print(1, flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code, str(libiomp5)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout
    child.stdout.readline()
    runtimes.remove_registrations({child.pid})
    assert runtimes.registrations({child.pid}) == [OmpRegistration(pid=child.pid, library="libiomp5.so")]
    child.kill()
    child.communicate()
    assert runtimes.registrations({child.pid}) != []
    runtimes.remove_registrations({child.pid})
    assert runtimes.registrations({child.pid}) == []


def test_registrations_of_other_processes_are_never_touched(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    mine, other, broken = (tmp_path / f"__KMP_REGISTERED_LIB_{name}" for name in (f"{dead.pid}_0", "1_0", f"{dead.pid}_x"))
    for path in (mine, other, broken):
        path.write_bytes(b"0x7f00-cafe01-libomp.so.5" + bytes(900))
    assert runtimes.registrations({dead.pid}, tmp_path) == [OmpRegistration(pid=dead.pid, library="libomp.so.5")]
    runtimes.remove_registrations({dead.pid}, tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([other, broken])
