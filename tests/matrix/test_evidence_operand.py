"""The memory operand of an instruction, against encodings by an assembler."""

from __future__ import annotations

import pytest

from matrix.evidence.operand import Operand, operand

VALUES = {number: 0x1000 * (number + 1) for number in range(16)}  # rax 0x1000, rcx 0x2000, rdx 0x3000, ... r15 0x10000


@pytest.mark.parametrize(
    ("code", "base", "index", "displacement"),
    [
        ("8b0488", 0x1000, 0x2000 * 4, 0),  # mov eax, [rax+rcx*4]
        ("f30f100402", 0x3000, 0x1000, 0),  # movss xmm0, [rdx+rax]
        ("438b4c8a08", 0xB000, 0xA000 * 4, 8),  # mov ecx, [r10+r9*4+8]
        ("488b8498f0ffffff", 0x1000, 0x4000 * 4, -16),  # mov rax, [rax+rbx*4-16]
        ("c5fa100482", 0x3000, 0x1000 * 4, 0),  # vmovss xmm0, [rdx+rax*4]
        ("c4817a100498", 0x9000, 0xC000 * 4, 0),  # vmovss xmm0, [r8+r11*4]
        ("8b07", 0x8000, None, 0),  # mov eax, [rdi]
        ("488b4510", 0x6000, None, 16),  # mov rax, [rbp+16]
        ("488b0424", 0x5000, None, 0),  # mov rax, [rsp]
        ("8b04cd00010000", None, 0x2000 * 8, 256),  # mov eax, [rcx*8+256]
        ("66440f6f1c06", 0x7000, 0x1000, 0),  # movdqa xmm11, [rsi+rax]
        ("660f3800040a", 0x3000, 0x2000, 0),  # pshufb xmm0, [rdx+rcx]
    ],
)
def test_an_address_is_taken_apart_as_the_processor_does(code: str, base: int | None, index: int | None, displacement: int) -> None:
    assert operand(bytes.fromhex(code).ljust(16, b"\x90"), VALUES) == Operand(base=base, index=index, displacement=displacement)


def test_an_address_wraps_around_as_the_registers_do() -> None:
    found = operand(bytes.fromhex("8b0488"), {**VALUES, 1: (1 << 64) - 4})  # index -4
    assert found is not None and found.address == 0x1000 - 16


@pytest.mark.parametrize("code", ["89c8", "c3", "e800000000", "8b0500100000", "648b0425", "a4", "", "0f", "c5"])
def test_an_instruction_without_an_address_in_registers_or_a_cut_one_tells_nothing(code: str) -> None:
    assert operand(bytes.fromhex(code), VALUES) is None
