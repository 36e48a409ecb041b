"""Lines of the kernel log about our processes: out-of-memory kills, segfaults, illegal instructions."""

from __future__ import annotations

import contextlib
import os
import re
import sys

from matrix.evidence.digits import whole
from matrix.evidence.unified_log import UnifiedLog
from matrix.records import NotCollected

DEVICE = "/dev/kmsg"
RECORD_BYTES = 8192  # the longest record that the kernel hands out
KEPT = 2000

DEATH = re.compile(r"[Kk]illed process|oom-kill:|oom_reaper: reaped|invoked oom-killer|segfault at|traps: |general protection|trap ")
LIMIT = "memory: usage "  # in the report of a group that ran out, before the line that names the process: use and limit of the group
# In: "python[12]: segfault", "Killed process 12 (python)", "oom_memcg=/a,task_memcg=/a,task=python,pid=12,uid=0".
IDS = re.compile(r"\[(\d+)\]:? |\bprocess (\d+) |\bpid=(\d+)\b")


class KernelLog:
    """The log from the moment this is made.  For a segfault the kernel names the thread's id, not the process's."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._lines: list[str] = []
        self._why = ""
        self._descriptor = -1
        if not wanted:
            self._why = "not asked for"
            return
        try:
            self._descriptor = os.open(DEVICE, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self._descriptor, 0, os.SEEK_END)
        except OSError as problem:
            self._why = f"{DEVICE}: {problem.strerror}" if sys.platform == "linux" else f"{sys.platform} has no {DEVICE}"

    def lines_for(self, pids: set[int]) -> tuple[list[str], NotCollected | None]:
        """Lines that name one of these process or thread ids, as "[seconds since boot] text", with the limit that one of them met, and
        why they may be missing.

        May be called again: the kernel writes a line a moment after the death that it is about.
        """
        if self._descriptor >= 0:
            self._read()
        found, limit = list[str](), list[str]()
        for line in self._lines:
            if LIMIT in line:
                limit = [line]
            elif any(whole(number) in pids for number in _ids(line)):
                found += [*limit, line] if "oom-kill:constraint=CONSTRAINT_MEMCG" in line else [line]
            if "oom-kill:" in line:
                limit = []
        return found, NotCollected(what="kernel log", why=self._why) if self._why else None

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()

    def _read(self) -> None:
        """Every record is one read; a reader that fell behind gets EPIPE once and goes on with the oldest that is left."""
        while True:
            try:
                record = os.read(self._descriptor, RECORD_BYTES)
            except BrokenPipeError:
                self._why = "the kernel overwrote part of its log before it was read"
                continue
            except OSError as problem:
                if not isinstance(problem, BlockingIOError):
                    self._why = f"{DEVICE}: {problem.strerror}"
                return
            if (line := _line(record)) and len(self._lines) < KEPT:
                self._lines.append(line)


def history() -> tuple[list[str], str]:
    """The lines about deaths of all processes that the kernel still has, and why they may be missing ("": they are not)."""
    log = KernelLog()
    if log._descriptor >= 0:
        os.lseek(log._descriptor, 0, os.SEEK_SET)
        log._read()
    log.close()
    return log._lines, log._why


SystemLog = KernelLog | UnifiedLog


def system_log(*, wanted: bool = True) -> SystemLog:
    """The log of this system about deaths, from now on."""
    return UnifiedLog(wanted=wanted) if sys.platform == "darwin" else KernelLog(wanted=wanted)


def _line(record: bytes) -> str | None:
    """Text of a record `priority,sequence,microseconds,flags;text`, when it tells of a death."""
    head, _, rest = record.decode("utf-8", "replace").partition(";")
    text = rest.partition("\n")[0]
    fields = head.split(",")
    if len(fields) < 3 or not fields[2].isdecimal() or not (DEATH.search(text) or text.startswith(LIMIT)):
        return None
    return f"[{whole(fields[2]) / 1e6:.6f}] {text}"


def _ids(line: str) -> list[str]:
    return ["".join(groups) for groups in IDS.findall(line.partition("] ")[2])]
