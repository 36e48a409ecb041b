"""Files that processes read through one open file description, or each through its own.

A fork copies descriptors, not what the kernel keeps for them: parent and children then share the position in the file.  kcmp(2) tells
whether two descriptors mean the same open file description.  Only files that move (their position changed between two looks) matter.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import stat
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from matrix.kernel_text import kernel_text
from matrix.records import SharedFile

MOST_PROCESSES, MOST_DESCRIPTORS, MOST_OF_A_FILE, MOST_FILES = 8, 64, 12, 8
FIRST_DESCRIPTOR = 3  # below are a program's input, output and errors
CALL = {"x86_64": 312, "aarch64": 272}.get(platform.machine())  # number of kcmp
KCMP_FILE = 0
WRITE_ONLY = 1
NO_FILES = ("/dev/", "/proc/", "/sys/")


class _Descriptor(NamedTuple):
    pid: int
    number: int


class SharedFiles:
    """Follow the open files of the processes of one attempt."""

    def __init__(self) -> None:
        self._positions: dict[_Descriptor, int] = {}
        self._shared: dict[str, set[int]] = defaultdict(set)
        self._own: dict[str, set[int]] = defaultdict(set)
        self._moved: set[tuple[str, bool]] = set()  # path, and whether it was read by a description of its own
        self._last: dict[tuple[str, bool], int] = {}  # position

    def look(self, pids: Sequence[int]) -> None:
        """Compare what is open now, and where in it each process is, with the look before."""
        if CALL is None or len(pids) < 2:
            return
        by_path: dict[str, list[tuple[_Descriptor, bool]]] = defaultdict(list)
        positions: dict[_Descriptor, int] = {}
        for pid in pids[:MOST_PROCESSES]:
            for descriptor, path, position in _open_for_reading(pid):
                positions[descriptor] = position
                by_path[path].append((descriptor, self._positions.get(descriptor, position) != position))
        self._positions = positions
        for path, found in by_path.items():
            self._compare(path, found)

    def _compare(self, path: str, found: list[tuple[_Descriptor, bool]]) -> None:
        found = found[:MOST_OF_A_FILE]
        if len({descriptor.pid for descriptor, _ in found}) < 2:
            return
        sharing = _same_description([descriptor for descriptor, _ in found])
        moves = len({self._positions[descriptor] for descriptor in sharing}) > 1  # one position, read twice
        for descriptor, moved in found:
            shared = descriptor in sharing
            (self._shared if shared else self._own)[path].add(descriptor.pid)
            self._last[path, not shared] = self._positions[descriptor]
            if moved or (shared and (moves or _position(descriptor) != self._positions[descriptor])):
                self._moved.add((path, not shared))

    def record(self) -> list[SharedFile]:
        """Return the files that two or more processes had open at one time."""
        kinds: tuple[tuple[bool, Mapping[str, set[int]]], ...] = ((False, self._shared), (True, self._own))
        found = [
            SharedFile(path=path, pids=sorted(pids), own=own, moved=(path, own) in self._moved, position=self._last[path, own])
            for own, each in kinds
            for path, pids in each.items()
            if len(pids) > 1
        ]
        return sorted(found, key=lambda file: not file.moved)[:MOST_FILES]


def _open_for_reading(pid: int) -> list[tuple[_Descriptor, str, int]]:
    """Return each regular file that a process may read: its descriptor, its path and the position in it."""
    found = []
    with contextlib.suppress(OSError):
        numbers = sorted(int(name) for name in os.listdir(f"/proc/{pid}/fd") if name.isdigit())  # noqa: PTH208
        for number in [each for each in numbers if each >= FIRST_DESCRIPTOR][:MOST_DESCRIPTORS]:
            with contextlib.suppress(OSError, ValueError, KeyError):
                link = f"/proc/{pid}/fd/{number}"
                path = os.readlink(link)  # noqa: PTH115
                if not path.startswith("/") or path.startswith(NO_FILES) or not stat.S_ISREG(os.stat(link).st_mode):  # noqa: PTH116
                    continue
                descriptor = _Descriptor(pid, number)
                facts = _facts(descriptor)
                if int(facts["flags"].strip(), 8) & os.O_ACCMODE != WRITE_ONLY:
                    found.append((descriptor, path, int(facts["pos"])))
    return found


def _facts(descriptor: _Descriptor) -> dict[str, str]:
    """Return what the kernel says of a descriptor.  Raises OSError when it is gone."""
    text = kernel_text(f"/proc/{descriptor.pid}/fdinfo/{descriptor.number}")
    return dict(line.split(":\t", 1) for line in text.splitlines() if ":\t" in line)


def _position(descriptor: _Descriptor) -> int | None:
    """Return the position in the file now; None: the process is gone, or has closed the file."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        return int(_facts(descriptor)["pos"])
    return None


def _same_description(descriptors: Sequence[_Descriptor]) -> set[_Descriptor]:
    """Return those that share one open file description with another process."""
    found: set[_Descriptor] = set()
    for at, first in enumerate(descriptors):
        for other in descriptors[at + 1 :]:
            if first.pid != other.pid and _compared(first, other) == 0:
                found |= {first, other}
    return found


def _compared(first: _Descriptor, other: _Descriptor) -> int:
    """Return 0 for one description, 1 or 2 for two, -1 where the kernel does not tell."""
    library = ctypes.CDLL(None, use_errno=True)
    numbers = (first.pid, other.pid, KCMP_FILE, first.number, other.number)
    return int(library.syscall(ctypes.c_long(CALL or 0), *map(ctypes.c_long, numbers)))
