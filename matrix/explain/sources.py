"""Files that people have left of a death, read with bounded memory: the head, the tail, and the kernel's lines in between."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from matrix.evidence import kernel
from matrix.explain.part import Line

HEAD_BYTES, TAIL_BYTES, BLOCK_BYTES = 1 << 20, 4 << 20, 1 << 20
LOOK_BYTES, END_BYTES = 4096, 128  # of the beginning and of the end tell text from anything else
KEPT_LINES = 2000
LINE_CHARS = 1000
# Some line of the kernel about a death has one of these; a block without them holds none.
WORDS = (b"illed process", b"oom-kill:", b"oom-killer", b"oom_kill", b"segfault at", b"traps: ", b"general protection", b"trap ")
SLURM = re.compile(r"oom[_-]kill event")


class Unreadable(Exception):
    """A source that cannot be read, or that is empty."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Source:
    name: str  # as people gave it
    path: Path
    size: int
    head: bytes  # at most 1 MiB
    tail: str  # at most 4 MiB, of the text
    tail_line: int  # number of the tail's first line
    lines: int
    kernel: list[Line]

    @property
    def whole(self) -> bool:
        """Whether the tail is all of it."""
        return self.size <= TAIL_BYTES

    def place(self, words: str) -> str:
        """`name:line` of the first line of the tail that holds these words; the name alone when none does."""
        at = self.tail.find(words) if words else -1
        if at < 0:
            return self.name
        return f"{self.name}:{self.tail_line + self.tail.count(chr(10), 0, at + words.startswith(chr(10)))}"

    @property
    def last_place(self) -> str:
        return f"{self.name}:{self.lines}"


@contextlib.contextmanager
def opened(names: tuple[str, ...]) -> Iterator[list[Source]]:
    """Every source, `-` for stdin.  Raises Unreadable with all that is wrong at once."""
    with contextlib.ExitStack() as kept:
        found, wrong = [], []
        for name in dict.fromkeys(names):
            try:
                found.append(read("stdin" if name == "-" else name, kept.enter_context(_seekable(name))))
            except Unreadable as problem:
                wrong.append(str(problem))
            except OSError as problem:
                if problem.errno == errno.ENOSPC:  # of the copy
                    raise
                hint = f"; an exit status goes with --status {name}" if name.isdecimal() else ""
                wrong.append(f"{name}: {problem.strerror}; give a file that you may read, or - for stdin{hint}")
        if wrong:
            raise Unreadable("\n".join(wrong))
        yield found


def read(name: str, path: Path) -> Source:
    """Raises Unreadable and OSError."""
    if path.is_dir():
        raise Unreadable(
            f"{name}: is a folder; give the files in it: a log, a core, a crash report, the kernel's log (a run folder has attempts/)"
        )
    with path.open("rb") as stream:
        status = os.fstat(stream.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable(f"{name}: is a device; give a file, or - for stdin: dmesg | python -m matrix explain -")
        if not status.st_size:
            raise Unreadable(f"{name}: is empty, which proves nothing: a killed process loses what it had not flushed yet")
        return _read(name, path, stream, status.st_size)


def _read(name: str, path: Path, stream: BinaryIO, size: int) -> Source:
    head = stream.read(min(HEAD_BYTES, size))
    if _is_binary(head, stream, size):
        return Source(name=name, path=path, size=size, head=head, tail="", tail_line=1, lines=0, kernel=[])
    start = max(0, size - TAIL_BYTES)
    stream.seek(0)
    lines, found = 0, list[Line]()
    rest, at, before_tail = b"", 0, 0
    while block := stream.read(BLOCK_BYTES):
        if at <= start < at + len(block):
            before_tail = lines + block.count(b"\n", 0, start - at)
        if any(word in rest or word in block for word in WORDS) and len(found) < KEPT_LINES:
            found += _kernel(name, rest + block, lines + 1)
        lines += block.count(b"\n")
        rest = b""
        if block.rfind(b"\n") >= 0:
            rest = block[block.rfind(b"\n") + 1 :][:LINE_CHARS]
        at += len(block)
    stream.seek(start)
    tail = stream.read().decode("utf-8", "replace")
    lines += not tail.endswith("\n")
    return Source(name=name, path=path, size=size, head=head, tail=tail, tail_line=before_tail + 1, lines=lines, kernel=found[:KEPT_LINES])


def _is_binary(head: bytes, stream: BinaryIO, size: int) -> bool:
    """A log that was cut in place while it was written begins with zeros, and is text at its end."""
    stream.seek(max(0, size - END_BYTES))
    return b"\0" in head[:LOOK_BYTES] and b"\0" in stream.read(END_BYTES)


def _kernel(name: str, block: bytes, first: int) -> Iterator[Line]:
    for number, raw in enumerate(block.split(b"\n")):
        if any(word in raw for word in WORDS):
            text = raw.decode("utf-8", "replace").strip()[:LINE_CHARS]
            if kernel.DEATH.search(text) and not SLURM.search(text):
                yield Line(where=f"{name}:{first + number}", text=text)


@contextlib.contextmanager
def _seekable(name: str) -> Iterator[Path]:
    """stdin and pipes, as of `<(dmesg)`, as files: the end is wanted before the beginning."""
    path = Path(name)
    if name == "-" and sys.stdin is None:
        raise Unreadable("-: standard input is closed; give a file, or pipe one into this command")
    if name != "-" and not path.is_fifo():
        yield path
        return
    with tempfile.NamedTemporaryFile(prefix="mx-explain-") as copy, sys.stdin.buffer if name == "-" else path.open("rb") as stream:
        shutil.copyfileobj(stream, copy, BLOCK_BYTES)
        copy.flush()
        yield Path(copy.name)
