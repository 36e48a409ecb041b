"""The limits that a run may meet, whoever set them: how much of each is used, read from outside at a price of some 100 us.

None of them is set by us.  Those that nothing bounds are left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from matrix.kernel_text import kernel_text
from matrix.records import Filesystem
from matrix.watch import slurm
from matrix.watch.cgroups import Place, around

Unit = Literal["bytes", "count", "s"]
LimitOf = Callable[[Place], int | None]
LIMITS = re.compile(r"^(Max cpu time|Max open files|Max address space) +(\d+)\b", re.M)
PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
MOST_PROCESSES = 16
SLOWED = "memory of the cgroup until the kernel slows it down (memory.high)"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Reading:
    """How much of one limit is used now."""

    name: str  # unique, for people: "memory of the cgroup", "open files of rank 1 (pid 12)"
    unit: Unit
    used: float
    limit: float
    where: str = ""  # what set it

    @property
    def share(self) -> float:
        return self.used / self.limit if self.limit > 0 else 1.0


class Bounds:
    """Of one process tree.  `env`: of the main process; times are seconds of the clock."""

    def __init__(self, main: int, env: Mapping[str, str]) -> None:
        self.main = main
        self._limits: dict[int, str] = {}
        self.ends_unix_s = slurm.ends(env)
        self._where = ""
        self._killed_before = 0  # in groups that it has left
        self._own: Place | None = None
        self._kills_before: int | None = None
        self._pids_groups: list[Place] = []
        self.memory_groups: list[Place] = []
        self.slowing_groups: list[Place] = []

    def find_groups(self) -> None:
        """Again whenever it was moved: a launcher may do that after its start."""
        try:
            where = kernel_text(f"/proc/{self.main}/cgroup")
        except OSError:  # it is gone, or this system has none
            return
        if where == self._where:
            return
        memory, pids = around(self.main, "memory"), around(self.main, "pids")
        if _is_ending(self.main):  # then its groups read as the outermost ones
            return
        self._killed_before += self.oom_kills() or 0
        self._where = where
        self.memory_groups = tightening(memory)
        self.slowing_groups = [place for place in memory if place.slowed_from()]
        self._pids_groups = [place for place in pids if place.pids_limit()]
        self._own = next(iter(memory), None)
        self._kills_before = self._own.oom_kills() if self._own else None

    def oom_kills(self) -> int | None:
        """Kills in the process's own group since it was first seen there; None: no counter."""
        now = self._own.oom_kills() if self._own else None
        return None if now is None or self._kills_before is None else self._killed_before + now - self._kills_before

    def memory_limit(self) -> int | None:
        """The tightest of the groups around it."""
        return _least(self.memory_groups, Place.memory_limit)

    def read(self, pids: Iterable[int], rooms: Sequence[Filesystem], names: Mapping[int, str]) -> Iterator[Reading]:
        """`rooms`: file systems as last seen; `names`: of processes, where they have one."""
        self.find_groups()
        yield from self._memory()
        for place in self._pids_groups:
            if (used := place.pids_used()) is not None and (limit := place.pids_limit()):
                yield Reading(name="processes and threads", unit="count", used=used, limit=limit, where=str(place.folder))
        for pid in sorted(pids, key=lambda pid: (pid != self.main, pid))[:MOST_PROCESSES]:
            with contextlib.suppress(OSError, ValueError, IndexError):
                yield from self._of_process(pid, names.get(pid, f"pid {pid}"))
        for room in rooms:
            used = room.total_bytes - room.last_free_bytes
            yield Reading(name=f"disk space at {room.folder}", unit="bytes", used=used, limit=room.total_bytes, where=room.kind)

    def _memory(self) -> Iterator[Reading]:
        yield from _memory_of("memory of the cgroup", self.memory_groups, Place.memory_limit)
        yield from _memory_of(SLOWED, self.slowing_groups, Place.slowed_from)
        now = _meminfo()
        if now and (total := now["MemTotal"] + now["SwapTotal"]):
            free = now["MemAvailable"] + now["SwapFree"]
            yield Reading(name="memory of the machine", unit="bytes", used=total - free, limit=total, where="RAM and swap")

    def _of_process(self, pid: int, name: str) -> Iterator[Reading]:
        if pid not in self._limits:
            self._limits[pid] = kernel_text(f"/proc/{pid}/limits")
        bounds = {words: int(soft) for words, soft in LIMITS.findall(self._limits[pid])}
        if limit := bounds.get("Max open files"):
            yield Reading(name=f"open files of {name}", unit="count", used=_descriptors(pid), limit=limit, where="ulimit -n")
        if limit := bounds.get("Max address space"):
            used = int(kernel_text(f"/proc/{pid}/statm").split()[0]) * PAGE
            yield Reading(name=f"address space of {name}", unit="bytes", used=used, limit=limit, where="ulimit -v")
        if limit := bounds.get("Max cpu time"):
            words = kernel_text(f"/proc/{pid}/stat").rpartition(")")[2].split()
            seconds = (int(words[11]) + int(words[12])) / TICKS
            yield Reading(name=f"processor time of {name}", unit="s", used=seconds, limit=limit, where="ulimit -t")

    def forget(self) -> None:
        """Limits may be changed from inside, so they are read again at times."""
        self._limits.clear()

    def first(self) -> list[str]:
        """What was found, in words for the beginning."""
        found = [f"memory {size(limit)} ({place.folder})" for place in self.memory_groups[:1] if (limit := self.memory_limit())]
        found += (
            [f"memory {size(least)}, then the kernel slows it down (memory.high)"]
            if (least := _least(self.slowing_groups, Place.slowed_from))
            else []
        )
        if self.ends_unix_s is not None:
            found.append(f"the job's time ends at {clock(self.ends_unix_s)}")
        return found

    def notices(self) -> list[str]:
        groups: list[Place] = [place for place in self.memory_groups if place.ends_all_at_once()]
        if not groups:
            return []
        return [f"memory.oom.group is set in {groups[0].folder}: an OOM kill there would end this recorder too; its files stay"]


def _least(places: Sequence[Place], limit_of: LimitOf) -> int | None:
    return min((limit for place in places if (limit := limit_of(place))), default=None)


def _memory_of(name: str, places: Sequence[Place], limit_of: LimitOf) -> Iterator[Reading]:
    for place in places:
        if (used := place.memory_used()) is not None and (limit := limit_of(place)):
            yield Reading(name=name, unit="bytes", used=used, limit=limit, where=str(place.folder))


def tightening(places: Sequence[Place]) -> list[Place]:
    """Those with a limit; of nested ones with the same limit the outermost, which is met first: Slurm sets it for the job and the step."""
    found: dict[int, Place] = {}
    for place in places:
        if limit := place.memory_limit():
            found[limit] = place
    return list(found.values())


def _descriptors(pid: int) -> int:
    folder = f"/proc/{pid}/fd"
    return os.stat(folder).st_size or len(os.listdir(folder))  # noqa: PTH116, PTH208 - its size is their number since Linux 6.2


def _is_ending(pid: int) -> bool:
    """Whether the kernel has begun to end it (PF_EXITING), or has done so."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return bool(int(kernel_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[6]) & 4)
    return True


def _meminfo() -> dict[str, int]:
    """Bytes by name; {} where there is no such file."""
    wanted = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree")
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = (line.split() for line in kernel_text("/proc/meminfo").splitlines())
        found = {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines if words[0].rstrip(":") in wanted}
        return found if len(found) == len(wanted) else {}
    return {}


# ------------------------------------------------------------------ figures for people
def size(value: float) -> str:
    for unit, bytes_ in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(value) >= bytes_:
            return f"{value / bytes_:.1f} {unit}"
    return f"{value:.0f} bytes"


def figure(value: float, unit: Unit) -> str:
    return size(value) if unit == "bytes" else span(value) if unit == "s" else f"{value:,.0f}"


def span(seconds: float) -> str:
    """`14 min`, `2 h 10 min`, `8 s`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 48 else f"{hours / 24:.1f} days"


def clock(unix_s: float) -> str:
    return time.strftime("%H:%M:%S" if unix_s - time.time() < 43_200 else "%Y-%m-%d %H:%M", time.localtime(unix_s))
