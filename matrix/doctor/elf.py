"""What a shared library asks for, from its dynamic section.

Own code, because pyelftools takes 4 ms a file, and an environment with torch has 500: they would be half of the doctor's time.
"""

from __future__ import annotations

import dataclasses
import mmap
import struct
from pathlib import Path

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NULL, DT_NEEDED, DT_STRTAB, DT_STRSZ, DT_SONAME = 0, 1, 5, 10, 14


class NotElf(ValueError):
    """Another kind of file, or one that is damaged."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Dynamic:
    soname: str  # "": it has none
    needed: tuple[str, ...]
    names: bytes  # the string table of its symbols: those that it defines and those that it uses


def read(path: Path) -> Dynamic:
    """Of a 64-bit little-endian ELF file (all Linux wheels but those for s390x).  Raises NotElf and OSError."""
    with path.open("rb") as source:
        if source.read(6) != b"\x7fELF\x02\x01":
            raise NotElf(f"{path} is no 64-bit little-endian ELF file")
        with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return _dynamic(data)
            except (struct.error, OverflowError, ValueError, KeyError) as problem:
                raise NotElf(f"{path}: {problem}") from problem


def _dynamic(data: mmap.mmap) -> Dynamic:
    offset, size, count = struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)
    segments = [struct.unpack_from("<IIQQQQ", data, offset + at * size) for at in range(count)]
    tags: dict[int, list[int]] = {}
    for kind, _, start, _, _, length in segments:
        if kind == PT_DYNAMIC:
            for at in range(start, start + length, 16):
                tag, value = struct.unpack_from("<QQ", data, at)
                if tag == DT_NULL:
                    break
                tags.setdefault(tag, []).append(value)
    if DT_STRTAB not in tags:
        return Dynamic(soname="", needed=(), names=b"")
    table = tags[DT_STRTAB][0]
    start = min(at + table - address for kind, _, at, address, _, length in segments if kind == PT_LOAD and 0 <= table - address < length)
    names = data[start : start + tags[DT_STRSZ][0]]

    def text(at: int) -> str:
        return names[at : names.index(b"\0", at)].decode("utf-8", "replace")

    soname = text(tags[DT_SONAME][0]) if DT_SONAME in tags else ""
    return Dynamic(soname=soname, needed=tuple(text(at) for at in tags.get(DT_NEEDED, ())), names=names)
