"""Listening to a program's streams in an order that tears nothing apart."""

from __future__ import annotations

import itertools
import os
from types import SimpleNamespace

from matrix.watch.ears import Ears


def test_a_line_that_was_written_before_a_bar_is_passed_on_whole_before_it() -> None:
    """The end of the line comes after the reader was woken by its beginning, and the bar comes after that."""
    lines, line_end = os.pipe()
    bars, bar_end = os.pipe()
    status, status_end = os.pipe()
    os.set_blocking(lines, False)
    os.set_blocking(bars, False)
    source = SimpleNamespace(
        child=SimpleNamespace(status_fd=status),
        readers=lambda: {lines: "stdout", bars: "stderr"},
        typed=lambda: None,
        waits=lambda _: False,
    )
    heard, went_on, clock = list[bytes](), list[bool](), itertools.count(step=0.1)

    def read(reader: int) -> bytes | None:
        try:
            return os.read(reader, 100)
        except BlockingIOError:
            return b""
        finally:
            if not went_on:  # between the two reads
                went_on.append(True)
                os.write(line_end, b" of it\n")
                os.write(bar_end, b"\r1%|###|")

    def hear(reader: int, name: str, data: bytes) -> float:
        heard.append(data)
        return 0.03

    os.write(line_end, b"all")
    with Ears(source, read, hear, lambda: next(clock)) as ears:
        while len(heard) < 2:
            ears.wait(1000.0)
    assert heard == [b"all of it\n", b"\r1%|###|"]
    for descriptor in (lines, line_end, bars, bar_end, status, status_end):
        os.close(descriptor)
