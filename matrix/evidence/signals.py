"""Who sent a signal: from the kernel's own trace of signals (perf_event_open on `signal:signal_generate`), with nothing written anywhere.

A process that dies of SIGKILL or SIGTERM cannot tell by whom, and no wait status does.  One descriptor for each processor, with a
filter in the kernel, read twice a second; for root, or where perf_event_paranoid is -1.  One watch serves all attempts: to begin
and to end a trace makes the kernel wait for every processor, which takes longer than the rest of a short attempt.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import dataclasses
import functools
import mmap
import os
import re
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from matrix.evidence.exit import signal_name
from matrix.kernel_text import kernel_text

NAMES = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGABRT", "SIGKILL", "SIGTERM", "SIGXCPU")
BY_A_PROCESS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGALRM", "SIGVTALRM", "SIGPROF")  # the kernel's own are many, and tell nothing
SI_USER, SI_QUEUE, SI_TIMER = 0, -1, -2  # codes of a signal: kill, sigqueue, and a timer of timer_create
EVENT = "events/signal/signal_generate"
TRACEFS = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
FIELD = re.compile(r"field:[^;]*?\b(\w+)(?:\[\d+\])?;\s*offset:(\d+);")
SYSCALL = {"x86_64": 298, "aarch64": 241, "riscv64": 241}  # perf_event_open
TYPE_TRACEPOINT, SAMPLE_TID_TIME_RAW = 2, 1 << 1 | 1 << 2 | 1 << 10
USE_CLOCKID = 1 << 25
ATTR_BYTES = 112
SET_FILTER = 0x40082406
CLOEXEC = 8
PAGES = 4  # of samples for each processor: some 200
DATA_HEAD, DATA_TAIL = 1024, 1032  # in the first page
RECORD_SAMPLE = 9
MOST_EVENTS = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class Event:
    signal: str
    to_pid: int
    from_pid: int  # 0: the kernel itself
    from_name: str  # "": it was gone when it was looked up
    by_timer: bool  # of timer_create, which runs out in whatever process is running at that moment
    monotonic_s: float


class SignalWatch:
    """Signals to any process from the moment this is made, the latest 2,000.  May be read from several threads."""

    def __init__(self) -> None:
        self.why_not = ""
        self._events: collections.deque[Event] = collections.deque(maxlen=MOST_EVENTS)
        self._lock = threading.Lock()
        self._rings: list[tuple[int, mmap.mmap]] = []
        try:
            self._open(*_tracepoint())
        except OSError as problem:
            self.why_not = f"the kernel's trace of signals cannot be had here: {problem.strerror or problem}"
            self.close()

    def read(self) -> list[Event]:
        """Those that are known by now; does not wait."""
        with self._lock:
            for _, ring in self._rings:
                self._events.extend(self._event(body) for body in _samples(ring))
            return list(self._events)

    def close(self) -> None:
        for descriptor, ring in self._rings:
            ring.close()
            os.close(descriptor)
        self._rings = []

    def _open(self, event: int, offsets: dict[str, int]) -> None:
        self._offsets = offsets
        text = ctypes.create_string_buffer(_filter().encode())
        for cpu in range(os.cpu_count() or 1):
            descriptor = _perf_event(event, cpu)
            if descriptor is None:  # a processor that is switched off
                continue
            self._rings.append((descriptor, mmap.mmap(descriptor, (1 + PAGES) * mmap.PAGESIZE)))
            if _libc().ioctl(descriptor, SET_FILTER, text):
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def _event(self, body: bytes) -> Event:
        """Body of a sample: pid and tid of who ran, time, size and fields of the trace."""
        sender, _, nanoseconds, _ = struct.unpack_from("=IIQI", body, 0)
        fields = {name: struct.unpack_from("=i", body, 20 + self._offsets[name])[0] for name in ("sig", "code", "pid")}
        sender = 0 if fields["code"] > 0 or fields["code"] == SI_TIMER else sender
        return Event(
            signal=signal_name(fields["sig"]) or str(fields["sig"]),
            to_pid=fields["pid"],
            from_pid=sender,
            from_name=_name(sender) if sender else "",
            by_timer=fields["code"] == SI_TIMER,
            monotonic_s=nanoseconds / 1e9,
        )


def _filter() -> str:
    """In the words of the kernel's trace filters."""
    always, sent = (" || ".join(f"sig == {int(getattr(signal, name))}" for name in names) for names in (NAMES, BY_A_PROCESS))
    return f"{always} || ((code == {SI_USER} || code == {SI_QUEUE}) && ({sent}))"


@functools.cache
def watch() -> SignalWatch:
    """The one of this process, from its first use to the process's end."""
    return SignalWatch()


def _samples(ring: mmap.mmap) -> Iterator[bytes]:
    """Bodies of the samples that were not read yet."""
    head, tail = (struct.unpack_from("=Q", ring, at)[0] for at in (DATA_HEAD, DATA_TAIL))
    size = PAGES * mmap.PAGESIZE
    while tail < head:
        kind, _, length = struct.unpack("=IHH", _around(ring, tail, 8, size))
        if kind == RECORD_SAMPLE:
            yield _around(ring, tail, length, size)[8:]
        tail += length
    struct.pack_into("=Q", ring, DATA_TAIL, tail)


def _around(ring: mmap.mmap, at: int, length: int, size: int) -> bytes:
    start = at % size
    first = min(length, size - start)
    data = mmap.PAGESIZE
    return ring[data + start : data + start + first] + ring[data : data + length - first]


def _perf_event(event: int, cpu: int) -> int | None:
    number = SYSCALL.get(os.uname().machine)
    if number is None:
        raise OSError(0, f"the number of perf_event_open on {os.uname().machine} is not known here")
    attr = bytearray(ATTR_BYTES)
    struct.pack_into("=IIQQQQQ", attr, 0, TYPE_TRACEPOINT, ATTR_BYTES, event, 1, SAMPLE_TID_TIME_RAW, 0, USE_CLOCKID)
    struct.pack_into("=i", attr, 92, 1)  # CLOCK_MONOTONIC
    buffer = (ctypes.c_char * ATTR_BYTES).from_buffer(attr)
    descriptor = _libc().syscall(number, buffer, -1, cpu, -1, CLOEXEC)
    if descriptor >= 0:
        return int(descriptor)
    if ctypes.get_errno() == 19:  # ENODEV
        return None
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@functools.cache
def _tracepoint() -> tuple[int, dict[str, int]]:
    """Number of the event and where its fields are.  Raises OSError.  tracefs is mounted for a moment in a namespace of its own."""
    if sys.platform != "linux":
        raise OSError(0, f"{sys.platform} has none")
    for root in TRACEFS:
        with contextlib.suppress(OSError):
            text = kernel_text(root / EVENT / "format")
            break
    else:
        script = f"mount -t tracefs nodev {TRACEFS[0]} && cat {TRACEFS[0] / EVENT / 'format'}"
        try:
            done = subprocess.run(["unshare", "-m", "sh", "-c", script], stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
        except subprocess.SubprocessError as problem:
            raise OSError(0, f"tracefs: {problem}") from None
        text = done.stdout.decode(errors="replace")
    number = re.search(r"^ID: (\d+)$", text, re.M)
    if number is None:
        raise OSError(0, "tracefs is not mounted and may not be")
    return int(number[1]), {name: int(offset) for name, offset in FIELD.findall(text)}


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _name(pid: int) -> str:
    with contextlib.suppress(OSError):
        return kernel_text(f"/proc/{pid}/comm").strip()
    return ""
