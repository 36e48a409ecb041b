"""Looks at a tree of processes that runs: what moves from one look to the next.

Nothing is ended.  The first and the last look pause each process for the moment that py-spy needs to read native stacks (0.2 s):
a stack that is read while it runs may be torn.  Those between do not."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import time
from pathlib import Path

import psutil

from matrix.diagnosis.hangs import BUSY_SHARE, IDLE_SHARE, first_thread
from matrix.evidence import processes
from matrix.evidence.log import READ_BYTES
from matrix.evidence.progress import LOOK_BYTES, ProgressParser
from matrix.kernel_text import kernel_text
from matrix.records import ProcessSeen

PYTHON_FRAME = re.compile(r":\d+ in ")
SOME_BYTES = 4096  # read or written between two looks: more than a timer that ticks
MOST_THREADS = 512


@dataclasses.dataclass(frozen=True, kw_only=True)
class Log:
    """A file that its output goes to."""

    path: Path
    size: int
    written_unix_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    at_s: float  # since the first look began
    processes: list[ProcessSeen]  # the main one first
    moved_bytes: dict[int, int]  # read and written since each process began, whatever it was; a process that may not be asked is absent
    logs: list[Log]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Movement:
    """What one process did over all looks."""

    seen: ProcessSeen  # at the last look
    cpu_share: float  # of one processor
    same_stack: bool | None  # Python frames of its first thread at every look; None: no stack was had
    moved_bytes: int | None  # None: it may not be asked

    @property
    def works(self) -> bool:
        """It uses the processor or moves data, and is not always at the same place."""
        return self.same_stack is False and (self.cpu_share > IDLE_SHARE or (self.moved_bytes or 0) > SOME_BYTES)

    @property
    def busy(self) -> bool:
        """Whether at one place only its stack tells."""
        return self.cpu_share > BUSY_SHARE and self.same_stack is not False

    @property
    def still(self) -> bool:
        return self.cpu_share <= IDLE_SHARE and self.same_stack is not False and (self.moved_bytes or 0) <= SOME_BYTES


def tree(pid: int) -> set[int]:
    """The process and all below it."""
    with contextlib.suppress(psutil.Error):
        return {pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))}
    return {pid}


def looks(pid: int, number: int, every_s: float) -> list[Look]:
    """Raises nothing: a process that ends meanwhile is absent from the later ones."""
    began, found = time.monotonic(), list[Look]()
    for at in range(number):
        pids = tree(pid)
        seen = processes.autopsy(pids, every_s, pause=at in (0, number - 1))
        moved = {each: count for each in pids if (count := _moved(each)) is not None}
        found.append(Look(at_s=time.monotonic() - began, processes=seen, moved_bytes=moved, logs=_logs(pid)))
    return found


def movements(taken: list[Look]) -> list[Movement]:
    """Of every process that was there at the last look."""
    return [_movement(seen, taken) for seen in (taken[-1].processes if taken else [])]


def _movement(last: ProcessSeen, taken: list[Look]) -> Movement:
    every = [seen for look in taken for seen in look.processes if seen.pid == last.pid]
    stacks = [frames for seen in every if (frames := python_frames(seen))]
    window = sum(seen.window_s for seen in every)
    counts = [look.moved_bytes[last.pid] for look in taken if last.pid in look.moved_bytes]
    return Movement(
        seen=last,
        cpu_share=sum(seen.cpu_delta_s for seen in every) / window if window else 0.0,
        same_stack=all(stack == stacks[0] for stack in stacks) if len(stacks) > 1 else None,
        moved_bytes=counts[-1] - counts[0] if len(counts) > 1 else None,
    )


def python_frames(seen: ProcessSeen) -> list[str]:
    """Native frames are read at the last look only."""
    return [frame for frame in first_thread(seen) if PYTHON_FRAME.search(frame)]


def last_step(log: Log) -> ProgressParser:
    """The steps that its output shows, from the last MiB."""
    parser = ProgressParser()
    with contextlib.suppress(OSError), log.path.open("rb") as stream:
        stream.seek(max(0, log.size - READ_BYTES // 4))
        while block := stream.read(LOOK_BYTES):
            parser.feed("stdout", block, 0.0)
    return parser


def threads(pid: int) -> list[str]:
    """A line for each thread: id, name, state, and where in the kernel it waits."""
    lines = []
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(f"/proc/{pid}/task"), key=int)[:MOST_THREADS]:  # noqa: PTH208  # names are all that is wanted
            task = Path(f"/proc/{pid}/task/{name}")
            with contextlib.suppress(OSError, IndexError):
                head, _, rest = kernel_text(task / "stat").rpartition(")")
                with contextlib.suppress(OSError):
                    wchan = kernel_text(task / "wchan")
                lines.append(f"{name} {head.partition('(')[2]} {rest.split()[0]} {wchan if wchan != '0' else ''}".rstrip())
    return lines


def _moved(pid: int) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        text = kernel_text(f"/proc/{pid}/io")
        return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(("rchar", "wchar")))
    return None


def _logs(pid: int) -> list[Log]:
    """Where its standard output and error go, when that is a file."""
    found: dict[Path, Log] = {}
    for number in (1, 2):
        with contextlib.suppress(OSError):
            path = Path(f"/proc/{pid}/fd/{number}").readlink()
            if path.is_file() and path.samefile(f"/proc/{pid}/fd/{number}"):  # in a container the path is of another file system
                status = path.stat()
                found[path] = Log(path=path, size=status.st_size, written_unix_s=status.st_mtime)
    return list(found.values())
