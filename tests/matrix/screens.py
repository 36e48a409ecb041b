"""A real program under a real pseudo-terminal, and the screen that a terminal emulator makes of what it writes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pyte

PATIENCE_S = 30.0


class Screen:
    """`argv` is the leader of a session of its own whose terminal has the given size."""

    def __init__(self, argv: list[str], cwd: Path, *, columns: int = 80, lines: int = 24, env: Mapping[str, str] | None = None) -> None:
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            try:
                _set_size(0, columns, lines)
                for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
                    signal.signal(number, signal.SIG_DFL)  # as a shell leaves them, whatever runs the tests
                os.chdir(cwd)
                os.environ.pop("NO_COLOR", None)
                os.environ.update({"TERM": "xterm-256color", **(env or {})})
                os.execvp(argv[0], argv)
            finally:
                os._exit(127)
        self._emulator = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._emulator)
        self.written = b""

    # -------------------------------------------------------------- what a person does
    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def resize(self, columns: int, lines: int) -> None:
        _set_size(self._fd, columns, lines)  # the kernel sends SIGWINCH
        self._emulator.resize(lines, columns)

    def hang_up(self) -> None:
        os.close(self._fd)
        self._fd = -1

    # -------------------------------------------------------------- what a person sees
    @property
    def rows(self) -> list[str]:
        return [row.rstrip() for row in self._emulator.display]

    @property
    def text(self) -> str:
        return "\n".join(self.rows).rstrip()

    @property
    def last_row(self) -> str:
        """The last one that is not empty."""
        return self.text.rpartition("\n")[2]

    @property
    def cursor_is_hidden(self) -> bool:
        return bool(self._emulator.cursor.hidden)

    @property
    def echoes(self) -> bool:
        return bool(termios.tcgetattr(self._fd)[3] & termios.ECHO)

    def count(self, text: str) -> int:
        return self.text.count(text)

    def until(self, what: str | Callable[[], bool]) -> None:
        """Read until a text is on the screen, or a condition holds."""
        holds = (lambda: what in self.text) if isinstance(what, str) else what
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            alive = self._read()
            assert holds() or (alive and time.monotonic() < deadline), f"never seen: {what}; the screen at last:\n{self.text}"

    def end(self) -> int:
        """Read to the end; the exit status, negative for a signal."""
        deadline = time.monotonic() + PATIENCE_S
        while self._read():
            assert time.monotonic() < deadline, f"it does not end; the screen at last:\n{self.text}"
        return self.reap()

    def reap(self) -> int:
        """Wait for the end without reading; the exit status, negative for a signal."""
        deadline = time.monotonic() + PATIENCE_S
        while not (ended := os.waitpid(self.pid, os.WNOHANG))[0]:
            assert time.monotonic() < deadline, "it does not end when nobody reads what it writes"
            time.sleep(0.01)
        self.pid = 0
        return os.waitstatus_to_exitcode(ended[1])

    def close(self) -> None:
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            self.reap()
        if self._fd >= 0:
            self.hang_up()

    def _read(self) -> bool:
        """What is there within a moment; False at the end."""
        if not select.select([self._fd], [], [], 0.1)[0]:
            return True
        try:
            data = os.read(self._fd, 1 << 16)
        except OSError:  # how Linux says that the other side is closed
            return False
        self.written += data
        self._stream.feed(data)
        return bool(data)


def _set_size(descriptor: int, columns: int, lines: int) -> None:
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
