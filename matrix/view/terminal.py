"""A picture at the bottom of a terminal that is redrawn in place, with permanent lines that scroll away above it.

The cursor always rests at the picture's top left corner.  So nothing needs to be remembered about what was drawn:
"erase from the cursor down" is right after an interrupt at any moment, and after a resize in terminals that wrap old
lines anew as well as in those that cut them, because all of them keep the cursor at its character.  (Only when wrapping
pushes the picture's top out of the screen, what is left of it stays in the scrollback.)  While the picture is drawn the
terminal does not wrap lines, so a character that is wider than we believe cannot push the rest down.

Everything happens in the caller's thread.  Writing never blocks: when nobody reads (a frozen ssh connection, Ctrl-S)
pictures are left out and permanent lines wait.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import termios
import threading
from collections.abc import Sequence

HIDE, SHOW = "\x1b[?25l", "\x1b[?25h"
ERASE_BELOW, ERASE_RIGHT = "\x1b[J", "\x1b[K"
NO_WRAP, WRAP = "\x1b[?7l", "\x1b[?7h"
BEGIN, END = "\x1b[?2026h", "\x1b[?2026l"  # drawn at once by terminals that know it, ignored by the others
LAST_WORDS_S = 1.0  # how long leaving waits for somebody to read
PLAIN_SIGNS = str.maketrans({"─": "-", "…": "~"})


class Terminal:
    """`descriptor` is a terminal.  Use from the main thread, between `enter` and `leave`."""

    def __init__(self, descriptor: int, encoding: str = "utf-8") -> None:
        self._encoding = encoding
        self._fd = _own(descriptor)
        self._waiting: list[str] = []  # permanent lines that are not on their way yet
        self._unsent = b""
        self._saved: list[int | list[bytes | int]] | None = None  # the terminal's settings, while they are changed
        self._gone = False  # it was hung up
        self._suspend = False
        self._old_handler: signal._HANDLER = None

    # -------------------------------------------------------------- coming and going
    def enter(self) -> None:
        """Ctrl-Z from now on waits for the next `show`, which leaves a tidy screen first.  The terminal is not touched yet."""
        if signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL:
            self._old_handler = signal.signal(signal.SIGTSTP, self._asked_to_suspend)

    def leave(self) -> None:
        """Write what waits, erase the picture, give the terminal back as it was."""
        said = self._said()
        if self._in_front():
            self._give_back(f"\r{ERASE_BELOW}{said}")
        else:
            self._send(said)
        if self._old_handler is not None:
            signal.signal(signal.SIGTSTP, self._old_handler)
            self._old_handler = None
        os.close(self._fd)

    def _asked_to_suspend(self, *_: object) -> None:
        self._suspend = True

    def _stop_here(self) -> None:
        """What Ctrl-Z does to a program that does not care; returns when the shell says to go on."""
        self._suspend = False
        if self._in_front():
            self._give_back(f"\r{ERASE_BELOW}")
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        signal.pthread_kill(threading.get_ident(), signal.SIGTSTP)  # to this thread: it takes effect before the next line
        signal.signal(signal.SIGTSTP, self._asked_to_suspend)

    def _take(self) -> None:
        """Keys must not be echoed: a line feed would move the cursor out of its corner.  Ctrl-C stays as it is."""
        if self._saved is None:
            with contextlib.suppress(termios.error):
                self._saved = termios.tcgetattr(self._fd)
                changed = [*self._saved]
                changed[3] = int(self._saved[3]) & ~termios.ECHO  # type: ignore[arg-type]
                termios.tcsetattr(self._fd, termios.TCSANOW, changed)

    def _give_back(self, text: str) -> None:
        """Only while it is ours: to change the settings from the background would stop us."""
        self._send(text + WRAP + SHOW)
        while self._unsent and select.select([], [self._fd], [], LAST_WORDS_S)[1]:
            self._flush()
        self._unsent = b""
        if self._saved is not None:
            saved, self._saved = self._saved, None
            with contextlib.suppress(termios.error):
                termios.tcsetattr(self._fd, termios.TCSANOW, saved)

    # -------------------------------------------------------------- drawing
    @property
    def size(self) -> os.terminal_size:
        """(columns, lines); asked anew each time, so a resize needs no signal."""
        with contextlib.suppress(OSError):
            size = os.get_terminal_size(self._fd)
            if size.columns and size.lines:
                return size
        return os.terminal_size((80, 24))

    def say(self, line: str) -> None:
        """A permanent line, written with the next picture.  It may be longer than the screen is wide."""
        self._waiting.append(line)

    def show(self, picture: Sequence[str]) -> None:
        """Draw lines that are shorter than the screen is wide and fewer than it is high, in the place of those before."""
        if self._suspend:
            self._stop_here()
        self._flush()
        if self._unsent:
            return
        said = self._said()
        if self._in_front():
            self._take()
            body = f"{ERASE_RIGHT}\r\n".join(picture)
            up = f"\x1b[{len(picture) - 1}A" if len(picture) > 1 else ""
            above = f"{ERASE_BELOW}{WRAP}{said}" if said else ""
            self._send(f"{BEGIN}{HIDE}\r{above}{NO_WRAP}{body}{ERASE_BELOW}{up}\r{WRAP}{END}")
        else:
            self._send(said)

    def _said(self) -> str:
        said = "".join(f"{line}\r\n" for line in self._waiting)
        self._waiting.clear()
        return said

    def _in_front(self) -> bool:
        return not self._gone and is_ours(self._fd)

    def _send(self, text: str) -> None:
        if self._gone:
            return
        try:
            self._unsent += text.encode(self._encoding)
        except UnicodeEncodeError:
            self._unsent += text.translate(PLAIN_SIGNS).encode(self._encoding, "replace")
        self._flush()

    def _flush(self) -> None:
        """As much as it takes without waiting."""
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._fd, self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:  # it was hung up
            self._gone, self._unsent = True, b""


def is_ours(descriptor: int) -> bool:
    """Whether this is a terminal that we may draw on; in a background job it is somebody else's who is typing."""
    try:
        return os.tcgetpgrp(descriptor) == os.getpgrp()
    except OSError:
        return False


def _own(descriptor: int) -> int:
    """A descriptor of our own to the same terminal: not blocking must not become a property of the shell's one."""
    try:
        return os.open(os.ttyname(descriptor), os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:  # its name is of another mount namespace
        return os.dup(descriptor)
