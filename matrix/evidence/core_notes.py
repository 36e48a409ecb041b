"""The notes of an ELF core: which process, which threads, and every file that was mapped at the moment of death.

The kernel writes header, program headers and notes before any memory, and cuts the file off at RLIMIT_CORE.  For a
process with torch and faiss (400 mappings) the list of files was complete after 60 KB and all notes of one thread
after 64 KB; each further thread adds 3.4 KB, each mapping 150 bytes.  The kernel leaves the list out when it would
be longer than 4 MiB (kernel.core_file_note_size_limit), and headers of 65,530 mappings take as much: 9 MiB always suffice.
"""

from __future__ import annotations

import dataclasses
import os
import struct
from collections.abc import Iterator
from pathlib import Path

FIRST_BYTES, READ_BYTES = 1 << 18, 16 << 20
PT_LOAD, PT_NOTE = 1, 4
NT_PRSTATUS, NT_PRPSINFO, NT_FILE = 1, 3, 0x46494C45
PRSTATUS_PID, PRPSINFO_PID = 32, 24  # offsets in the 64-bit structures
DELETED = " (deleted)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoreNotes:
    pid: int
    threads: tuple[int, ...]  # thread ids, the one that died first; the kernel log names these
    maps: str  # as in /proc/PID/maps, files only; device and inode are those of the path now, 0 when it is gone
    # "" where the kernel left the list out, for it would have been longer than the kernel allows
    mappings: int | None = None  # of all kinds, as the kernel counts them against vm.max_map_count


def read_core(core: Path) -> CoreNotes | None:
    """What the notes say; None when it is not a 64-bit ELF core, or when it was cut off within its notes."""
    try:
        with core.open("rb") as source:
            data = source.read(FIRST_BYTES)
            return _parse(data + source.read(max(0, min(_end_of_notes(data), READ_BYTES) - len(data))))
    except (OSError, struct.error, UnicodeError):
        return None


def pid_of(core: Path) -> int | None:
    """Return the process that a core is of, also where its notes were cut off later; None: it is no core, or does not say."""
    try:
        with core.open("rb") as source:
            data = source.read(FIRST_BYTES)
            data += source.read(max(0, min(_end_of_notes(data), READ_BYTES) - len(data)))
        return _parts(data)[0]
    except (OSError, struct.error, UnicodeError):
        return None


def _end_of_notes(data: bytes) -> int:
    """How far into the file they go, as far as the program headers that were read tell it."""
    if data[:4] != b"\x7fELF" or data[4:5] != b"\x02":
        return 0
    return max((at + size for kind, _, at, _, size in _program_headers(data, "<" if data[5] == 1 else ">") if kind == PT_NOTE), default=0)


def _parse(data: bytes) -> CoreNotes | None:
    pid, threads, maps = _parts(data)
    if maps is None and 0 < _end_of_notes(data) <= len(data):
        maps = ""
    if pid is None or maps is None:
        return None
    (segments,) = struct.unpack_from(("<" if data[5] == 1 else ">") + "H", data, 56)  # one is that of the notes; 0xFFFF: that or more
    return CoreNotes(pid=pid, threads=tuple(threads), maps=maps, mappings=segments - 1)


def _parts(data: bytes) -> tuple[int | None, list[int], str | None]:
    """Return the process, its threads and its files, as far as the notes that are there tell them."""
    if data[:4] != b"\x7fELF" or data[4:5] != b"\x02":
        return None, [], None
    order = "<" if data[5] == 1 else ">"
    headers = list(_program_headers(data, order))
    executable = {address: flags for kind, flags, _, address, _ in headers if kind == PT_LOAD}
    pid, threads, maps = None, list[int](), None
    for kind, _, offset, _, size in headers:
        for note, body in _notes(data, order, offset, size) if kind == PT_NOTE else ():
            if note == NT_PRSTATUS:
                threads += struct.unpack_from(order + "i", body, PRSTATUS_PID)
            elif note == NT_PRPSINFO:
                (pid,) = struct.unpack_from(order + "i", body, PRPSINFO_PID)
            elif note == NT_FILE:
                maps = _maps(body, order, executable)
    return pid, threads, maps


def _program_headers(data: bytes, order: str) -> Iterator[tuple[int, int, int, int, int]]:
    """(type, flags, offset, address, size in the file) of every segment."""
    (start,) = struct.unpack_from(order + "Q", data, 32)
    size, count = struct.unpack_from(order + "HH", data, 54)
    if count == 0xFFFF:  # more than fit: the number is in the first section header, behind everything
        count = (READ_BYTES - start) // max(1, size)
    for at in range(count):
        try:
            kind, flags, offset, address, _, length, _, _ = struct.unpack_from(order + "IIQQQQQQ", data, start + at * size)
        except (struct.error, OverflowError):  # they lie behind the end of any file
            return
        yield kind, flags, offset, address, length


def _notes(data: bytes, order: str, at: int, size: int) -> Iterator[tuple[int, bytes]]:
    """(type, content) of the kernel's own complete notes."""
    end = min(at + size, len(data))
    while at + 12 <= end:
        name_size, body_size, kind = struct.unpack_from(order + "III", data, at)
        name = data[at + 12 : at + 12 + name_size]
        body = at + 12 + (name_size + 3) // 4 * 4
        if body + body_size > end:
            return
        if name == b"CORE\0":
            yield kind, data[body : body + body_size]
        at = body + (body_size + 3) // 4 * 4


def _maps(note: bytes, order: str, flags: dict[int, int]) -> str:
    """NT_FILE: a count, the page size, (start, end, offset in pages) of each, then as many names."""
    count, page = struct.unpack_from(order + "QQ", note, 0)
    names = note[16 + 24 * count :].split(b"\0")
    lines, known = [], dict[str, str]()
    for at in range(count):
        start, end, offset = struct.unpack_from(order + "QQQ", note, 16 + 24 * at)
        path = os.fsdecode(names[at])
        if path not in known:
            known[path] = _device_and_inode(path)
        lines.append(f"{start:x}-{end:x} {_permissions(flags.get(start, 0))} {offset * page:08x} {known[path]} {path}\n")
    return "".join(lines).encode("utf-8", "replace").decode()


def _permissions(flags: int) -> str:
    return "".join(letter if flags & bit else "-" for letter, bit in (("r", 4), ("w", 2), ("x", 1))) + "p"


def _device_and_inode(path: str) -> str:
    try:
        status = Path(path).stat()
    except (OSError, ValueError):
        return "00:00 0"
    return f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x} {status.st_ino}"
