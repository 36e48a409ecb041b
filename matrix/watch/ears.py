"""What wakes the recorder: the end of the program, its output, and the keyboard."""

from __future__ import annotations

import selectors
from collections.abc import Callable, Iterator
from typing import Protocol

from matrix.runner.launcher import Child

REST_S = 0.03  # at least, before the same output is read again


class Source(Protocol):
    """What is followed: a command of our own, or a process that was there."""

    child: Child

    def readers(self) -> dict[int, str]: ...
    def take(self, reader: int, data: bytes) -> None: ...
    def waits(self, reader: int) -> bool: ...
    def polled(self) -> Iterator[tuple[str, bytes]]: ...
    def typed(self) -> int | None: ...
    def type(self) -> bool: ...
    def interrupted_s(self) -> float | None: ...
    def asked_s(self) -> float | None: ...
    def left(self) -> bool: ...


class Ears:
    def __init__(
        self, source: Source, read: Callable[[int], bytes | None], hear: Callable[[int, str, bytes], float], now: Callable[[], float]
    ) -> None:
        """`read`: takes what is there of a reader, None: it has ended; `hear`: is given it and says how long that reader may rest."""
        self._source, self._read, self._hear, self._now = source, read, hear, now
        self._readers = source.readers()
        self._resting: dict[int, float] = {}  # reader -> when it is listened to again
        self._keyboard: int | None = None  # while it is listened to
        self._deaf = False  # nothing more will be typed
        self._selector = selectors.DefaultSelector()
        for descriptor in (source.child.status_fd, *self._readers):
            self._selector.register(descriptor, selectors.EVENT_READ)

    def wait(self, due_s: float) -> float:
        """Until something is to be heard and was taken, or that time has come; the time until which it would have waited."""
        self._rouse()
        self._listen()
        due_s = min([due_s, *self._resting.values()])
        for key, _ in self._selector.select(max(0.0, due_s - self._now())):
            if key.fd == self._source.child.status_fd:
                self._source.child.read_status()
            elif key.fd in self._readers and key.fd not in self._resting:
                self._take_all()
            elif key.fd == self._keyboard and not self._source.type():
                self._deaf = True
        return due_s

    def _take_all(self) -> None:
        """All streams at once, and then all of them rest.  The last is read first and passed on last: what was written to an earlier
        one before it is there by then, so that a line and a bar are not torn apart."""
        awake = [reader for reader in self._readers if reader in self._selector.get_map()]
        taken = {reader: self._read(reader) for reader in reversed(awake)}
        rests = [self._hear(reader, self._readers[reader], data) for reader in awake if (data := taken[reader])]
        until = self._now() + max(rests, default=REST_S)
        for reader in awake:
            self._selector.unregister(reader)
            if taken[reader] is not None:
                self._resting[reader] = until

    def _rouse(self) -> None:
        for reader in [reader for reader, until in self._resting.items() if until <= self._now()]:
            if self._source.waits(reader):
                self._resting[reader] = self._now() + REST_S
            else:
                del self._resting[reader]
                self._selector.register(reader, selectors.EVENT_READ)

    def _listen(self) -> None:
        """To the keyboard, while it is ours."""
        wanted = None if self._deaf else self._source.typed()
        if wanted == self._keyboard:
            return
        if self._keyboard is not None:
            self._selector.unregister(self._keyboard)
        if wanted is not None:
            self._selector.register(wanted, selectors.EVENT_READ)
        self._keyboard = wanted

    def __enter__(self) -> Ears:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
