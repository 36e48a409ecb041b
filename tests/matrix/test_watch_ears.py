"""Listening to a program's streams, and passing them on, in an order that tears nothing apart."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from types import SimpleNamespace

from matrix.watch.ears import Ears
from matrix.watch.terminal import Outlet


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


def test_a_stream_rests_after_it_was_read_and_one_that_has_ended_is_heard_no_more() -> None:
    ours, theirs = os.pipe()
    status, status_end = os.pipe()
    reads, now = list[float](), [0.0]
    source = SimpleNamespace(
        child=SimpleNamespace(status_fd=status, read_status=lambda: os.read(status, 1)),
        readers=lambda: {ours: "stdout"},
        typed=lambda: None,
        waits=lambda _: False,
    )

    def read(reader: int) -> bytes | None:
        reads.append(now[0])
        return os.read(reader, 100) or None

    with Ears(source, read, lambda *_: 5.0, lambda: now[0]) as ears:
        os.write(theirs, b"one")
        assert ears.wait(0.0) == 0.0
        os.write(theirs, b"two")
        os.write(status_end, b"x")  # the end of the program is heard while its output rests
        assert ears.wait(100.0) == 5.0
        now[0] = 6.0
        assert ears.wait(6.0) == 6.0
        os.close(theirs)
        now[0] = 12.0
        ears.wait(12.0)
        now[0] = 24.0
        ears.wait(24.0)
    assert reads == [0.0, 6.0, 12.0]
    for descriptor in (ours, status, status_end):
        os.close(descriptor)


# ------------------------------------------------------------------ and in writing them
def test_what_goes_to_a_file_is_there_at_once(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        outlet = Outlet(log.fileno())
        for number in range(3):
            outlet.put(b"line %d\n" % number)
            assert (tmp_path / "log").stat().st_size == 7 * (number + 1)
        outlet.close()


def test_a_pipe_that_nobody_reads_holds_nobody_up_and_gets_everything_in_order() -> None:
    ours, theirs = os.pipe()
    outlet, sent = Outlet(theirs), list[bytes]()
    while not outlet.full:
        sent.append(b"%d " % len(sent) * 1000)
        outlet.put(sent[-1])
    got = b""
    while len(got) < sum(map(len, sent)):
        got += os.read(ours, 1 << 16)
    sent.append(b"the end")
    outlet.put(sent[-1])
    outlet.close()
    os.close(theirs)
    while data := os.read(ours, 1 << 16):
        got += data
    os.close(ours)
    assert got == b"".join(sent)


def test_a_pipe_whose_reader_has_gone_is_written_no_more() -> None:
    ours, theirs = os.pipe()
    outlet = Outlet(theirs)
    outlet.put(b"x")
    os.close(ours)
    while not outlet.dead:
        outlet.put(b"x")
    outlet.close()
    os.close(theirs)
