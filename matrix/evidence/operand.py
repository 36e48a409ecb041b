"""The memory operand of an x86-64 instruction: which registers its address was made of.

An address that leads to nowhere although the register it was counted from points into memory was reached by an index.
Encodings are those of the Intel manual, volume 2, chapter 2 (ModRM, SIB, REX, VEX, EVEX).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

PREFIXES = frozenset(b"\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3")
SEGMENTED = frozenset(b"\x64\x65\x67")  # counted from a segment's base, or cut to 32 bits: not what the registers say
WITHOUT_MODRM = frozenset(range(0xA0, 0xA8)) | frozenset(range(0xAA, 0xB0)) | frozenset(range(0x50, 0x60)) | {0xC3, 0xC2, 0xCC, 0xE8, 0xE9}
STACK_POINTER, RIP_RELATIVE = 4, 5
WORD = 1 << 64


@dataclasses.dataclass(frozen=True, kw_only=True)
class Operand:
    """base + index * scale + displacement."""

    base: int | None  # value of the register; None: there is none
    index: int | None  # value of the register times its scale; None: there is none
    displacement: int

    @property
    def address(self) -> int:
        return ((self.base or 0) + (self.index or 0) + self.displacement) % WORD


def operand(code: bytes, registers: Mapping[int, int]) -> Operand | None:
    """Of the instruction at the start of `code`.  `registers`: values by their numbers in an encoding (0 rax, 1 rcx, 2 rdx, 3 rbx,
    4 rsp, 5 rbp, 6 rsi, 7 rdi, 8 to 15 r8 to r15).  None: it has no such operand, or it cannot be told."""
    try:
        return _operand(code, registers)
    except (IndexError, KeyError):
        return None


def _operand(code: bytes, registers: Mapping[int, int]) -> Operand | None:
    at = 0
    while code[at] in PREFIXES:
        if code[at] in SEGMENTED:
            return None
        at += 1
    at, extended_index, extended_base, stretched = _opcode(code, at)
    if at < 0:
        return None
    mode, low = code[at] >> 6, code[at] & 7
    at += 1
    if mode == 3 or (mode == 0 and low == RIP_RELATIVE):
        return None
    base: int | None = low
    index: int | None = None
    scale = 1
    if low == STACK_POINTER:  # a SIB byte follows
        sib = code[at]
        at += 1
        number = (sib >> 3 & 7) | extended_index
        index = None if number == STACK_POINTER else number
        scale = 1 << (sib >> 6)
        base = None if sib & 7 == RIP_RELATIVE and mode == 0 else sib & 7
    wide = mode == 2 or base is None
    displacement = int.from_bytes(code[at : at + 4], "little", signed=True) if wide else 0
    if mode == 1:
        displacement = 0 if stretched else int.from_bytes(code[at : at + 1], "little", signed=True)
    return Operand(
        base=None if base is None else registers[base | extended_base],
        index=None if index is None else registers[index] * scale % WORD,
        displacement=displacement,
    )


def _opcode(code: bytes, at: int) -> tuple[int, int, int, bool]:
    """(where its ModRM byte is, 8 for an upper index register, 8 for an upper base register, whether a short displacement counts in
    units that are not known here); -1: it has no ModRM byte."""
    first = code[at]
    if first == 0xC5:  # VEX of two bytes: no upper registers in an address
        return at + 3, 0, 0, False
    if first == 0xC4:
        return at + 4, 0 if code[at + 1] & 0x40 else 8, 0 if code[at + 1] & 0x20 else 8, False
    if first == 0x62:  # EVEX
        return at + 5, 0 if code[at + 1] & 0x40 else 8, 0 if code[at + 1] & 0x20 else 8, True
    index = base = 0
    if first & 0xF0 == 0x40:
        index, base = (8 if first & 2 else 0), (8 if first & 1 else 0)
        at += 1
    if code[at] != 0x0F:
        return (-1 if code[at] in WITHOUT_MODRM else at + 1), index, base, False
    return at + (3 if code[at + 1] in (0x38, 0x3A) else 2), index, base, False
