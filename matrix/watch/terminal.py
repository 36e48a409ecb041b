"""The user's terminal: what the program writes is shown on it as it comes, and what is typed reaches the program.

Its mode is changed only while this process is in its foreground: keys arrive one by one and are echoed by the program's own terminal.
Ctrl-C and Ctrl-Z stay signals, so they reach the recorder, which hands them on.
"""

from __future__ import annotations

import collections
import contextlib
import fcntl
import os
import select
import stat
import struct
import termios
import threading

BACKLOG = 1 << 20  # bytes that wait for a slow reader
PATIENCE_S = 2.0  # for what is still to be shown at the end


class Outlet:
    """One descriptor of the user's, written by a thread of its own where that may block: a terminal whose connection is dead does for
    minutes.  To wake the thread costs as much as all the rest, so a file, and a pipe that has room, are written at once."""

    def __init__(self, descriptor: int) -> None:
        """What a terminal is too slow for is left out; of a pipe `full` says when to wait."""
        self.dead = False  # nobody reads it any more
        self.is_terminal = os.isatty(descriptor)
        self._descriptor = descriptor
        self._at_once = BACKLOG if _is_file(descriptor) else select.PIPE_BUF  # more, and a pipe that has room may block
        self._room = select.poll()
        self._room.register(descriptor, select.POLLOUT)
        self._writes = False  # the thread does
        self._waiting: collections.deque[bytes] = collections.deque()
        self._size = 0
        self._dropped = 0
        self._closing = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=f"outlet {descriptor}", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        return self._size > BACKLOG and not self.is_terminal and not self.dead

    def put(self, data: bytes) -> None:
        with self._change:
            if self.dead:
                return
            if self.is_terminal and self._size > BACKLOG:
                self._dropped += len(data)
                return
            if self._dropped:
                data = f"\r\n[{self._dropped} bytes not shown: this terminal was too slow; the run folder has them]\r\n".encode() + data
                self._dropped = 0
            try:
                while data and self._has_room():
                    data = data[os.write(self._descriptor, data[: self._at_once]) :]
            except OSError:
                self.dead = True
                return
            if not data:
                return
            self._waiting.append(data)
            self._size += len(data)
            self._change.notify()

    def _has_room(self) -> bool:
        """Whether a write of `_at_once` bytes comes next and does not block."""
        idle = not (self.is_terminal or self._writes or self._waiting)
        return idle and self._room.poll(0) == [(self._descriptor, select.POLLOUT)]

    def close(self) -> None:
        """Show what waits, for a moment at the most; the descriptor stays open."""
        with self._change:
            self._closing = True
            self._change.notify()
        self._thread.join(PATIENCE_S)

    def _work(self) -> None:
        while (data := self._next()) is not None:
            while data:
                try:
                    data = data[os.write(self._descriptor, data) :]
                except OSError:  # EIO of a terminal that is gone, EPIPE
                    self._die()
                    return

    def _next(self) -> bytes | None:
        with self._change:
            self._writes = False
            while not self._waiting:
                if self._closing:
                    return None
                self._change.wait()
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._size = 0
            self._writes = True
            return data

    def _die(self) -> None:
        with self._change:
            self.dead = True
            self._waiting.clear()
            self._size = 0


def _is_file(descriptor: int) -> bool:
    """Or a device like /dev/null."""
    with contextlib.suppress(OSError):
        mode = os.fstat(descriptor).st_mode
        return stat.S_ISREG(mode) or stat.S_ISCHR(mode)
    return False


class Terminal:
    """The terminal that the user's streams are on; nothing happens where there is none."""

    def __init__(self) -> None:
        self.descriptor = next((number for number in (0, 2, 1) if os.isatty(number)), None)
        self.reads = os.isatty(0)
        self._before: list[object] | None = None
        self.lost = False

    @property
    def is_ours(self) -> bool:
        """Whether this process is in its foreground, so that it may read it and set its mode."""
        with contextlib.suppress(OSError):
            return self.descriptor is not None and not self.lost and os.tcgetpgrp(self.descriptor) == os.getpgrp()
        return False

    @property
    def is_set(self) -> bool:
        return self._before is not None

    def set_mode(self) -> None:
        """Keys one by one and without echo, signals as usual."""
        if self._before is None and self.reads and self.is_ours and self.descriptor is not None:
            with contextlib.suppress(termios.error):
                self._before = termios.tcgetattr(self.descriptor)
                mode = list(self._before)
                mode[3] &= ~(termios.ICANON | termios.ECHO)  # type: ignore[operator]
                termios.tcsetattr(self.descriptor, termios.TCSADRAIN, mode)  # type: ignore[arg-type]

    def restore(self) -> None:
        if self._before is not None and self.descriptor is not None:
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self.descriptor, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]
            self._before = None

    def size(self) -> bytes | None:
        if self.descriptor is None:
            return None
        with contextlib.suppress(OSError):
            return fcntl.ioctl(self.descriptor, termios.TIOCGWINSZ, bytes(8))
        return None


def inner(size: bytes | None) -> tuple[int, int]:
    """A terminal for the program, (our end, its end): it passes lines on as they are, and the user's turns them into its own."""
    ours, theirs = os.openpty()
    mode = termios.tcgetattr(theirs)
    mode[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, mode)
    os.set_blocking(ours, False)
    if size:
        resize(ours, size)
    return ours, theirs


def resize(ours: int, size: bytes) -> None:
    """`size` as TIOCGWINSZ gives it; the kernel tells the program."""
    with contextlib.suppress(OSError, struct.error):
        fcntl.ioctl(ours, termios.TIOCSWINSZ, size)
