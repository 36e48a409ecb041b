"""How every process of the machine ended, from the kernel's process connector: nobody but a parent can wait for its child.

A netlink socket that takes a few microseconds for each event.  From Linux 6.6 on the kernel sends only ends with another
status than 0, and any user may listen; before, all events come and only root may.  Not in a network or pid namespace of its own:
there the processes that were seen alive are asked for, where the kernel answers that (`pidfds.py`).
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import socket
import struct
import sys

from matrix.evidence.pidfds import PidFds
from matrix.records import NotCollected

NETLINK_CONNECTOR, CN_IDX_PROC, CN_VAL_PROC = 11, 1, 1
PROC_CN_MCAST_LISTEN, EVENT_NONE, EVENT_EXIT, EVENT_NONZERO_EXIT, EVENT_COREDUMP = 1, 0, 0x80000000, 0x20000000, 0x40000000
HEADERS = 16 + 20  # nlmsghdr, cn_msg
FILTERS = (6, 6)
BUFFER_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExitEvent:
    pid: int
    ppid: int
    status: int  # wait status
    monotonic_s: float


class ExitWatch:
    """Ends of processes from the moment this is made."""

    def __init__(self, *, wanted: bool = True) -> None:
        self.events: dict[int, ExitEvent] = {}  # by pid, the newest
        self.dumping: set[int] = set()  # processes that a signal has ended and that are still there: their core is being written
        self.why_not = ""
        self._socket: socket.socket | None = None
        self._asked: PidFds | None = None
        if not wanted:
            self.why_not = "not asked for"
            return
        try:
            self._socket = _listening()
        except OSError as problem:
            self.why_not = f"the kernel's process events cannot be had here: {problem.strerror or problem}"
            self._asked = PidFds()

    def fileno(self) -> int:
        """-1 where there are no events."""
        return self._socket.fileno() if self._socket else -1

    def read(self) -> None:
        """Take what is there; does not wait."""
        for one in self._asked.ended() if self._asked else ():
            self.events[one.pid] = ExitEvent(pid=one.pid, ppid=one.ppid, status=one.status, monotonic_s=one.monotonic_s)
        while self._socket:
            try:
                message = self._socket.recv(4096)
            except BlockingIOError:
                return
            except OSError as problem:  # ENOBUFS: more than the buffer held
                self.why_not = f"some process events were lost: {problem.strerror}"
                continue
            if (event := _event(message)) is not None:
                self.events[event.pid] = event
            elif pid := _dumping(message):
                self.dumping.add(pid)

    def follow(self, pids: set[int]) -> None:
        """Processes of the tree as they are seen: where the kernel sends no events, how each ended is asked for afterwards."""
        if self._asked is not None:
            self.read()
            self._asked.follow(pids)

    def of_tree(self, known: set[int]) -> dict[int, ExitEvent]:
        """Events of these processes and of their children, also of those that nobody saw alive."""
        found = {pid: event for pid, event in self.events.items() if pid in known}
        while more := {pid: event for pid, event in self.events.items() if event.ppid in known | set(found) and pid not in found}:
            found |= more
        return found

    def missing(self, main: int | None, main_status: int) -> list[NotCollected]:
        """Why events may be missing; that the main process's own bad end is among them shows that they come at all."""
        why = self.why_not
        if self._asked:
            why += f"; {self._asked.why_not or 'those that lived for half a second were asked for, the others are not known'}"
        elif not why and main_status and main not in self.events:
            why = "the kernel sent no process events"
        return [NotCollected(what="how other processes than the main one ended", why=why)] if why else []

    def close(self) -> None:
        if self._socket:
            self._socket.close()
            self._socket = None
        if self._asked:
            self._asked.close()


def _listening() -> socket.socket:
    if sys.platform != "linux":
        raise OSError(0, f"{sys.platform} has none")
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, NETLINK_CONNECTOR)
    try:
        with contextlib.suppress(OSError):
            made.setsockopt(socket.SOL_SOCKET, 33, BUFFER_BYTES)  # SO_RCVBUFFORCE; the usual 208 KiB do where it is refused
        made.bind((0, CN_IDX_PROC))
        filtered = _release() >= FILTERS
        made.send(_request(filtered=filtered))
        if not filtered:  # the filter drops the acknowledgement too
            _acknowledged(made)
    except OSError:
        made.close()
        raise
    return made


def _request(*, filtered: bool) -> bytes:
    """An older kernel ignores a request that is longer than it knows, so the filter is only asked for where it exists."""
    body = (
        struct.pack("=II", PROC_CN_MCAST_LISTEN, EVENT_NONZERO_EXIT | EVENT_COREDUMP)
        if filtered
        else struct.pack("=I", PROC_CN_MCAST_LISTEN)
    )
    message = struct.pack("=IIIIHH", CN_IDX_PROC, CN_VAL_PROC, 0, 0, len(body), 0) + body
    return struct.pack("=IHHII", 16 + len(message), 3, 0, 0, 0) + message


def _acknowledged(made: socket.socket) -> None:
    """The kernel answers within the call that sends; without an answer nothing will come."""
    while True:
        message = made.recv(4096)
        (what,) = struct.unpack_from("=I", message, HEADERS)
        if what == EVENT_NONE:
            (error,) = struct.unpack_from("=I", message, HEADERS + 16)
            if error:
                raise OSError(error, os.strerror(error))
            return


def _event(message: bytes) -> ExitEvent | None:
    """An end of a whole process: the group's leader carries the status of all its threads."""
    try:
        what, _, nanoseconds, pid, group, status, _, _, parent = struct.unpack_from("=IIQiiIIii", message, HEADERS)
    except struct.error:
        return None
    if what != EVENT_EXIT or pid != group or not status:
        return None
    return ExitEvent(pid=pid, ppid=parent, status=status, monotonic_s=nanoseconds / 1e9)


def _dumping(message: bytes) -> int:
    """The process whose core is about to be written, 0 for other events; the kernel says so also where no core is wanted."""
    try:
        what, _, _, _, group = struct.unpack_from("=IIQii", message, HEADERS)
    except struct.error:
        return 0
    return group if what == EVENT_COREDUMP else 0


def _release() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(found[1]), int(found[2])) if found else (0, 0)
