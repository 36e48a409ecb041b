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
    def is_seen(self, reader: int) -> bool: ...
    def polled(self) -> Iterator[tuple[str, bytes]]: ...
    def typed(self) -> int | None: ...
    def type(self) -> bool: ...
    def interrupted_s(self) -> float | None: ...
    def asked_s(self) -> float | None: ...
    def left(self) -> bool: ...


class Ears:
    """Two selectors, of which that without the streams is asked while these rest: to take a stream out and put it back costs as much
    as to read it."""

    def __init__(
        self, source: Source, read: Callable[[int], bytes | None], hear: Callable[[int, str, bytes], float], now: Callable[[], float]
    ) -> None:
        """`read`: takes what is there of a reader, None: it has ended; `hear`: is given it and says how long the readers may rest."""
        self._source, self._read, self._hear, self._now = source, read, hear, now
        self._readers = dict(source.readers())  # those that have not ended
        self._rest_until_s = 0.0
        self._keyboard: int | None = None  # while it is listened to
        self._deaf = False  # nothing more will be typed
        self._awake, self._resting = selectors.DefaultSelector(), selectors.DefaultSelector()
        for selector in (self._awake, self._resting):
            selector.register(source.child.status_fd, selectors.EVENT_READ)
        for reader in self._readers:
            self._awake.register(reader, selectors.EVENT_READ)

    def wait(self, due_s: float) -> float:
        """Until something is to be heard and was taken, or that time has come; the time until which it would have waited."""
        self._listen()
        now_s = self._now()
        rests = bool(self._readers) and now_s < self._rest_until_s
        due_s = min(due_s, self._rest_until_s) if rests else due_s
        heard = (self._resting if rests else self._awake).select(max(0.0, due_s - now_s))
        for key, _ in heard:
            if key.fd == self._source.child.status_fd:
                self._source.child.read_status()
            elif key.fd == self._keyboard and not self._source.type():
                self._deaf = True
        if any(key.fd in self._readers for key, _ in heard):
            self._take_all()
        return due_s

    def _take_all(self) -> None:
        """All streams at once, and then all of them rest.  The last is read first and passed on last: what was written to an earlier
        one before it is there by then, so that a line and a bar are not torn apart."""
        free = [reader for reader in self._readers if not self._source.waits(reader)]
        taken = {reader: self._read(reader) for reader in reversed(free)}
        rests = [self._hear(reader, self._readers[reader], data) for reader in free if (data := taken[reader])]
        self._rest_until_s = self._now() + max(rests, default=REST_S)
        for reader in free:
            if taken[reader] is None:
                self._awake.unregister(reader)
                del self._readers[reader]

    def _listen(self) -> None:
        """To the keyboard, while it is ours."""
        wanted = None if self._deaf else self._source.typed()
        if wanted == self._keyboard:
            return
        for selector in (self._awake, self._resting):
            if self._keyboard is not None:
                selector.unregister(self._keyboard)
            if wanted is not None:
                selector.register(wanted, selectors.EVENT_READ)
        self._keyboard = wanted

    def __enter__(self) -> Ears:
        return self

    def __exit__(self, *_: object) -> None:
        self._awake.close()
        self._resting.close()
