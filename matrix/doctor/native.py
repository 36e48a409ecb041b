"""The shared libraries that are installed for an interpreter: their family, who ships them, and who asks for them."""

from __future__ import annotations

import dataclasses
import mmap
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from matrix.doctor import elf
from matrix.doctor.interpreter import Interpreter
from matrix.evidence.runtimes import FAMILIES, identify

SUFFIX = re.compile(r"\.(so(\.[\d.]+)?|dylib)$")
PACKAGE_FOLDERS = ("site-packages", "dist-packages")
WORDS = sorted({name.encode() for family in FAMILIES for name in family.any_of})
OPENBLAS_VERSION = re.compile(rb"OpenBLAS (\d+\.\d+\.\d+)")
# Where the names that no wheel ships are looked for; the loader's cache would tell more, in a format of its own.
SYSTEM_FOLDERS: tuple[str, ...] = (
    "/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
)
SYSTEM_FOLDERS += ("/usr/lib64", "/lib64", "/usr/lib", "/usr/local/lib")
OPENMP = re.compile(r"lib(gomp|i?omp5?)\b")
# Mach-O files are not read: there the file's name has to do.
BY_NAME = (
    (re.compile(r"lib(i?omp5?)\b"), "openmp-llvm"),
    (re.compile(r"libgomp"), "openmp-gnu"),
    (re.compile(r"openblas"), "blas-openblas"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Native:
    path: Path
    owner: str  # `torch 2.13.0`, `system`, or the folder's name
    soname: str = ""
    needed: tuple[str, ...] = ()
    families: tuple[str, ...] = ()
    build_id: str | None = None
    importable: bool = True  # its package has Python files; False: it only brings libraries for others

    @property
    def names(self) -> set[str]:
        """What others may ask for it by."""
        return {self.soname, self.path.name} - {""}


def libraries(python: Interpreter, search: Iterable[str] = ()) -> list[Native]:
    """Each file once.  `search`: folders that the loader looks into before its own (LD_LIBRARY_PATH)."""
    found: dict[Path, Native] = {}
    for path, owner, importable in _files(python):
        real = Path(os.path.realpath(path))  # a wheel may ship links
        if real not in found and (native := read(real, owner)):
            found[real] = dataclasses.replace(native, importable=importable)
    natives = list(found.values())
    return natives + list(_of_the_system(natives, [*search, *SYSTEM_FOLDERS]))


def read(path: Path, owner: str) -> Native | None:
    """None: no such file."""
    try:
        dynamic = elf.read(path)
    except elf.NotElf:
        families = tuple(family for name, family in BY_NAME if path.suffix == ".dylib" and name.match(path.name))
        return Native(path=path, owner=owner, families=families)
    except OSError:
        return None
    families, build_id = (), None
    if any(word in dynamic.names for word in WORDS):
        identity = identify(path)
        families, build_id = identity.families, identity.build_id
    return Native(path=path, owner=owner, soname=dynamic.soname, needed=dynamic.needed, families=families, build_id=build_id)


def users(of: Native, natives: Iterable[Native]) -> list[Native]:
    """Those that ask the loader for it by name, or for another copy of that name: the first that is loaded serves both.  What a program
    opens by path (ctypes) is not seen."""
    return [each for each in natives if each.path != of.path and of.names & set(each.needed)]


def askers(of: Native, natives: list[Native]) -> list[Native]:
    """Libraries of packages that can be imported and that ask for it, themselves or through libraries of others."""
    found: list[Native] = []
    todo, known = [of], {of.path}
    while todo:
        for user in users(todo.pop(), natives):
            if user.path not in known:
                known.add(user.path)
                (found if user.importable else todo).append(user)
    return found


def openblas_version(path: Path) -> tuple[int, ...] | None:
    """As the library itself says; wheels do not."""
    with path.open("rb") as source, mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
        told = OPENBLAS_VERSION.search(data)
        return tuple(map(int, told[1].split(b"."))) if told else None


def _files(python: Interpreter) -> Iterator[tuple[Path, str, bool]]:
    """Path, owner, whether that can be imported.  By the records of what is installed; folders whose packages have none (Debian's,
    conda's) are walked."""
    walk = set()
    for each in python.distributions:
        for path in each.native:
            yield path, f"{each.name} {each.version}", bool(each.tops)
        if not each.tags:
            walk |= {path for path in python.paths if Path(path).name in PACKAGE_FOLDERS}
    for top in sorted(walk):
        for folder, _, names in os.walk(top):
            owner = (*Path(folder).relative_to(top).parts, top)[0]
            yield from ((Path(folder, name), owner, True) for name in names if SUFFIX.search(name))
    prefix = Path(python.prefix)
    if (prefix / "conda-meta").is_dir():
        yield from ((path, "conda", False) for path in sorted((prefix / "lib").iterdir()) if SUFFIX.search(path.name))


def _of_the_system(natives: list[Native], folders: list[str]) -> Iterator[Native]:
    """OpenMP runtimes that installed libraries ask for and no package ships."""
    shipped = {name for each in natives for name in each.names}
    wanted = {name for each in natives for name in each.needed if OPENMP.match(name)} - shipped
    for name in sorted(wanted):
        for folder in folders:
            if folder and (path := Path(folder, name)).exists():
                if native := read(Path(os.path.realpath(path)), "system"):
                    yield native
                break
