"""What the processes of a probed attempt are seen to have while they run, read from outside: the ground of the manipulation checks.

Extremes are kept, not the last state: a limit that was lowered for a second did not hold.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import resource
import time
from pathlib import Path

from matrix.kernel_text import kernel_text
from matrix.runner.probes.change import INFINITE, Prepared

MAX_PROCESSES, MAX_THREADS = 64, 256
LOOK_S, AGAIN_S = 0.1, 0.005
REST = 50  # times as long as a look took: many processes with long maps are looked at less often


@dataclasses.dataclass(kw_only=True)
class Seen:
    """Of one process."""

    pid: int
    name: str = ""
    environ: dict[str, str] = dataclasses.field(default_factory=dict)  # of the names that a probe sets, at its last exec
    exe: str = ""
    bare: bool = False  # its environment was empty: so is that of a program whose exec has not put it into place yet
    cpus: set[int] = dataclasses.field(default_factory=set)  # that any of its threads was ever allowed
    threads: int = 0  # most
    limits: dict[str, int] = dataclasses.field(default_factory=dict)  # lowest soft limit
    libraries: set[str] = dataclasses.field(default_factory=set)  # mapped files, by name
    mounts: dict[str, int] = dataclasses.field(default_factory=dict)  # folder -> bytes of the tmpfs that it is
    not_ignored: set[int] = dataclasses.field(default_factory=set)  # signals that it once did not ignore
    huge_pages: bool = False  # it was once allowed them
    tracer: int = 0
    in_group: bool | None = None
    terminal: bool = False
    output: str = ""  # what its standard output is


class Watch:
    """Looks at every process of the tree, for at most a fiftieth of a processor."""

    def __init__(self, prepared: Prepared, token: str) -> None:
        self.prepared = prepared
        self.token = token
        self.seen: dict[int, Seen] = {}
        self._starting: dict[int, Seen] = {}
        self.next_s = 0.0 if prepared.each else math.inf  # when the next look is due

    def look(self, now: float, pids: set[int]) -> None:
        started, again = time.monotonic(), False
        for pid in sorted(pids)[:MAX_PROCESSES]:
            seen = self.seen.get(pid) or self._starting.pop(pid, None) or Seen(pid=pid)
            with contextlib.suppress(OSError, ValueError, IndexError):  # it has gone, or it may not be looked at
                if self._is_starting(seen):
                    self._starting[pid], again = seen, True
                elif self._look(seen):
                    self.seen[pid] = seen
        self.next_s = now + (AGAIN_S if again else max(LOOK_S, REST * (time.monotonic() - started)))

    def name_of(self, pid: int) -> str:
        """Of a process of the tree, or of another that still lives; "" when it is not known."""
        if pid in self.seen:
            return self.seen[pid].name
        with contextlib.suppress(OSError):
            return kernel_text(f"/proc/{pid}/comm").strip()
        return ""

    def _is_starting(self, seen: Seen) -> bool:
        """Whether its environment is seen empty for the first time: an exec closes what tells us of it before it sets that up."""
        folder = Path(f"/proc/{seen.pid}")
        if seen.bare or str((folder / "exe").readlink()) == seen.exe:
            return False
        seen.bare = not (folder / "environ").read_bytes()
        return seen.bare

    def _look(self, seen: Seen) -> bool:
        """False for what is no process of the program: the tracer, or a zombie."""
        folder = Path(f"/proc/{seen.pid}")
        exe = str((folder / "exe").readlink())
        if Path(exe).name == "strace" and self.prepared.total.traced:
            return False
        if exe != seen.exe:
            seen.exe, seen.environ, seen.bare = exe, self._environ(folder), False
        self._status(seen, kernel_text(folder / "status"))
        change = self.prepared.total
        for name in change.rlimits:
            soft = resource.prlimit(seen.pid, getattr(resource, name))[0]
            seen.limits[name] = soft if name not in seen.limits else lower(seen.limits[name], soft)
        if change.cpus:
            for task in itertools.islice((folder / "task").iterdir(), MAX_THREADS):
                seen.cpus |= os.sched_getaffinity(int(task.name))
        if change.maps or change.maps_not or change.uses_malloc or change.cpus:
            seen.libraries |= {Path(line.split(maxsplit=5)[-1]).name for line in _lines(folder / "maps") if "/" in line}
        if change.memory_limit_bytes or change.cpu_share or change.pids:
            seen.in_group = self.token in kernel_text(folder / "cgroup")
        if change.tmpfs:
            seen.mounts = _tmpfs(folder, change.tmpfs)
        if change.to_file:
            seen.terminal = seen.terminal or kernel_text(folder / "stat").rpartition(")")[2].split()[4] != "0"
            seen.output = str((folder / "fd" / "1").readlink())
        return True

    def _environ(self, folder: Path) -> dict[str, str]:
        wanted = {*self.prepared.total.env, *self.prepared.total.unset}
        pairs = (entry.partition("=") for entry in kernel_text(folder / "environ").split("\0"))
        return {name: value for name, _, value in pairs if name in wanted}

    def _status(self, seen: Seen, text: str) -> None:
        status = {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
        seen.name = status["Name"]
        seen.threads = max(seen.threads, int(status["Threads"]))
        ignored = int(status["SigIgn"], 16)
        seen.not_ignored |= {number for number in self.prepared.total.ignored if not ignored >> (number - 1) & 1}
        seen.huge_pages = seen.huge_pages or status.get("THP_enabled") != "0"
        seen.tracer = max(seen.tracer, int(status["TracerPid"]))


def lower(first: int, second: int) -> int:
    """The lower one of two limits."""
    if INFINITE in (first, second):
        return second if first == INFINITE else first
    return min(first, second)


def _lines(path: Path) -> list[str]:
    return kernel_text(path).splitlines()


def _tmpfs(folder: Path, wanted: dict[str, int]) -> dict[str, int]:
    """Those of the wanted folders that are a tmpfs in that process's own view, with its size."""
    found = {}
    for line in _lines(folder / "mountinfo"):
        words = line.split()
        if words[4] in wanted and words[words.index("-") + 1] == "tmpfs":
            status = os.statvfs(f"{folder}/root{words[4]}")
            found[words[4]] = status.f_blocks * status.f_frsize
    return found
