"""The doctor's look into libraries: real runtimes in real virtual environments, and what a process does that loads them."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from matrix.doctor import elf
from matrix.doctor.native import askers, read, users
from tests.matrix.doctor_places import LINUX, Environment, compiled, look, make_environment, real_library, severities

pytestmark = pytest.mark.skipif(not LINUX, reason="reads ELF files")
USES_OPENMP = "int omp_get_max_threads(void); int use(void) { return omp_get_max_threads(); }"
LOADS = "import ctypes, sys; [ctypes.CDLL(path).use() for path in sys.argv[1:]]; print('survived')"


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return make_environment(tmp_path / "venv")


@pytest.fixture
def libiomp5() -> Path:
    return real_library("intel-openmp", "libiomp5.so")


def with_user(environment: Environment, name: str, runtime: bytes, file: str, *, importable: bool = True) -> Path:
    """A package with an OpenMP runtime and a library that asks for it, as wheels have them."""
    folder = environment.site / name
    folder.mkdir()
    (folder / file).write_bytes(runtime)
    user = compiled(folder, "_user.so", USES_OPENMP, f"-L{folder}", f"-l:{file}", "-Wl,-rpath,$ORIGIN")
    files = {f"{name}/{file}": folder.joinpath(file).read_bytes(), f"{name}/_user.so": user.read_bytes()}
    environment.add(name, "1.0", {**files, **({f"{name}/__init__.py": ""} if importable else {})})
    return user


def run_with(*libraries: Path) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("KMP_")}
    return run([sys.executable, "-c", LOADS, *map(str, libraries)], {**env, "OMP_NUM_THREADS": "1"})


def run(argv: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)
    stdout, stderr = child.communicate()
    Path(f"/dev/shm/__KMP_REGISTERED_LIB_{child.pid}_{os.getuid()}").unlink(missing_ok=True)  # an abort leaves it behind
    return subprocess.CompletedProcess(argv, child.returncode, stdout, stderr)


def test_two_llvm_runtimes_that_libraries_ask_for_by_their_own_names_are_an_error_and_do_abort(
    environment: Environment, libiomp5: Path
) -> None:
    runtime = libiomp5.read_bytes()
    first = with_user(environment, "first", runtime, "libiomp5.so")
    second = with_user(environment, "second", runtime.replace(b"libiomp5.so\0", b"libiomp6.so\0"), "libiomp6.so")
    [finding] = look("openmp-duplicate", environment.place())
    assert finding.severity == "error"
    assert "first 1.0, second 1.0" in finding.summary and len(finding.evidence) == 2
    ended = run_with(first, second)
    assert ended.returncode == -signal.SIGABRT and "Error #15" in ended.stderr


def test_two_copies_under_one_name_are_a_warning_and_do_not_abort_when_asked_for_by_name(environment: Environment, libiomp5: Path) -> None:
    first = with_user(environment, "first", libiomp5.read_bytes(), "libiomp5.so")
    second = with_user(environment, "second", libiomp5.read_bytes(), "libiomp5.so")
    assert severities("openmp-duplicate", environment.place()) == ["warning"]
    assert run_with(first, second).stdout == "survived\n"


def test_a_package_that_only_brings_libraries_asks_for_nothing_unless_one_that_is_imported_asks_for_them(
    environment: Environment, libiomp5: Path
) -> None:
    runtime = libiomp5.read_bytes()
    with_user(environment, "first", runtime, "libiomp5.so")
    brings = with_user(environment, "second", runtime.replace(b"libiomp5.so\0", b"libiomp6.so\0"), "libiomp6.so", importable=False)
    assert severities("openmp-duplicate", environment.place()) == ["warning"]
    uses = compiled(environment.folder, "uses.so", "int use(void); int f(void) { return use(); }", f"-L{brings.parent}", "-l:_user.so")
    environment.add("third", "1.0", {"third/__init__.py": "", "third/_uses.so": uses})
    place = environment.place()
    (second,) = (each for each in place.libraries if each.path.name == "libiomp6.so")
    assert [each.owner for each in askers(second, place.libraries)] == ["third 1.0"]
    assert severities("openmp-duplicate", place) == ["error"]


def test_one_runtime_that_is_linked_to_twice_is_no_duplicate(environment: Environment, libiomp5: Path) -> None:
    environment.add("one", "1.0", {"one/libiomp5.so": libiomp5})
    (environment.site / "two").mkdir()
    (environment.site / "two" / "libiomp5.so").symlink_to(environment.site / "one" / "libiomp5.so")
    environment.add("two", "1.0", {"two/__init__.py": ""})
    record = environment.site / "two-1.0.dist-info" / "RECORD"
    record.write_text(record.read_text() + "two/libiomp5.so,,\n")
    place = environment.place()
    assert len(place.of_family("openmp-llvm")) == 1
    assert look("openmp-duplicate", place) == []


def test_on_macos_every_package_loads_its_own_runtime_and_the_name_of_the_file_tells_it(environment: Environment) -> None:
    environment.add("torch", "2.0", {"torch/lib/libomp.dylib": b"\xcf\xfa\xed\xfe"})
    assert look("openmp-duplicate", environment.place(system="darwin")) == []
    environment.add("faiss-cpu", "1.7", {"faiss/.dylibs/libomp.dylib": b"\xcf\xfa\xed\xfe"})
    assert severities("openmp-duplicate", environment.place(system="darwin")) == ["warning"]


def test_gnu_and_llvm_together_are_worth_a_warning_only_when_another_package_asks_for_both(
    environment: Environment, libiomp5: Path
) -> None:
    environment.add("intel-openmp", "1.0", {"intel/libiomp5.so": libiomp5})
    assert look("openmp-mixed", environment.place()) == []
    environment.add("gnu", "1.0", {"gnu/libgomp-0a.so.1": real_library("faiss-cpu", "libgomp")})
    assert severities("openmp-mixed", environment.place()) == ["info"]
    user = compiled(environment.folder, "_user.so", USES_OPENMP, f"-L{environment.site}/intel", "-l:libiomp5.so")
    environment.add("user", "1.0", {"user/_user.so": user, "user/__init__.py": ""})
    [finding] = look("openmp-mixed", environment.place())
    assert finding.severity == "warning" and "asked for by user 1.0" in finding.summary


def test_copies_of_gnu_openmp_are_no_trap_but_for_forks_where_those_are_the_default(environment: Environment) -> None:
    gomp = real_library("faiss-cpu", "libgomp")
    assert look("openmp-fork", environment.place()) == []
    environment.add("a", "1.0", {"a/libgomp.so.1": gomp})
    assert look("openmp-copies", environment.place()) == []
    environment.add("b", "1.0", {"b.libs/libgomp-0a1b.so.1.0.0": gomp})
    place = environment.place()
    [finding] = look("openmp-copies", place)
    assert finding.severity == "info" and "2 copies of GNU OpenMP, the same build" in finding.summary
    old = dataclasses.replace(place, python=dataclasses.replace(place.python, version=(3, 11, 0)))
    new = dataclasses.replace(place, python=dataclasses.replace(place.python, version=(3, 14, 0)))
    assert severities("openmp-fork", old) == ["warning"]
    assert look("openmp-fork", new) == []


def blas(environment: Environment, name: str, version: str, *options: str) -> Path:
    source = f'int openblas_get_num_threads(void) {{ return 1; }} const char *told = "OpenBLAS {version} DYNAMIC_ARCH";'
    return compiled(environment.folder, f"{name}.so", source, *options)


def test_blas_copies_are_told_apart_by_version_and_threads(environment: Environment) -> None:
    environment.add("numpy", "2.4.0", {"numpy.libs/libopenblas.so": blas(environment, "a", "0.3.31")})
    assert look("blas-copies", environment.place()) == []
    assert look("openblas-fork-deadlock", environment.place()) == []
    environment.add(
        "scipy", "1.17.0", {"scipy.libs/libopenblas.so": blas(environment, "b", "0.3.30", "-Wl,--no-as-needed", "-l:libgomp.so.1")}
    )
    [finding] = look("blas-copies", environment.place())
    assert finding.summary == "2 BLAS libraries: OpenBLAS 0.3.31 (pthreads) in numpy 2.4.0; OpenBLAS 0.3.30 (OpenMP) in scipy 1.17.0"
    [finding] = look("openblas-fork-deadlock", environment.place())
    assert finding.severity == "info" and "scipy 1.17.0" in finding.summary


def test_an_allocator_is_one_by_what_it_exports(environment: Environment) -> None:
    uses = "void *mi_malloc(unsigned long); void *f(void) { return mi_malloc(1); }"
    environment.add("uses", "1.0", {"uses/_a.so": compiled(environment.folder, "uses.so", uses)})
    assert look("allocator-replaced", environment.place()) == []
    exports = "void *mi_malloc(unsigned long n) { return 0; }"
    environment.add("pyarrow", "9.0", {"pyarrow/libarrow.so.9": compiled(environment.folder, "has.so", exports)})
    [finding] = look("allocator-replaced", environment.place())
    assert "pyarrow 9.0 (mimalloc)" in finding.summary


def test_packages_that_set_thread_variables_on_import_are_named_with_the_line(environment: Environment, libiomp5: Path) -> None:
    environment.add("reads", "1.0", {"reads/__init__.py": "import os\nprint(os.environ.get('KMP_DUPLICATE_LIB_OK'))\n"})
    environment.add("broken", "1.0", {"broken.py": "os.environ['KMP_ = \n"})
    assert look("import-changes-environment", environment.place()) == []
    environment.add("hides", "1.0", {"hides.py": "import os\n\nos.environ.setdefault('KMP_DUPLICATE_LIB_OK', 'True')\n"})
    environment.add("one-thread", "2.0", {"one/__init__.py": "from os import environ\nenviron['OMP_NUM_THREADS'] = '1'\n"})
    [finding] = look("import-changes-environment", environment.place())
    assert finding.severity == "info"
    assert finding.summary == "on import hides sets KMP_DUPLICATE_LIB_OK; one-thread sets thread variables"
    assert [line.rpartition("/")[2] for line in finding.evidence] == [
        "hides.py:3 sets KMP_DUPLICATE_LIB_OK",
        "__init__.py:2 sets OMP_NUM_THREADS",
    ]
    for name in ("a", "b"):
        environment.add(name, "1.0", {f"{name}/libiomp5.so": libiomp5})
    assert severities("import-changes-environment", environment.place()) == ["warning"]


def test_packages_without_records_are_found_in_their_folder(environment: Environment) -> None:
    """As Debian installs them."""
    (environment.site / "old.egg-info").write_text("Metadata-Version: 1.1\nName: old\nVersion: 0.9\n")
    (environment.site / "old").mkdir()
    compiled(environment.site / "old", "_blas.so", "int openblas_get_num_threads(void) { return 1; }")
    [found] = environment.place().of_family("blas-openblas")
    assert found.owner == "old"


def test_a_runtime_that_no_package_ships_is_looked_for_where_the_loader_looks(environment: Environment, tmp_path: Path) -> None:
    gomp = compiled(tmp_path, "libgomp.so.1", "int GOMP_parallel(void) { return 1; }", "-Wl,-soname,libgomp.so.1")
    user = compiled(
        tmp_path, "user.so", "int GOMP_parallel(void); int f(void) { return GOMP_parallel(); }", f"-L{tmp_path}", "-l:libgomp.so.1"
    )
    environment.add("lightgbm", "4.0", {"lightgbm/lib_lightgbm.so": user})
    place = dataclasses.replace(environment.place(), environment={"LD_LIBRARY_PATH": str(tmp_path)})
    [found] = place.of_family("openmp-gnu")
    assert (found.path, found.owner) == (gomp, "system")


def test_what_a_library_asks_for_is_read_from_any_elf_file_and_nothing_else(tmp_path: Path) -> None:
    library = compiled(tmp_path, "named.so", "int f(void) { return 1; }", "-Wl,-soname,libnamed.so.3")
    assert elf.read(library).soname == "libnamed.so.3"
    torch = read(real_library("torch", "libtorch_cpu"), "torch")
    gomp = read(real_library("torch", "libgomp"), "torch")
    assert torch and gomp and users(gomp, [torch, gomp]) == [torch]
    whole, size_of_names = library.read_bytes(), (10).to_bytes(8, "little")
    words = [whole[at : at + 8] for at in range(0, len(whole), 8)]
    nameless = b"".join(b"\xff" * 8 if word == size_of_names else word for word in words)
    for content in (b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 200, b"#!/bin/sh\n", nameless):
        damaged = tmp_path / "damaged.so"
        damaged.write_bytes(content)
        with pytest.raises(elf.NotElf):
            elf.read(damaged)
        assert read(damaged, "x") is not None
    assert read(tmp_path / "missing.so", "x") is None


@pytest.mark.slow
def test_the_real_threadpoolctl_hides_the_abort_that_the_doctor_warns_of(environment: Environment, libiomp5: Path) -> None:
    """From the package index; the observer effect itself: the same script dies without its import and lives with it."""
    pip = [sys.executable, "-m", "pip", "--python", str(environment.python), "install", "-q", "--no-deps", "threadpoolctl"]
    if subprocess.run(pip, capture_output=True).returncode:
        pytest.skip("the package index is not reachable")
    runtime = libiomp5.read_bytes()
    first = with_user(environment, "first", runtime, "libiomp5.so")
    second = with_user(environment, "second", runtime.replace(b"libiomp5.so\0", b"libiomp6.so\0"), "libiomp6.so")
    [finding] = look("import-changes-environment", environment.place())
    assert finding.severity == "warning"
    assert "threadpoolctl sets KMP_DUPLICATE_LIB_OK and there are two runtimes" in finding.summary
    env = {name: value for name, value in os.environ.items() if not name.startswith("KMP_")}
    ends = [run([environment.python, "-c", start + LOADS, first, second], env).returncode for start in ("", "import threadpoolctl; ")]
    assert ends == [-signal.SIGABRT, 0]
