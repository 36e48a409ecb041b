"""How a process that is nobody's child here ended, asked of the kernel through a descriptor of it that was open when it ended.

From Linux 6.15 on, for any process of the same user.  Only those that were seen alive can be asked, so the process connector
(`exits.py`) comes first and this is for where it cannot be had: in a network namespace of its own, or without root.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import struct
import sys
import time
from dataclasses import dataclass

FORM = "=QQ11Ii"  # mask, cgroup, pid, tgid, ppid, eight user and group ids, exit code: the first version's 64 bytes
GET_INFO = (3 << 30) | (struct.calcsize(FORM) << 16) | (0xFF << 8) | 11
WITH_IDS, WITH_EXIT = 1, 1 << 3
MOST = 256  # descriptors


@dataclass(frozen=True, kw_only=True)
class Asked:
    pid: int
    ppid: int
    status: int
    monotonic_s: float  # when it was last seen alive


@dataclass(kw_only=True)
class _Held:
    descriptor: int
    parent: int
    alive_s: float  # when it was last seen alive
    over: bool = False


class PidFds:
    def __init__(self) -> None:
        self.why_not = why_not()
        self._held: dict[int, _Held] = {}

    def follow(self, pids: set[int]) -> None:
        """Open a descriptor of each that is new."""
        for pid in pids - set(self._held) if not self.why_not else ():
            if len(self._held) < MOST:
                with contextlib.suppress(OSError):
                    descriptor = os.pidfd_open(pid)
                    self._held[pid] = _Held(descriptor=descriptor, parent=_info(descriptor, WITH_IDS)[4], alive_s=time.monotonic())

    def ended(self) -> list[Asked]:
        """Those that have ended badly since the last time, whoever waited for them; one that nobody has waited for yet comes later."""
        found = []
        for pid, held in list(self._held.items()):
            held.over = held.over or _is_over(held.descriptor)
            if not held.over:
                held.alive_s = time.monotonic()
                continue
            with contextlib.suppress(OSError):
                info = _info(held.descriptor, WITH_EXIT)
                if info[0] & WITH_EXIT:
                    self._forget(pid)
                    if info[13]:
                        found.append(Asked(pid=pid, ppid=held.parent, status=info[13], monotonic_s=held.alive_s))
        return found

    def close(self) -> None:
        for pid in list(self._held):
            self._forget(pid)

    def _forget(self, pid: int) -> None:
        os.close(self._held.pop(pid).descriptor)


def status_of(descriptor: int) -> int | None:
    """Wait status of a process that is over and was waited for; None: it is not, or this kernel does not tell."""
    with contextlib.suppress(OSError):
        info = _info(descriptor, WITH_EXIT)
        if info[0] & WITH_EXIT:
            return info[13]
    return None


def why_not() -> str:
    """Empty where the kernel answers."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return f"{sys.platform} has no descriptors of processes"
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    new = found and (int(found[1]), int(found[2])) >= (6, 15)
    return "" if new else f"Linux {os.uname().release} tells it to nobody but the parent (6.15 does)"


def _info(descriptor: int, mask: int) -> tuple[int, ...]:
    import fcntl

    buffer = bytearray(struct.calcsize(FORM))
    struct.pack_into("=Q", buffer, 0, mask)
    fcntl.ioctl(descriptor, GET_INFO, buffer)
    return struct.unpack(FORM, buffer)


def _is_over(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
