"""The memory, the registers and the signal in a core of x86-64: what the instruction that died could not reach.

A handler that raises the signal again (faulthandler's) leaves its own registers in the core and the pid in place of the
address.  What it interrupted lies on its stack, in the frame that the kernel made for it, and is found there by its form.
"""

from __future__ import annotations

import dataclasses
import os
import struct
from collections.abc import Iterator
from typing import BinaryIO

X86_64 = 62
PT_LOAD, PT_NOTE = 1, 4
NT_PRSTATUS, NT_AUXV, NT_SIGINFO = 1, 6, 0x53494749
AT_EXECFN = 31  # its address is in the main thread's stack
CURSIG = 12  # in a prstatus
RIP, RSP = 112 + 16 * 8, 112 + 19 * 8  # in a prstatus
MOST_HEADERS = 1 << 20
SEARCHED_BYTES = 128 << 10  # a handler's own frames are smaller
# rt_sigframe: return address, uc_flags, uc_link, uc_stack (24 bytes), then 23 registers.
FRAME_REGISTERS, FRAME_BYTES = 8 + 8 + 8 + 24, 8 + 8 + 8 + 24 + 23 * 8
# Their order in a prstatus and in a signal frame, as numbers of an instruction's encoding (0 rax, 1 rcx, 2 rdx, 3 rbx, 4 rsp, ...).
IN_PRSTATUS = {0: 15, 1: 14, 2: 13, 3: 12, 4: 5, 5: 3, 6: 11, 7: 10, 8: 9, 9: 8, 10: 0, 11: 1, 12: 2, 13: 6, 14: 7, 19: 4}
IN_FRAME = {0: 8, 1: 9, 2: 10, 3: 11, 4: 12, 5: 13, 6: 14, 7: 15, 8: 7, 9: 6, 10: 5, 11: 3, 12: 2, 13: 0, 14: 1, 15: 4}
REG_RSP, REG_RIP, REG_CS, REG_ERROR, REG_TRAP, REG_CR2 = 15, 16, 18, 19, 20, 22
USER_CS, PAGE_FAULT = 0x33, 14
RAISES = {0: (8,), 3: (5,), 6: (4,), 13: (11,), PAGE_FAULT: (7, 11), 17: (7,), 19: (8,)}  # signals by the processor's number of the trap
FAULTS = (4, 5, 7, 8, 11)  # ILL, TRAP, BUS, FPE, SEGV
SI_KERNEL = 0x80


@dataclasses.dataclass(frozen=True, kw_only=True)
class Segment:
    start: int
    end: int
    readable: bool
    writable: bool
    executable: bool
    offset: int  # in the core
    size: int  # bytes in the core; fewer than the mapping has where it was not written or cut off


@dataclasses.dataclass(frozen=True, kw_only=True)
class Interrupted:
    """What ran when the fault came."""

    tid: int
    signal: int
    address: int
    ip: int
    sp: int
    si_code: int | None = None  # None: the registers are from a signal frame
    trap: int | None = None  # the processor's number of it, and its error code; None: only a signal frame holds them
    error: int | None = None
    registers: dict[int, int] = dataclasses.field(default_factory=dict)  # by number of an encoding


MOST_BYTES = 256 << 20  # of one segment


class CoreImage:
    """Raises ValueError when it is no core of x86-64, OSError and struct.error when it cannot be read."""

    def __init__(self, source: BinaryIO) -> None:
        self._source, self._bytes = source, source.seek(0, os.SEEK_END)
        head = self._at(0, 64)
        if head[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", head, 18)[0] != X86_64:
            raise ValueError("no core of x86-64")
        self.segments: list[Segment] = []
        self._notes: dict[int, bytes] = {}
        for kind, flags, offset, start, size, length in self._headers(head):
            if kind == PT_LOAD:
                access = {"executable": bool(flags & 1), "writable": bool(flags & 2), "readable": bool(flags & 4)}
                self.segments.append(Segment(start=start, end=start + length, offset=offset, size=size, **access))
            elif kind == PT_NOTE:
                for note, body in _notes(self._at(offset, size)):
                    self._notes.setdefault(note, body)  # the first thread's is the one that died

    @property
    def signal(self) -> int | None:
        """Of which it died; None: the core does not say."""
        status = self._notes.get(NT_PRSTATUS, b"")
        return struct.unpack_from("<h", status, CURSIG)[0] or None if len(status) > CURSIG + 2 else None

    def interrupted(self) -> Interrupted | None:
        """None: it did not die of a fault, or what it did cannot be found."""
        if NT_PRSTATUS not in self._notes or NT_SIGINFO not in self._notes:
            return None
        status, info = self._notes[NT_PRSTATUS], self._notes[NT_SIGINFO]
        (tid,), (ip,), (sp,) = (struct.unpack_from(form, status, at) for form, at in (("<i", 32), ("<Q", RIP), ("<Q", RSP)))
        number, _, code = struct.unpack_from("<iii", info, 0)
        (address,) = struct.unpack_from("<Q", info, 16)
        if code > 0 and number in FAULTS:
            values = struct.unpack_from("<27Q", status, 112)
            registers = {name: values[at] for at, name in IN_PRSTATUS.items()}
            return Interrupted(tid=tid, signal=number, si_code=code, address=address, ip=ip, sp=sp, registers=registers)
        if code > 0:
            return None
        return self._below_the_handler(tid, number, sp) if number in FAULTS else None

    def segment(self, address: int) -> Segment | None:
        return next((segment for segment in self.segments if segment.start <= address < segment.end), None)

    def main_stack(self) -> Segment | None:
        """The main thread's stack, which grows until its limit."""
        auxv = self._notes.get(NT_AUXV, b"")
        for at in range(0, len(auxv) - 15, 16):
            key, value = struct.unpack_from("<QQ", auxv, at)
            if key == AT_EXECFN:
                return self.segment(value)
        return None

    def memory(self, address: int, size: int) -> bytes:
        """As much from there on as the core holds, at most `size`."""
        segment = self.segment(address)
        if segment is None:
            return b""
        skipped = address - segment.start
        return self._at(segment.offset + skipped, max(0, min(size, segment.size - skipped)))

    def _below_the_handler(self, tid: int, number: int, sp: int) -> Interrupted | None:
        """The kernel fills in the siginfo of the frame only for handlers that ask for it; the registers are always there."""
        stack = self.memory(sp, SEARCHED_BYTES)
        for at in range(-sp % 8, len(stack) - FRAME_BYTES, 8):
            (back,) = struct.unpack_from("<Q", stack, at)
            registers = struct.unpack_from("<23Q", stack, at + FRAME_REGISTERS)
            trap, returns_to = registers[REG_TRAP], self.segment(back)
            if number in RAISES.get(trap, ()) and registers[REG_CS] & 0xFFFF == USER_CS and returns_to and returns_to.executable:
                return Interrupted(
                    tid=tid,
                    signal=number,
                    address=registers[REG_CR2],
                    ip=registers[REG_RIP],
                    sp=registers[REG_RSP],
                    trap=trap,
                    error=registers[REG_ERROR],
                    registers={name: registers[at] for at, name in IN_FRAME.items()},
                )
        return None

    def _headers(self, head: bytes) -> Iterator[tuple[int, int, int, int, int, int]]:
        """(type, flags, offset, address, bytes in the file, bytes in memory) of every segment."""
        (start,) = struct.unpack_from("<Q", head, 32)
        size, count = struct.unpack_from("<HH", head, 54)
        if count == 0xFFFF:  # more than fit: the number is the info of the first section header
            (sections,) = struct.unpack_from("<Q", head, 40)
            (count,) = struct.unpack_from("<I", self._at(sections, 64), 44)
        table = self._at(start, size * min(count, MOST_HEADERS))
        for at in range(0, len(table) - size + 1, size):
            kind, flags, offset, address, _, in_file, in_memory, _ = struct.unpack_from("<IIQQQQQQ", table, at)
            yield kind, flags, offset, address, in_file, in_memory

    def _at(self, offset: int, size: int) -> bytes:
        """At most so many bytes from there on; a damaged core asks for more than there is."""
        if not 0 <= offset < self._bytes:
            return b""
        self._source.seek(offset)
        return self._source.read(max(0, min(size, self._bytes - offset, MOST_BYTES)))


def _notes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, at)
        body = at + 12 + (name_size + 3) // 4 * 4
        if data[at + 12 : at + 12 + name_size] == b"CORE\0":
            yield kind, data[body : body + size]
        at = body + (size + 3) // 4 * 4
