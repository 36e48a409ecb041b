"""Room on disks and in shared memory, and files that change under their mapping: an address is there, and its page cannot be had."""

from __future__ import annotations

from collections.abc import Iterator

from matrix.diagnosis.addresses import PAGE, the_fault
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import Cause, finding, message, remedy
from matrix.diagnosis.limits import CHANGED, FULL, RESOURCE, bounds_of, unchecked
from matrix.diagnosis.native import crash_signal
from matrix.diagnosis.native_causes import NATIVE_CRASH
from matrix.records import Filesystem, Finding, Observation

DAMAGED = "corrupt_input_data"
FULL_SHARE, FULL_BYTES = 0.02, 1 << 20  # less room than that was left
AMPLE_SHARE, AMPLE_BYTES, AMPLE_INODES = 0.25, 4 << 30, 1000  # no usual write is refused with that much left
ENOSPC = "no space left on device"

CAUSES = (
    Cause(
        name=FULL,
        title="Shared memory or disk full",
        clause="/dev/shm or a file system runs full; a write to mapped memory there ends in SIGBUS, other writes fail or are lost",
        every_time=0.9,
        remedies=(
            remedy("axis", "fewer workers, smaller batches, or less prefetch"),
            remedy("limit", "a larger /dev/shm (docker --shm-size) or disk"),
            remedy("code", "remove what is not needed any more; share through files on a disk with room"),
        ),
        references=("PyTorch documentation, DataLoader and shared memory", "man 5 tmpfs"),
        cures_it={"bigger_shm": 0.5, "bigger_temp": 0.3},
    ),
    Cause(
        name=CHANGED,
        title="A mapped file changed while it was read",
        clause="a file is shortened or replaced while it is mapped into memory, and reading the part that is gone ends in SIGBUS",
        every_time=0.6,
        remedies=(
            remedy("axis", "no writer beside the readers"),
            remedy("code", "write a new file and rename it over the old one; readers keep the old one"),
        ),
        references=("man 2 mmap, SIGBUS",),
    ),
)


def findings(case: Case) -> Iterator[Finding]:
    for death in case.deaths:
        yield from _room(case, death)
        yield from _mapped(death)


def _room(case: Case, death: Observation) -> Iterator[Finding]:
    full = [place for place in death.filesystems if _is_full(place)]
    signal = crash_signal(death)
    for place in full[:1]:
        left = f"{place.least_free_bytes >> 10} KiB left of {place.total_bytes >> 20} MiB"
        fact = f"{place.folder} ({place.use}) had {'no inode for another file, and ' if place.least_free_inodes == 0 else ''}{left}"
        if any(_had_no_room(survivor, place.use) for survivor in case.survivors):
            yield from _full_in_survivors(case, death, place.use, fact)
            return
        weight = 4.5 if signal == "SIGBUS" else 3.5
        yield finding(FULL, "room", death, weight, fact)
        for cause in ("native_memory_corruption", "native_bad_argument", CHANGED):
            yield finding(cause, "room", death, -2.0, fact)
        if death.python_error:
            yield finding("python_exception", "room", death, -2.0, fact)
        if pointer := unchecked(death):
            yield finding(FULL, "refused", death, 1.5, f"{fact}, and {pointer}: what was refused and not looked at")
    refused = message(death, "no space")  # also when there was room, but not for that much
    if death.filesystems and not full and not refused:
        yield finding(FULL, "room", death, -2.5, "every file system that it could write to had room left")
    if refused and ENOSPC in refused.text.lower() and death.filesystems and all(map(_is_ample, death.filesystems)):
        yield from _no_space_in_room(death)
    if signal == "SIGBUS":
        yield finding(FULL, "signal", death, 1.5, "SIGBUS: a mapped page could not be had")
        yield finding(CHANGED, "signal", death, 1.5, "SIGBUS: a mapped page could not be had")
    elif not death.short_files:
        yield finding(CHANGED, "signal", death, -5.0, "it did not end by SIGBUS, which is how a shortened mapped file ends a process")


def _no_space_in_room(death: Observation) -> Iterator[Finding]:
    """ENOSPC where every file system has ample room: it is also what inotify and the system's message queues say at their limits."""
    least = min(place.least_free_bytes for place in death.filesystems) >> 30
    fact = f"every file system that it could write to had {least} GiB left or more; other limits (inotify watches, IPC) are told so too"
    watched = max((bound.used or 0 for bound in bounds_of(death) if bound.name == "watches"), default=0)
    fact += f", and it held {watched} inotify watches" if watched else ""
    yield finding(FULL, "room", death, -4.0 if watched else -1.5, fact)
    yield finding(RESOURCE, "refused", death, 3.5 if watched else 1.5, fact)


def _full_in_survivors(case: Case, death: Observation, use: str, fact: str) -> Iterator[Finding]:
    """What a full place loses harms only who reads it back: such runs all die full, and room alone saves them."""
    changes = [(axis, survivor) for axis, survivor in case.beside if any(place.use == use for place in survivor.filesystems)]
    still_full = {axis for axis, survivor in changes if _had_no_room(survivor, use)}
    saved = next(((axis, survivor) for axis, survivor in changes if axis not in still_full), None)
    if saved is None or not all(_had_no_room(other, use) for other in case.deaths):
        yield finding(FULL, "room", death, -1.0, f"{fact}, as in runs that survive")
        return
    axis, survivor = saved
    change = f"{axis}={survivor.trial.cell[axis]}"
    fact += f"; some runs survive with it full, but with {change} alone there is room, and it survives (attempt {survivor.attempt})"
    yield finding(FULL, "room", death, 1.5, fact)
    damaged = message(death, "corrupt input")
    if damaged and not case.said_alike("corrupt input"):
        fact = f"what it read is not whole, as what a full place has lost: {damaged.text.strip()[:160]}"
        yield finding(FULL, "read back", death, 2.0, fact, f"{damaged.stream}.log")
        yield finding(DAMAGED, "read back", death, -1.5, fact, f"{damaged.stream}.log")


def _had_no_room(run: Observation, use: str) -> bool:
    return any(place.use == use and _is_full(place) for place in run.filesystems)


def _is_full(place: Filesystem) -> bool:
    return place.least_free_bytes < max(FULL_BYTES, FULL_SHARE * place.total_bytes) or place.least_free_inodes == 0


def _is_ample(place: Filesystem) -> bool:
    enough = place.least_free_inodes is None or place.least_free_inodes >= AMPLE_INODES
    return enough and place.least_free_bytes >= max(AMPLE_BYTES, AMPLE_SHARE * place.total_bytes)


def _mapped(death: Observation) -> Iterator[Finding]:
    """A file that nobody wrote to since it was mapped was too short before: then it is damaged, or was never whole."""
    for file in sorted(death.short_files, key=lambda file: not file.at_fault)[:1]:
        fact = f"{file.path} was mapped up to byte {file.mapped_to_bytes} and holds {file.size_bytes} bytes"
        at = ", and the fault lies in that mapping" if file.at_fault else ""
        fault = the_fault(death)
        if file.mapped_to_bytes - file.size_bytes < PAGE:  # it was written anew, and is as long as before by now
            yield from _rewritten(death, f"{file.path} was written to while it was mapped{at}")
            return
        if file.changed is False and file.at_fault:
            fact += f"{at}; nobody wrote to it since it was mapped, so it was as short before"
            yield finding(DAMAGED, "short file", death, 4.5, fact, "maps.txt")
            for cause in (CHANGED, FULL):
                yield finding(cause, "short file", death, -4.0, fact, "maps.txt")
            return
        elsewhere = not file.at_fault and fault is not None and fault.address is not None
        yield finding(CHANGED, "short file", death, 5.0 if file.at_fault else 1.0 if elsewhere else 3.0, fact + at, "maps.txt")
        if elsewhere:
            return
        for cause in (FULL, "native_bad_argument", "native_memory_corruption"):
            yield finding(cause, "short file", death, -2.0, fact + at, "maps.txt")


def _rewritten(death: Observation, fact: str) -> Iterator[Finding]:
    """Under a read: its pages were gone for a moment, as those of a full file system are.  Under code: that explains any crash."""
    if crash_signal(death) == "SIGBUS":
        yield finding(CHANGED, "short file", death, 3.0, fact, "maps.txt")
        return
    yield finding(CHANGED, "short file", death, 5.0, f"{fact}, and it holds code", "maps.txt")
    for cause in NATIVE_CRASH:
        yield finding(cause, "short file", death, -2.0, fact, "maps.txt")
