"""Which instruction the processor refused, at which address, and what was there: from the kernel log and from a core.

The kernel logs a fault only when nobody handles the signal, and faulthandler does; then the core tells.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from matrix.evidence import core_image
from matrix.evidence.core_image import CoreImage, Interrupted
from matrix.evidence.digits import whole
from matrix.evidence.operand import operand
from matrix.records import Fault, ShortFile

PAGE = 4096
SIGNED = 1 << 63
CODE_BYTES = 16
SIGBUS, SIGSEGV = 7, 11
NO_ADDRESS = "segfault without an address"
CLOCKS_S = 0.05  # a file system's clock is behind by a tick
ST_NOATIME = 1024  # of statvfs
FILE = re.compile(r" (/.+)$", re.M)
HEX = "[0-9a-f]+"
REGISTERS = rf"ip[ :](?P<ip>{HEX}) sp[ :](?P<sp>{HEX}) error[ :](?P<error>{HEX})"
SEGFAULT = re.compile(rf"\[(?P<tid>\d+)\]: (?P<trap>segfault) at (?P<address>{HEX}) {REGISTERS}")
TRAP = re.compile(rf"traps: \S.*?\[(?P<tid>\d+)\] (?:trap )?(?P<trap>[a-z][a-z0-9 ]+?)(?: fault)? {REGISTERS}")
PLACE = re.compile(r" in (?P<library>\S+?)\[(?:(?P<offset>[0-9a-f]+),)?(?P<start>[0-9a-f]+)\+[0-9a-f]+\]")
TRAPS = {0: "divide error", 6: "invalid opcode", 13: "general protection", 14: "segfault", 17: "alignment check", 19: "simd exception"}
BY_SIGNAL = {4: "invalid opcode", 5: "breakpoint", 7: "bus error", 8: "divide error", 11: "segfault"}
Access = Literal["read", "write", "execute"]


class Mapped(NamedTuple):
    start: int
    end: int
    offset: int  # in the file
    path: str
    readable: bool
    code: bool  # may be executed
    writes: bool  # what is written there goes to the file
    inode: int


def of_kernel(lines: Iterable[str]) -> list[Fault]:
    """One for each line that tells of a fault."""
    found = []
    for line in lines:
        match = SEGFAULT.search(line) or TRAP.search(line)
        if match is None:
            continue
        address = int(match["address"], 16) if "address" in match.re.groupindex else None
        ip, sp, place = int(match["ip"], 16), int(match["sp"], 16), PLACE.search(line)
        found.append(
            Fault(
                source="kernel log",
                tid=whole(match["tid"]),
                trap=match["trap"],
                address=address,
                ip=ip,
                sp=sp,
                access=_access(int(match["error"], 16)) if address is not None else None,
                library=place["library"] if place else "",
                library_offset=int(place["offset"], 16) if place and place["offset"] else None,
                stack_distance_bytes=None if address is None else address - sp,
            )
        )
    return found


def of_core(core: Path, maps: str, *, stack_limit_bytes: int | None) -> Fault | None:
    """None when it is no core of x86-64, or when it died by a signal that somebody sent.  `maps`: its files, as in /proc/PID/maps.

    `stack_limit_bytes` is how far the main thread's stack may grow; None: as far as it likes."""
    try:
        with core.open("rb") as source:
            image = CoreImage(source)
            state = image.interrupted()
            return _of_image(image, state, mappings(maps), stack_limit_bytes) if state else None
    except (ValueError, OSError, struct.error):
        return None


def _of_image(image: CoreImage, state: Interrupted, files: list[Mapped], stack_limit_bytes: int | None) -> Fault:
    trap = TRAPS.get(state.trap, f"trap {state.trap}") if state.trap is not None else _trap(state)
    trap = "bus error" if state.signal == SIGBUS else trap
    address = state.address if trap in ("segfault", "bus error") else None
    at_ip = _at(files, state.ip)
    code = _code(image, at_ip, state.ip)
    return Fault(
        mapped_bytes=sum(segment.end - segment.start for segment in image.segments),
        source="core",
        tid=state.tid,
        trap=trap,
        address=address,
        ip=state.ip,
        sp=state.sp,
        access=None if address is None else "execute" if address == state.ip else _access(state.error) if state.error is not None else None,
        library=at_ip.path.rpartition("/")[2] if at_ip else "",
        library_offset=state.ip - at_ip.start + at_ip.offset if at_ip else None,
        mapping="" if address is None else _what_is_at(image, files, address),
        before="" if address is None else _what_is_at(image, files, address // PAGE * PAGE - 1),
        stack_distance_bytes=None if address is None else address - state.sp,
        stack_left_bytes=_stack_left(image, state.sp, stack_limit_bytes),
        code=code,
        code_in="file" if at_ip else _code_in(image, state.ip),
        si_code=state.si_code,
        index_bytes=None if address == state.ip else _index_bytes(image, state, code),  # else it is the jump that went wrong
        filled=_filled(state, code),
    )


def _index_bytes(image: CoreImage, state: Interrupted, code: str) -> int | None:
    """How far an index led from memory that there is to where there is none."""
    found = operand(bytes.fromhex(code), state.registers)
    if found is None or found.base is None or found.index is None or image.segment(found.address):
        return None
    from_base, from_index = image.segment(found.base), image.segment(found.index)
    if bool(from_base) == bool(from_index):
        return None  # both lead somewhere, or neither: it cannot be told which one is the pointer
    start = found.base if from_base else found.index
    return (found.address - start + SIGNED) % (2 * SIGNED) - SIGNED


def _filled(state: Interrupted, code: str) -> int | None:
    """The byte that one of the registers of the address repeats; the lowest two may have been counted on."""
    found = operand(bytes.fromhex(code), state.registers)
    for value in (found.base, found.index) if found else ():
        upper = set((value or 0).to_bytes(8, "little")[2:])
        if len(upper) == 1 and not upper & {0x00, 0xFF}:
            return upper.pop()
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Clock:
    """Of one attempt, in seconds since 1970: when it began, and when each file of a process was first seen mapped, by (pid, path)."""

    began_unix_s: float
    seen_unix_s: Mapping[tuple[int, str], float]


def short_files(pid: int, maps: str, address: int | None, clock: Clock, *, sampled: str = "", bus: bool = True) -> list[ShortFile]:
    """Mapped files that are shorter now than what is mapped of them (by more than the rest of a page), or that were written to since
    they were mapped: where the fault lies, or, when it was no SIGBUS (`bus`), if they hold code.

    A file that was only unlinked or replaced keeps what is mapped, so one that is gone is left out, and so is one that is another
    inode now than in `sampled`, the map while the process lived: `maps` may be a core's, which knows no inodes."""
    lived = mappings(sampled)
    inodes = {mapping.path: mapping.inode for mapping in lived}
    read = inodes.keys() - {mapping.path for mapping in lived if mapping.writes}  # who writes by a mapping changes its file himself
    found: dict[str, ShortFile] = {}
    for mapping in mappings(maps):
        path, mapped_to = mapping.path, mapping.offset + mapping.end - mapping.start
        status = _status(path) if (mapping.readable if bus else mapping.code) and _is_file(path) else None
        if status is None or inodes.get(path, status.st_ino) != status.st_ino:
            continue
        at_fault = address is not None and mapping.start <= address < mapping.end
        known = found.get(path)
        longest = known is None or at_fault or (mapped_to > known.mapped_to_bytes and not known.at_fault)
        changed = was_changed(status, _keeps_access_times(path), clock.began_unix_s, clock.seen_unix_s.get((pid, path)))
        short = bus and mapped_to > (status.st_size + PAGE - 1) // PAGE * PAGE
        if longest and (short or (changed and path in read and (at_fault or not bus))):
            found[path] = ShortFile(
                pid=pid, path=path, mapped_to_bytes=mapped_to, size_bytes=status.st_size, at_fault=at_fault, changed=changed
            )
    return list(found.values())


def was_changed(status: os.stat_result, access_times: bool, began_unix_s: float, seen_unix_s: float | None) -> bool | None:
    """Whether a mapped file was written to while it was mapped; None: that cannot be told.

    To map a file is an access; with `access_times` the first one after a change is kept in its status."""
    if status.st_mtime < began_unix_s - CLOCKS_S:
        return False
    if seen_unix_s is not None and status.st_mtime >= seen_unix_s:
        return True
    if not access_times or status.st_mtime_ns == status.st_atime_ns:
        return None
    return status.st_mtime_ns > status.st_atime_ns


def _keeps_access_times(path: str) -> bool:
    try:
        return not os.statvfs(path).f_flag & ST_NOATIME
    except OSError:
        return False


def _is_file(path: str) -> bool:
    return path.startswith("/") and not path.startswith("/dev/")


def mapped_files(maps: str) -> set[str]:
    """Paths in the text of a /proc/PID/maps."""
    return set(FILE.findall(maps))


def mappings(maps: str) -> list[Mapped]:
    """Of files, from the text of a /proc/PID/maps."""
    found = []
    for line in maps.splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6:
            start, _, end = fields[0].partition("-")
            readable, code, writes = fields[1].startswith("r"), "x" in fields[1], "w" in fields[1] and "s" in fields[1]
            with contextlib.suppress(ValueError):  # a damaged line
                offset, inode = int(fields[2], 16), int(fields[4])
                found.append(Mapped(int(start, 16), int(end, 16), offset, fields[5], readable, code, writes, inode))
    return found


def _trap(state: Interrupted) -> str:
    """Without an address it is a pointer that no memory can have, or a handler whose frame did not fit on the stack."""
    return NO_ADDRESS if state.signal == SIGSEGV and state.si_code == core_image.SI_KERNEL else BY_SIGNAL[state.signal]


def _access(error: int) -> Access:
    return "execute" if error & 16 else "write" if error & 2 else "read"


def _at(files: list[Mapped], address: int) -> Mapped | None:
    return next((mapping for mapping in files if mapping.start <= address < mapping.end), None)


def _what_is_at(image: CoreImage, files: list[Mapped], address: int) -> str:
    if file := _at(files, address):
        return file.path
    segment = image.segment(address)
    if segment is None:
        return "nothing"
    return "anonymous" if segment.readable or segment.writable else "no access"


def _code_in(image: CoreImage, ip: int) -> Literal["anonymous", "no code", "nothing"]:
    """Of an instruction in no file."""
    segment = image.segment(ip)
    return "nothing" if segment is None else "anonymous" if segment.executable else "no code"


def _stack_left(image: CoreImage, sp: int, limit_bytes: int | None) -> int | None:
    segment, main = image.segment(sp), image.main_stack()
    if main and main.end - (1 << 30) < sp < main.end and (segment is None or segment == main):
        return None if limit_bytes is None else max(0, limit_bytes - (main.end - sp))
    return sp - segment.start if segment and segment.writable else 0


def _code(image: CoreImage, file: Mapped | None, ip: int) -> str:
    found = image.memory(ip, CODE_BYTES)
    if not found and file:
        try:
            with Path(file.path).open("rb") as source:
                source.seek(ip - file.start + file.offset)
                found = source.read(CODE_BYTES)
        except OSError:
            return ""
    return found.hex()


def _status(path: str) -> os.stat_result | None:
    try:
        return Path(path).stat()
    except OSError:
        return None
