"""A process that was there before: followed from outside without stopping it, by its descriptor, its files and the kernel's events."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from matrix.evidence.exits import ExitWatch
from matrix.evidence.pidfds import status_of
from matrix.evidence.processes import command
from matrix.kernel_text import kernel_text
from matrix.runner.launcher import Child, Ended

WAIT_S = 2.0  # for its parent to take its status
TAIL_BYTES = 1 << 20  # of a log are read when we begin: the step that it has reached is there
READ_BYTES = 1 << 20
WORKS_S = 1.0  # for the kernel to tell of a child of our own


class NoSuchProcess(Exception):
    """There is no such process, or this user may not look at it."""


class OtherChild(Child):
    """A process that is nobody's child here."""

    def __init__(self, pid: int) -> None:
        super().__init__(os.pidfd_open(pid))
        self.pid = pid
        self.gone = False

    @property
    def over(self) -> bool:
        return self.gone

    def read_status(self) -> None:
        """To be called when the descriptor is readable: it has ended."""
        self.gone = True

    def settle(self, exits: ExitWatch, *, events_work: bool) -> str:
        """Find out how it ended; why that is not known, or "".  An end that nobody tells of was status 0 where all others are told."""
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            exits.read()
            event = exits.events.get(self.pid or 0)
            status = event.status if event else _of_zombie(self.pid or 0)
            status = status_of(self.status_fd) if status is None else status
            if status is None and events_work and not Path(f"/proc/{self.pid}").exists():
                exits.read()
                event = exits.events.get(self.pid or 0)
                status = event.status if event else 0
            if status is not None:
                self.ended = Ended(status=status, maxrss_bytes=0, cpu_s=0.0, preempted=0, yielded=0)
                return ""
            time.sleep(0.05)
        return "only its parent may ask for it: the kernel's process events need root, and descriptors tell it from Linux 6.15 on"


def _of_zombie(pid: int) -> int | None:
    """Wait status of a process that nobody has waited for yet, to those who may trace it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        words = kernel_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
        if words[0] in "ZX" and (status := int(words[49])):  # to others it reads 0
            return status
    return None


def events_work(exits: ExitWatch) -> bool:
    """Whether the kernel tells of the end of a child of our own: in some containers it takes the request and sends nothing."""
    if exits.fileno() < 0:
        return False
    with contextlib.suppress(OSError):
        child = subprocess.Popen(["/bin/sh", "-c", "exit 3"], stdin=subprocess.DEVNULL)
        child.wait()
        deadline = time.monotonic() + WORKS_S
        while time.monotonic() < deadline:
            exits.read()
            if child.pid in exits.events:
                return True
            time.sleep(0.01)
    return False


class Attached:
    """The source of a recorder that follows another's process; Ctrl-C and SIGTERM only end the recording."""

    def __init__(self, pid: int, logs: dict[str, Path]) -> None:
        """Raises NoSuchProcess."""
        try:
            self.child: Child = OtherChild(pid)
            self.argv = command(pid)
            self.cwd = str(Path(f"/proc/{pid}/cwd").readlink())
            words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            self.env = {os.fsdecode(name): os.fsdecode(value) for name, _, value in (word.partition(b"=") for word in words if word)}
        except ProcessLookupError as problem:
            raise NoSuchProcess(f"there is no process {pid}; `ps` shows those that there are") from problem
        except FileNotFoundError as problem:
            raise NoSuchProcess(f"process {pid} has just ended") from problem
        except PermissionError as problem:
            raise NoSuchProcess(f"process {pid} is another user's: watch it as that user, or as root") from problem
        except OSError as problem:
            hint = "give the number of the process itself: a thread has none of its own here"
            raise NoSuchProcess(f"process {pid} cannot be followed: {problem.strerror}; {hint}") from problem
        if not self.argv:
            raise NoSuchProcess(f"process {pid} is the kernel's own, or has ended already")
        self.logs = logs or own_logs(pid)
        self._open = {name: path.open("rb", buffering=0) for name, path in self.logs.items()}
        for source in self._open.values():
            source.seek(max(0, source.seek(0, os.SEEK_END) - TAIL_BYTES))
        self._asked_to_leave = False
        self._handlers: dict[int, object] = {}

    def readers(self) -> dict[int, str]:
        return {}

    def take(self, reader: int, data: bytes) -> None:
        raise AssertionError("it has no reader")

    def waits(self, reader: int) -> bool:
        return False

    def is_seen(self, reader: int) -> bool:
        return False

    def polled(self) -> Iterator[tuple[str, bytes]]:
        """What its log files have got since the last time."""
        for name, source in self._open.items():
            with contextlib.suppress(OSError):
                if os.fstat(source.fileno()).st_size < source.tell():  # it was cut off and begins anew
                    source.seek(0)
                if data := source.read(READ_BYTES):
                    yield name, data

    def typed(self) -> int | None:
        return None

    def type(self) -> bool:
        return False

    def interrupted_s(self) -> float | None:
        return None

    def asked_s(self) -> float | None:
        return None

    def left(self) -> bool:
        return self._asked_to_leave

    # -------------------------------------------------------------- signals
    def take_signals(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._take(number, self._leave)
        self._take(signal.SIGHUP, lambda *_: None)

    def _take(self, number: signal.Signals, handler: Callable[[int, object], None]) -> None:
        if signal.getsignal(number) != signal.SIG_IGN:
            self._handlers[number] = signal.signal(number, handler)

    def _leave(self, _number: int, _frame: object) -> None:
        self._asked_to_leave = True

    def give_back_signals(self) -> None:
        for number, handler in self._handlers.items():
            if number != signal.SIGHUP:
                signal.signal(number, handler)  # type: ignore[arg-type]

    def close(self) -> None:
        for source in self._open.values():
            source.close()
        self.child.close()


def own_logs(pid: int) -> dict[str, Path]:
    """Files that its output goes to, as under nohup or a scheduler; {} when it writes to a terminal or a pipe."""
    found: dict[str, Path] = {}
    for number, name in ((1, "stdout"), (2, "stderr")):
        with contextlib.suppress(OSError):
            path = Path(f"/proc/{pid}/fd/{number}").readlink()
            if path.is_absolute() and path.is_file() and path not in found.values():
                found[name] = path
    return found
