"""Which library each call between libraries leads to, of those in which a process crashed.

The loader binds a name to the first library that defines it.  Where two define one name, or another build stands in a library's place,
the caller gets code that it was not built for.  The files tell who defines and who needs a name; the core tells what was bound.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from matrix.evidence.core_image import CoreImage
from matrix.evidence.fault import Mapped, mappings
from matrix.records import Binding, Fault, Frame

C_AND_PYTHON = ("libc.so", "libc-", "libm.so", "libm-", "ld-linux", "libpthread", "libdl", "librt", "libutil", "libpython", "python")
SYSTEM = (*C_AND_PYTHON, "libstdc++", "libgcc_s", "libffi", "_ctypes")
MEANT_TO_BE_SHARED = "_ZT"  # C++: tables and names of types, of which a process has one
MOST_USERS, MOST_SYMBOLS, MOST_LIBRARIES, MOST = 3, 5000, 200, 16
LARGEST_BYTES = 64 << 20  # of a file whose names are all looked up


def bindings(core: Path, maps: str, fault: Fault | None, stack: Sequence[Frame]) -> list[Binding]:
    """Return how the libraries of a crash are bound, those with several definitions first."""
    with contextlib.suppress(OSError, ValueError), core.open("rb") as source:
        return _Process(CoreImage(source), mappings(maps)).bindings(fault, stack)
    return []


class _Process:
    """The mapped files of a process that crashed, opened when they are needed."""

    def __init__(self, image: CoreImage, files: list[Mapped]) -> None:
        self._image = image
        self._bases: dict[str, int] = {}
        for mapping in files:
            if mapping.offset == 0:
                self._bases.setdefault(mapping.path, mapping.start)
        coded = dict.fromkeys(mapping.path for mapping in files if mapping.code)
        self._files = files
        self._paths = [path for path in coded if path in self._bases][:MOST_LIBRARIES]
        self._tables: dict[str, Any] = {}

    def bindings(self, fault: Fault | None, stack: Sequence[Frame]) -> list[Binding]:
        found: dict[tuple[str, str, bool, tuple[str, ...]], Binding] = {}
        for user in self._users(fault, stack):
            for binding in self._of(user):
                found.setdefault((binding.user, binding.to, binding.own, tuple(binding.others)), binding)
        ordered = sorted(found.values(), key=lambda binding: (not binding.own, not binding.others))
        return ordered[:MOST]

    def _users(self, fault: Fault | None, stack: Sequence[Frame]) -> list[str]:
        """Return the libraries of the innermost frames; a frame with a source line has no library, so its name is looked for."""
        names = [fault.library] if fault and fault.library else []
        users = [path for path in self._paths if Path(path).name in names]
        for frame in stack:
            if frame.kind == "native" and not frame.library.startswith(SYSTEM):
                users += self._owners(frame)
        return [user for user in dict.fromkeys(users) if not _is_system(user)][:MOST_USERS]

    def _owners(self, frame: Frame) -> list[str]:
        if frame.library:
            return [path for path in self._paths if Path(path).name == frame.library]
        return [path for path in self._paths if frame.function and not _is_system(path) and self._defines(path, frame.function)]

    def _of(self, user: str) -> Iterator[Binding]:
        with _elf(user) as elf:
            if elf is None:
                return
            table = elf.get_section_by_name(".dynsym")
            bound = dict(self._bound(elf, table, self._bases[user])) if table else {}
            for symbol in table.iter_symbols() if table and table.num_symbols() <= MOST_SYMBOLS else ():
                if binding := self._binding(user, symbol, bound.get(symbol.name)):
                    yield binding

    def _binding(self, user: str, symbol: Any, bound: str | None) -> Binding | None:
        if not symbol.name or symbol.name.startswith(MEANT_TO_BE_SHARED) or symbol["st_info"]["bind"] != "STB_GLOBAL":
            return None
        own = symbol["st_shndx"] != "SHN_UNDEF"
        definers = [path for path in self._paths if path != user and self._defines(path, symbol.name)]
        to = bound or (definers[0] if len(definers) == 1 and not own else None)
        if to is None or to == user or to not in definers or all(map(_is_system, definers)):
            return None
        others = [Path(path).name for path in definers if path != to]
        return Binding(symbol=symbol.name, user=user, to=to, own=own, others=others)

    def _bound(self, elf: Any, table: Any, base: int) -> Iterator[tuple[str, str]]:
        """Yield (name, file that it was bound to) of each slot that the loader has filled."""
        for section in (".rela.plt", ".rela.dyn"):
            relocations = elf.get_section_by_name(section)
            for relocation in relocations.iter_relocations() if relocations else ():
                number = relocation["r_info_sym"]
                name = table.get_symbol(number).name if number else ""
                value = self._image.memory(base + relocation["r_offset"], 8) if name else b""
                if len(value) == 8 and (at := self._file_at(int.from_bytes(value, "little"))):
                    yield name, at

    def _file_at(self, address: int) -> str | None:
        return next((mapping.path for mapping in self._files if mapping.start <= address < mapping.end), None)

    def _defines(self, path: str, name: str) -> bool:
        if path not in self._tables:
            self._tables[path] = _lookup(path)
        return bool(self._tables[path](name))


def _is_system(path: str) -> bool:
    return Path(path).name.startswith(SYSTEM)


@contextlib.contextmanager
def _elf(path: str) -> Iterator[Any]:
    """Open an ELF file; None when it is gone, or none."""
    from elftools.common.exceptions import ELFError  # here: 0.1 s that only a crash needs
    from elftools.elf.elffile import ELFFile

    try:
        source = Path(path).open("rb")  # noqa: SIM115
    except OSError:
        yield None
        return
    with source:
        try:
            elf = ELFFile(source)
        except (ELFError, ValueError):
            elf = None
        yield elf


def _lookup(path: str) -> Callable[[str], bool]:
    """Return a function that tells whether a file defines a name that it lets others use."""
    names: set[str] = set()
    with contextlib.suppress(OSError), _elf(path) as elf:
        table = elf.get_section_by_name(".dynsym") if elf and Path(path).stat().st_size <= LARGEST_BYTES else None
        for symbol in table.iter_symbols() if table else ():
            if symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] in ("STB_GLOBAL", "STB_WEAK"):
                names.add(symbol.name)
    return names.__contains__
