"""What a checked heap saw in runs of the tool's own: the misuse itself, before the crash that it causes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matrix.diagnosis.addresses import in_what, the_fault
from matrix.diagnosis.cause import finding, said
from matrix.diagnosis.native_causes import ARGUMENT, CORRUPTION, NEVER_SET, RACE
from matrix.records import Finding, Frame, HeapError, Observation

PYTHON_FREED = 0xDD  # Python's debug allocator, Objects/obmalloc.c
PYTHON_NEW = 0xCD
ITEM_BYTES = (1, 2, 4, 8, 16, 32)
NEAR = 4096  # bytes beside it: a field of a record, or where the array begins
HEAP_PROBES = ("poisoned_heap", "checked_heap", "valgrind")


def checked(run: Observation, guilty: Sequence[Frame], *, known: bool) -> Iterator[Finding]:
    """What a checked heap saw: the misuse itself, before the crash that it causes.  `guilty`: frames of the crashes without it;
    `known`: the allocator had noticed damage there too."""
    held = all(result.held for result in run.probes)
    if not held or not set(run.trial.probes) & set(HEAP_PROBES):
        return
    fault = the_fault(run)
    if fault and fault.filled is not None and fault.filled in _left_in_freed(run):
        fact = f"where what is freed is filled with {fault.filled:#x}, native code{in_what(fault)} used such bytes as a pointer"
        for cause, weight in {CORRUPTION: 3.0, RACE: 2.0, ARGUMENT: -2.0}.items():  # a race frees too early as well
            yield finding(cause, "checked heap", run, weight, f"{fact}: memory that was given back")
    if fault and fault.index_bytes and (byte := _byte_of_index(fault.index_bytes, _left_in_new(run))):
        fact = f"where what is allocated is filled with {byte:#x}, native code{in_what(fault)} used such bytes as an index"
        for cause, weight in {CORRUPTION: 4.0, RACE: 0.0, ARGUMENT: -3.0}.items():
            yield finding(cause, "checked heap", run, weight, f"{fact}: memory that nobody had set", form=NEVER_SET)
    if line := said(run, "heap damaged"):
        fact = f"with a checked heap it ends at the damage: {line}"
        yield finding(CORRUPTION, "checked heap", run, 1.5 if known else 3.5, fact, "stderr.log")
        if known:  # a race damages the heap as well, and that it is damaged is no news
            yield finding(RACE, "checked heap", run, 1.0, fact, "stderr.log")
    for error in run.heap_errors:
        if not any(_same_code(theirs, ours) for theirs in error.frames for ours in guilty):
            continue  # of some other library, which is used to it
        if weights := _misuse(error):
            where = f" in {error.frames[0]}" if error.frames else ""
            fact = f"valgrind saw an {error.what[:1].lower()}{error.what[1:]}{where}: {error.about or 'no block of the heap'}"
            if error.freed_by_other_thread and (code := _common_code(error)):
                fact += f", by another thread, which was in {code} as well"
            for cause, weight in weights.items():
                yield finding(cause, "checked heap", run, weight, fact, "valgrind.log")
            return


def _left_in_freed(run: Observation) -> set[int]:
    """The bytes that allocators put into what is freed under the probes of this run."""
    byte = run.env_at_exec.get("MALLOC_PERTURB_", "")
    return ({int(byte) & 0xFF} if byte.isdigit() else set()) | ({PYTHON_FREED} if run.env_at_exec.get("PYTHONMALLOC") == "debug" else set())


def _left_in_new(run: Observation) -> set[int]:
    """The bytes that allocators put into what is allocated under the probes of this run; the C library turns the bits round."""
    byte = run.env_at_exec.get("MALLOC_PERTURB_", "")
    found = {int(byte) & 0xFF ^ 0xFF} if byte.isdigit() else set()
    if run.env_at_exec.get("PYTHONMALLOC") == "debug":
        found.add(PYTHON_NEW)
    return found


def _byte_of_index(index_bytes: int, filled: set[int]) -> int | None:
    """The byte that an index of 32 or 64 bits consists of, for items of a usual size; None: it is another number."""
    for byte in filled:
        for width in (4, 8):
            number = int.from_bytes(bytes([byte]) * width, "little", signed=True)
            readings = (number, number % (1 << 8 * width))  # with a sign and without
            if any(abs(index_bytes - reading * size) <= NEAR for reading in readings for size in ITEM_BYTES):
                return byte
    return None


def _misuse(error: HeapError) -> dict[str, float]:
    """What a misuse of memory says for and against the causes, in nats; {}: nothing."""
    wild = "not stack'd" in error.about
    if _common_code(error) and error.freed_by_other_thread:
        return {RACE: 4.0, ARGUMENT: -2.0}
    if _common_code(error) and any(frame.startswith("start_thread ") for frame in error.freed_by):  # perhaps by a thread of its kind
        return {RACE: 1.5, CORRUPTION: 1.5}
    if error.what.startswith(("Invalid free", "Mismatched free")) or ("free'd" in error.about and not wild):  # of the wild it says neither
        return {CORRUPTION: 4.0, ARGUMENT: -2.0}
    if error.what.startswith("Invalid write"):
        return {CORRUPTION: 1.0 if wild else 3.0, ARGUMENT: 1.5}
    return {ARGUMENT: 3.0, CORRUPTION: -0.5} if error.what.startswith("Invalid read") else {}


def _common_code(error: HeapError) -> str | None:
    """The library, or source file, in which a block was used, when the thread that freed it was inside the same one.  Not Python's:
    that frees whatever nobody refers to."""
    mine, theirs = (next(filter(None, map(_code, frames)), None) for frames in (error.frames, error.freed_by))
    return mine if mine == theirs and mine and not mine.startswith("libpython") else None


def _code(frame: str) -> str | None:
    """Of `function (in /path/library.so)` or `function (file.c:12)`; None: the allocator, or a copy."""
    place = frame.rpartition("(")[2].rstrip(")").removeprefix("in ")
    name = place.rpartition("/")[2].partition(":")[0]
    return None if not name or name.startswith(("vgpreload_", "vg_replace", "libc.so", "libstdc++")) else name


def _same_code(theirs: str, ours: Frame) -> bool:
    """valgrind names the library, or the source file where it knows that."""
    return (bool(ours.library) and ours.library in theirs) or (
        ours.kind == "native" and bool(ours.function) and theirs.startswith(f"{ours.function} (")
    )
