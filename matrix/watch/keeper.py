"""The keeper: it holds the ends of a watched program's output, and passes the output on once the recorder is gone.

A program dies of its next print when nobody holds the other end of its pipe.  So a second process holds these ends: it waits
until the recorder has ended, for whatever reason, and then copies until no process has the other end open.

It runs as a script of its own (`python -I -S keeper.py CONTROL READER:OUT...`) and imports only light parts of the
standard library.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

READ_BYTES = 1 << 16
# Meant for the program or for the recorder; and a write to a terminal in the background must not stop this process.
IGNORED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGTSTP", "SIGTTOU", "SIGPIPE", "SIGUSR1", "SIGUSR2")


def main(control: int, ways: dict[int, int]) -> None:
    for name in IGNORED:
        signal.signal(getattr(signal, name), signal.SIG_IGN)
    while os.read(control, 1):  # nothing is ever written: this ends with the recorder
        pass
    pass_on(ways)


def pass_on(ways: dict[int, int]) -> None:
    """Copy each reader to its descriptor until all readers have ended."""
    poll = select.poll()
    for reader in ways:
        poll.register(reader, select.POLLIN)
    left = set(ways)
    while left:
        for reader, _ in poll.poll():
            if not copy_once(reader, ways[reader]):
                poll.unregister(reader)
                left.discard(reader)


def copy_once(reader: int, out: int) -> bool:
    """Copy what is there; False at the end.  Where nobody reads `out` any more, the program's output is dropped."""
    try:
        data = os.read(reader, READ_BYTES)
    except BlockingIOError:
        return True
    except OSError:  # a terminal whose other side is closed
        return False
    with contextlib.suppress(OSError):
        left = memoryview(data)
        while left:
            left = left[os.write(out, left) :]
    return bool(data)


if __name__ == "__main__":
    pairs = [word.partition(":") for word in sys.argv[2:]]
    main(int(sys.argv[1]), {int(reader): int(out) for reader, _, out in pairs})
