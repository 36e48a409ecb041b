"""What kind of place a fault is at, and what it ran there: facts of one fault, without a judgement."""

from __future__ import annotations

from matrix.records import Fault, Observation

PAGE = 4096
NULL = 16 * PAGE  # below this: a null pointer and a small offset
MMAP_HEADER = 16  # bytes in front of a block that the C library has mapped for itself, so its data starts at this offset in a page
EDGE = 64  # bytes: a vector register's width, so a read that runs off a mapping faults within it
UNUSABLE = ("nothing", "no access", "")  # what a fault says of its address: unmapped, a guard page, or unknown
NEAR_STACK = 64 << 10  # a fault this close to the stack pointer is on the stack
EMPTY = 8  # bytes that are all the same: no instruction is so long and repeats itself
EXTENSIONS = ("62", "c4", "c5", "8f")  # begin instructions that only some processors have: EVEX (AVX-512), VEX (AVX, AMX), XOP


def in_no_library(fault: Fault) -> bool:
    """Whether the instruction that faulted was in none of the files that a core lists, though something was mapped there."""
    return fault.source == "core" and fault.ip is not None and fault.ip >= NULL and not fault.library


def is_generated(fault: Fault) -> bool:
    """Whether it was in code that is of no file, as compilers make it at run time; what a mapping holds that may be executed may be
    anything, so code that is not there any more looks so as well, unless it was emptied."""
    return fault.code_in == "anonymous" and bool(fault.code) and not emptied(fault)


def emptied(fault: Fault) -> bool:
    """Whether nothing but one byte is where it ran: what is cleared, or was never written."""
    code = bytes.fromhex(fault.code)
    return fault.code_in == "anonymous" and len(code) >= EMPTY and len(set(code)) == 1


def is_extension(fault: Fault) -> bool:
    """Whether generated code holds an instruction of the kind that not every processor has where one was refused: hardly by chance."""
    return fault.trap == "invalid opcode" and is_generated(fault) and fault.code[:2] in EXTENSIONS


def by_index(fault: Fault) -> bool:
    """Not a null pointer, and neither the next step of a loop nor what was given back: those have places of their own."""
    return (fault.address is None or fault.address >= NULL) and not behind_the_end(fault) and not at_start_of_freed(fault)


def far(count: int) -> str:
    units = ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "bytes"))
    shift, name = next(((shift, name) for shift, name in units if abs(count) >> shift), (0, "bytes"))
    return f"{abs(count) / (1 << shift):.0f} {name} {'behind' if count > 0 else 'before'}"


def at_start_of_freed(fault: Fault) -> bool:
    """Of a large block of the C library, or of a mapping of the program's own: what runs off an end has something before it."""
    offset = _offset_in_no_page(fault)
    return offset == MMAP_HEADER or (offset == 0 and fault.before == "nothing")


def was_given_back(fault: Fault) -> bool:
    """Return True if memory had been at the address, and neither a run off the end of something nor an index leads there."""
    return bool(fault.was_mapped) and fault.before == "nothing" and fault.index_bytes is None and not on_stack(fault)


def behind_the_end(fault: Fault) -> bool:
    offset = _offset_in_no_page(fault)
    return offset is not None and offset < EDGE and not at_start_of_freed(fault) and fault.before != "nothing"


def _offset_in_no_page(fault: Fault) -> int | None:
    """Where in its page the address lies, when nothing may be used there; None: it is no such place, or a null pointer."""
    if fault.address is None or fault.address < NULL or fault.mapping not in UNUSABLE:
        return None
    return fault.address % PAGE


def the_fault(death: Observation) -> Fault | None:
    """The fault of the thread that began it: the kernel's line has the address also where a handler ran afterwards."""
    faults = [fault for fault in death.faults if fault.trap != "abort"]
    return next((f for f in faults if f.address is not None), None) or next(iter(faults), None)


def on_stack(fault: Fault) -> bool:
    left, distance = fault.stack_left_bytes, fault.stack_distance_bytes
    if left is not None and left <= PAGE and fault.mapping != "anonymous":
        return True
    near = distance is not None and -NEAR_STACK <= distance <= NEAR_STACK
    return near and fault.mapping in UNUSABLE and (left is None or left <= NEAR_STACK)


def left(fault: Fault) -> str:
    if fault.stack_left_bytes is not None:
        return "of which nothing was left" if fault.stack_left_bytes <= 0 else f"of which {fault.stack_left_bytes} bytes were left"
    return f"{abs(fault.stack_distance_bytes or 0)} bytes from the stack pointer, where nothing may be used"


def in_what(fault: Fault) -> str:
    return f" in {fault.library}" if fault.library else " in code made at run time" if is_generated(fault) else ""
