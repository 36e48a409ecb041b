"""Native runtimes in a process: OpenMP, BLAS, allocators, GPU libraries, told apart by the symbols that they export.

File names say nothing: wheels rename their copies.  A library that only imports a symbol is not a runtime.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import psutil

from matrix.evidence.core_notes import DELETED
from matrix.evidence.owners import owner
from matrix.records import Library, OmpRegistration

__all__ = ["FAMILIES", "REGISTERING", "census", "duplicates", "identify", "registrations", "remove_registrations"]

SHM = Path("/dev/shm")
REGISTERING = "openmp-llvm"  # LLVM's and Intel's runtime: a second one in a process aborts with "OMP: Error #15"
REGISTRATION = re.compile(r"__KMP_REGISTERED_LIB_(?P<pid>\d+)_\d+")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Family:
    name: str
    any_of: tuple[str, ...]
    none_of: tuple[str, ...] = ()


OPENBLAS = tuple(f"{prefix}openblas_get_num_threads{suffix}" for prefix in ("", "scipy_") for suffix in ("", "64_"))
FAMILIES = (
    Family(name=REGISTERING, any_of=("__kmpc_fork_call",)),
    Family(name="openmp-gnu", any_of=("GOMP_parallel",), none_of=("__kmpc_fork_call",)),
    Family(name="blas-openblas", any_of=OPENBLAS),
    Family(name="blas-mkl", any_of=("mkl_get_max_threads", "MKL_Get_Max_Threads")),
    Family(name="blas-blis", any_of=("bli_thread_get_num_threads",)),
    Family(name="threads-tbb", any_of=("TBB_runtime_interface_version",)),
    Family(name="allocator-jemalloc", any_of=("mallctl", "je_mallctl")),
    Family(name="allocator-tcmalloc", any_of=("tc_malloc", "MallocExtension_ReleaseFreeMemory")),
    Family(name="allocator-mimalloc", any_of=("mi_malloc",)),
    Family(name="allocator-glibc-debug", any_of=("mcheck_check_all",), none_of=("printf",)),
    Family(name="sanitizer", any_of=("__asan_init", "__tsan_init")),
    Family(name="cuda-driver", any_of=("cuInit",)),
    Family(name="cuda-runtime", any_of=("cudaGetDeviceCount",)),
    Family(name="cuda-cublas", any_of=("cublasCreate_v2",)),
    Family(name="cuda-cudnn", any_of=("cudnnCreate",)),
    Family(name="cuda-nccl", any_of=("ncclAllReduce",)),
    Family(name="mpi", any_of=("MPI_Init",)),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mapped:
    """A file with executable pages in a process."""

    path: str  # ends with " (deleted)" when it was replaced or removed since
    start: str  # "7f00-7f10", the name of the mapping in /proc/PID/map_files
    inode: str  # "major:minor:inode"; "" when unknown


@dataclasses.dataclass(frozen=True, kw_only=True)
class Identity:
    """What a file on disk is."""

    families: tuple[str, ...] = ()
    build_id: str | None = None


_known: dict[tuple[int, int, int, int], Identity] = {}  # by device, inode, size and time of change


def census(maps: str, *, pid: int, seen: Literal["core", "exit", "sampled"]) -> list[Library]:
    """The libraries of known families in the text of a /proc/PID/maps; a file of two families is listed twice.

    The first census of a torch + faiss process took 0.5 s (71 files), later ones 4 ms: files are read once.
    """
    libraries = []
    for mapped in _executable_files(maps):
        identity = _identify(pid, mapped)
        path = mapped.path.removesuffix(DELETED)
        libraries += [
            Library(pid=pid, path=mapped.path, family=family, build_id=identity.build_id, inode=mapped.inode, owner=owner(path), seen=seen)
            for family in identity.families
        ]
    return libraries


def files(maps: str) -> list[str]:
    """The paths of all files with executable pages in the text of a /proc/PID/maps, in the order of their addresses."""
    return list(dict.fromkeys(mapped.path for mapped in _executable_files(maps)))


def duplicates(libraries: list[Library]) -> list[list[Library]]:
    """Groups of two or more different runtimes of one process that refuse each other: copies under other paths count, links do not."""
    groups: dict[int, dict[str, Library]] = {}
    for library in libraries:
        if library.family == REGISTERING:
            groups.setdefault(library.pid, {}).setdefault(library.inode or library.path, library)
    return [list(group.values()) for group in groups.values() if len(group) > 1]


# ------------------------------------------------------------------ what a file is
def _executable_files(maps: str) -> Iterator[Mapped]:
    seen = set()
    for line in maps.splitlines():
        fields = line.split(None, 5)
        if len(fields) < 6 or "x" not in fields[1] or not fields[5].startswith("/") or fields[5].startswith(("/dev/", "/memfd:")):
            continue
        inode = "" if fields[4] == "0" else f"{fields[3]}:{fields[4]}"
        if (inode, fields[5]) not in seen:
            seen.add((inode, fields[5]))
            yield Mapped(path=fields[5], start=fields[0], inode=inode)


def _identify(pid: int, mapped: Mapped) -> Identity:
    path = Path(mapped.path)
    if mapped.path.endswith(DELETED):  # only a living process can still show it
        path = Path(f"/proc/{pid}/map_files/{mapped.start}")
    try:
        status = path.stat()
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in _known:
            _known[key] = identify(path)
        return _known[key]
    except (OSError, ValueError):  # no such file, or no name that a file can have
        return Identity()


def identify(path: Path) -> Identity:
    """What a file is by its exported symbols, looked up by hash: libtorch exports hundreds of thousands.  Raises OSError."""
    from elftools.common.exceptions import ELFError  # here: 0.1 s that only a census needs
    from elftools.elf.elffile import ELFFile

    with path.open("rb") as source:
        try:
            elf = ELFFile(source)
            table = elf.get_section_by_name(".gnu.hash") or elf.get_section_by_name(".hash")
            families = tuple(family.name for family in FAMILIES if _exports(table, family)) if table else ()
            return Identity(families=families, build_id=_build_id(elf) if families else None)
        except (ELFError, ValueError, KeyError):
            return Identity()


def _exports(table: Any, family: Family) -> bool:
    return any(_defines(table, name) for name in family.any_of) and not any(_defines(table, name) for name in family.none_of)


def _defines(table: Any, name: str) -> bool:
    symbol = table.get_symbol(name)
    return symbol is not None and symbol["st_shndx"] != "SHN_UNDEF"


def _build_id(elf: Any) -> str | None:
    section = elf.get_section_by_name(".note.gnu.build-id")
    for note in section.iter_notes() if section else ():
        if note["n_type"] == "NT_GNU_BUILD_ID":
            return str(note["n_desc"])
    return None


# ------------------------------------------------------------------ what a runtime leaves behind
def registrations(pids: set[int], shm: Path = SHM) -> list[OmpRegistration]:
    """Which LLVM/Intel OpenMP runtime was the first one in each of these processes; the note survives SIGABRT and SIGKILL.

    Its text is `address-flag-library`, filled up with zeros (kmp_runtime.cpp, __kmp_register_library_startup).
    """
    found = []
    for pid, path in _registration_files(pids, shm):
        with contextlib.suppress(OSError):
            words = path.read_bytes().partition(b"\0")[0].decode("utf-8", "replace").strip().split("-", 2)
            if len(words) == 3:
                found.append(OmpRegistration(pid=pid, library=words[2]))
    return found


def remove_registrations(pids: set[int], shm: Path = SHM) -> None:
    """Remove what dead processes of ours left there; one that lives still needs its own."""
    for pid, path in _registration_files(pids, shm):
        if not _alive(pid):
            with contextlib.suppress(OSError):
                path.unlink()


def _registration_files(pids: set[int], shm: Path) -> Iterator[tuple[int, Path]]:
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = [name for name in os.listdir(shm) if name.startswith("__KMP")]  # noqa: PTH208 - a fifth of the time, at every attempt's end
    for found in filter(None, map(REGISTRATION.fullmatch, sorted(names))):
        if int(found["pid"]) in pids:
            yield int(found["pid"]), shm / found[0]


def _alive(pid: int) -> bool:
    """A zombie is dead: it only waits until somebody reads its status."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
