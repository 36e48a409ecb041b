"""What the kernel lets each process of the tree use, whoever set the limit, and what the process does with signals.

The specification's limits are only those that we set: a program, its launcher or a login shell sets others, and a program that
lowers its own address space dies of that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from matrix.evidence.digits import whole
from matrix.evidence.environment import LimitSet
from matrix.evidence.exit import signal_name
from matrix.kernel_text import kernel_text
from matrix.records import Bound, ProcessSettings

MOST = 16
MAPPINGS = Path("/proc/sys/vm/max_map_count")
WATCHERS = Path("/proc/sys/fs/inotify/max_user_instances")
WATCHES = Path("/proc/sys/fs/inotify/max_user_watches")
FEW_LINKS, SOME_WATCHES = 256, 32  # descriptors that are read to count watches; fewer of those tell nothing
WATCHER = "anon_inode:inotify"  # where the link of such a descriptor leads
MOST_LINKS = 4096  # descriptors of one process that are read one by one
OFTEN, RARELY = 4, 8  # looks, first and later, at what hardly ever changes: limits and the group of another than the main process
NAMES = {
    "cpu time": "cpu",
    "file size": "fsize",
    "data size": "data",
    "stack size": "stack",
    "processes": "nproc",
    "open files": "nofile",
    "locked memory": "memlock",
    "address space": "as",
}
LIMIT = re.compile(r"^Max ([^\n]{1,40}?) {1,40}(\d{1,20}|unlimited) {1,40}(\d{1,20}|unlimited)\b", re.M)
STATUS = re.compile(r"^(VmPeak|VmStk|VmData|VmLck|SigIgn|SigCgt|SigBlk|Cpus_allowed_list):\s*(\S+)", re.M)
IN_KIB = {"VmPeak": "as", "VmStk": "stack", "VmData": "data", "VmLck": "memlock"}


@dataclasses.dataclass(kw_only=True)
class _Last:
    """Of one process: the kernel's texts as last read, and the most that was used."""

    at_s: float
    limits: str = ""
    limits_at_s: float = 0.0
    group: str = ""  # its /proc/PID/cgroup
    looks: int = 0
    status: dict[str, str] = dataclasses.field(default_factory=dict)
    used: dict[str, int] = dataclasses.field(default_factory=dict)
    pids: int | None = None  # what its cgroup allows; None: no limit of its own


class Settings:
    def __init__(self) -> None:
        self._last: dict[int, _Last] = {}
        self._main = 0
        self._watchers: int | None = None
        self._counts: dict[str, tuple[int | None, int | None]] = {}  # /proc/PID/cgroup -> what its group allows and has, at this look
        self._refused_before = {text: refused_starts(text) for text in _own_group()}  # /proc/PID/cgroup -> the kernel's count then

    def look(self, now_s: float, pids: list[int], main: int) -> None:
        """Read what these processes may use and do use, of the first 16 that are ever seen."""
        if not self._last:
            self._watchers = _number(WATCHERS)
        self._main = main
        self._counts.clear()
        for pid in pids:
            if pid in self._last or len(self._last) < MOST:
                with contextlib.suppress(OSError, ValueError, IndexError):
                    self._read_process(pid, self._last.setdefault(pid, _Last(at_s=now_s)), now_s)

    def _read_process(self, pid: int, last: _Last, now_s: float) -> None:
        process = f"/proc/{pid}"
        again = pid == self._main or last.looks % RARELY == 0 or last.looks < OFTEN
        limits, group = (kernel_text(f"{process}/limits"), kernel_text(f"{process}/cgroup")) if again else (last.limits, last.group)
        status = dict(STATUS.findall(kernel_text(f"{process}/status")))
        fields = kernel_text(f"{process}/stat").rpartition(")")[2].split()
        if "VmPeak" not in status:  # a zombie
            return
        last.limits, last.group, last.status, last.at_s = limits, group, status, now_s
        last.limits_at_s = now_s if again else last.limits_at_s
        last.looks += 1
        used = {name: int(status[key]) * 1024 for key, name in IN_KIB.items() if key in status}
        used["cpu"] = (int(fields[11]) + int(fields[12])) // os.sysconf("SC_CLK_TCK")
        with contextlib.suppress(OSError):
            folder = f"{process}/fd"  # its size is their number since Linux 6.2
            used["nofile"] = os.stat(folder).st_size or len(os.listdir(folder))  # noqa: PTH116, PTH208 - at every look
            if self._watchers and self._watchers <= 2 * used["nofile"] and used["nofile"] <= MOST_LINKS:  # else it cannot be near
                used["inotify"] = watchers(folder)
            if pid == self._main and used["nofile"] <= FEW_LINKS and (last.looks <= OFTEN or last.looks % RARELY == 0):
                used["watches"] = watches(process)
        if last.group not in self._counts:  # the processes of a tree share it
            self._counts[last.group] = group_of_pids(last.group)
            self._refused_before.setdefault(last.group, refused_starts(last.group))
        last.pids, count = self._counts[last.group]
        if count is not None:
            used["pids"] = count
        last.used |= {name: max(value, last.used.get(name, 0)) for name, value in used.items()}

    def record(self, roles: dict[int, str], own: Sequence[LimitSet] = ()) -> list[ProcessSettings]:
        """The main process first.  `own`: limits that processes set for themselves, which a look may have come too early for."""
        known = sorted((pid for pid in self._last if self._last[pid].limits), key=lambda pid: (pid != self._main, pid))
        return [self._of(pid, self._last[pid], roles.get(pid, "other"), [each for each in own if each.pid == pid]) for pid in known]

    def _of(self, pid: int, last: _Last, role: str, own: Sequence[LimitSet]) -> ProcessSettings:
        cpus = last.status.get("Cpus_allowed_list")
        return ProcessSettings(
            pid=pid,
            role=role,
            last_s=round(last.at_s, 3),
            bounds=with_own(bounds(last.limits, last.used), own, last) + self._of_group(last) + self._of_user(last),
            ignored=signals(last.status.get("SigIgn", "0")),
            caught=signals(last.status.get("SigCgt", "0")),
            blocked=signals(last.status.get("SigBlk", "0")),
            cpus=sum(_span(part) for part in cpus.split(",")) if cpus else None,
        )

    def _of_group(self, last: _Last) -> list[Bound]:
        """Return the limit of processes and threads of its group, with how many starts the kernel refused since the attempt began."""
        if last.pids is None:
            return []
        refused = max(0, refused_starts(last.group) - self._refused_before.get(last.group, 0))
        return [Bound(name="pids", soft=last.pids, hard=last.pids, used=last.used.get("pids"), refused=refused)]

    def _of_user(self, last: _Last) -> list[Bound]:
        """What all processes of a user share and this one had much of.  The kernel refuses it in the words of too many files."""
        found = _if_much("inotify", self._watchers, last.used.get("inotify", 0))
        count = last.used.get("watches", 0)  # a container may allow fewer than the machine, and that cannot be read from outside
        if count >= SOME_WATCHES and (most := _number(WATCHES)):
            found.append(Bound(name="watches", soft=most, hard=most, used=count))
        return found


def _if_much(name: str, most: int | None, used: int) -> list[Bound]:
    """What one process has half of or more, of a limit that few ever get near."""
    return [Bound(name=name, soft=most, hard=most, used=used)] if most and 2 * used >= most else []


def _number(path: Path) -> int | None:
    try:
        return int(kernel_text(path))
    except (OSError, ValueError):
        return None


def watchers(folder: str) -> int:
    """inotify instances among the descriptors in a /proc/PID/fd."""
    count = 0
    for name in os.listdir(folder):  # noqa: PTH208 - at every look
        with contextlib.suppress(OSError):  # closed meanwhile
            count += os.readlink(f"{folder}/{name}") == WATCHER  # noqa: PTH115
    return count


def watches(process: str) -> int:
    """Files and folders that the inotify instances of a /proc/PID watch."""
    count = 0
    for name in os.listdir(f"{process}/fd"):  # noqa: PTH208 - at many looks
        with contextlib.suppress(OSError):  # closed meanwhile
            if os.readlink(f"{process}/fd/{name}") == WATCHER:  # noqa: PTH115
                count += kernel_text(f"{process}/fdinfo/{name}").count("inotify wd:")
    return count


def bounds(text: str, used: dict[str, int]) -> list[Bound]:
    """What a /proc/PID/limits says, but for what is unlimited; `used` is added by name."""
    found = []
    for words, soft, hard in LIMIT.findall(text):
        if words in NAMES and soft != "unlimited":
            name = NAMES[words]
            found.append(Bound(name=name, soft=whole(soft), hard=None if hard == "unlimited" else whole(hard), used=used.get(name)))
    return found


def group_of_pids(text: str) -> tuple[int | None, int | None]:
    """Return how many processes and threads the group of a /proc/PID/cgroup allows and has; None: unlimited, or not to be read.

    Of its group and the groups around it, the one with the least room counts: the kernel asks them all."""
    found: list[tuple[int, int]] = []
    for folder in pids_folders(text):
        with contextlib.suppress(OSError, ValueError):
            found.append((int(kernel_text(folder / "pids.max")), int(kernel_text(folder / "pids.current"))))
    return min(found, key=lambda group: group[0] - group[1], default=(None, None))


def pids_folders(text: str) -> list[Path]:
    """Return the folders of the pids group of a /proc/PID/cgroup and of every group around it, innermost first."""
    for line in text.splitlines():
        _, controllers, place = [*line.split(":", 2), "", "", ""][:3]
        if place and controllers in ("pids", ""):  # of version 1, and of version 2
            root = Path("/sys/fs/cgroup", controllers)
            folder = root / place.lstrip("/")
            around = [parent for parent in folder.parents if parent.is_relative_to(root)]
            with contextlib.suppress(OSError, ValueError):  # a name that is too long, or that holds a NUL
                if (folder / "pids.current").exists():  # the root has none, nor has a hierarchy without this controller
                    return [folder, *around]
    return []


def refused_starts(text: str) -> int:
    """Return how many new processes or threads the kernel has refused in that group or, on version 2, in a group around it."""
    counts = [0]
    for folder in pids_folders(text):
        with contextlib.suppress(OSError, ValueError):
            events = dict(line.split() for line in kernel_text(folder / "pids.events").splitlines())
            counts.append(int(events.get("max", 0)))
    return max(counts)


def _own_group() -> list[str]:
    """Return the group that a child inherits from this process; [] where the system has no groups."""
    try:
        return [kernel_text("/proc/self/cgroup")]
    except OSError:
        return []


def with_mappings(found: list[ProcessSettings], counts: Mapping[int, int], roles: Mapping[int, str]) -> list[ProcessSettings]:
    """Adds how many mappings of memory a process had, by pid, where they were much of what the kernel allows.

    Also of one that was gone before the first look, as its core tells."""
    most = _number(MAPPINGS) if counts else None
    bounds = {pid: much for pid, count in counts.items() if (much := _if_much("maps", most, count))}
    unseen = [
        ProcessSettings(pid=pid, role=roles.get(pid, "other"), last_s=0.0, bounds=[])
        for pid in bounds
        if all(one.pid != pid for one in found)
    ]
    return [dataclasses.replace(one, bounds=[*one.bounds, *bounds.get(one.pid, [])]) for one in [*found, *unseen]]


def with_own(found: list[Bound], own: Sequence[LimitSet], last: _Last) -> list[Bound]:
    """The bounds as they were at the end: what was set after the last look replaces what that saw."""
    latest = {limit.name: limit for limit in own if limit.time_s > last.limits_at_s}
    kept = [bound for bound in found if bound.name not in latest]
    made = [
        Bound(name=name, soft=limit.soft, hard=None if limit.hard < 0 else limit.hard, used=last.used.get(name))
        for name, limit in latest.items()
        if limit.soft >= 0
    ]
    return kept + made


def signals(mask: str) -> list[str]:
    """Names in a hexadecimal mask of /proc/PID/status, but for real-time signals: libc and the hook use those."""
    bits = int(mask, 16)
    return [name for number in range(1, 32) if bits >> (number - 1) & 1 and (name := signal_name(number))]


def _span(part: str) -> int:
    """Processors in "3" or "4-7"."""
    first, _, last = part.partition("-")
    return int(last or first) - int(first) + 1
