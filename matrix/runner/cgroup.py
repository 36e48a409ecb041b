"""A memory cgroup of its own for each attempt: v2, then v1, then none (the sampler becomes a watchdog).

A group does three things: it makes a memory limit that the kernel itself enforces (with a counter that proves an OOM
kill), it lists every process of the attempt however it daemonised, and it knows the exact peak.  It also bounds the
number of processes where that is asked for: RLIMIT_NPROC would count all processes of the user, and does not bind root.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from matrix.kernel_text import kernel_bytes, kernel_text
from matrix.runner.cgroup_home import ROOT, Isolation, can_limit_cpu, can_limit_pids, hand_on, home_v1, homes, opened, own_v2, why_not
from matrix.runner.leftovers import group_folders, group_pids, kill_at_once, remove_group

__all__ = ["Group", "Isolation", "can_limit_cpu", "can_limit_pids", "create", "homes", "kill_until_none", "own_group", "why_not"]
CPU_PERIOD_US = 100_000
LEAST_CPU_SHARE = 0.01  # processors; the kernel takes no quota below a millisecond


class Group:
    """One cgroup folder.  Every reading is None when the file is missing."""

    def __init__(self, path: Path, isolation: Isolation, pids_path: Path | None = None) -> None:
        self.path = path
        self.isolation = isolation
        self.pids_path = pids_path  # the folder whose pids.max is set; None: no such limit
        self.cpu_path: Path | None = None  # the folder whose processor quota is set; None: no quota
        self.strangers: frozenset[int] = frozenset()  # processes that are never ended: the guardian, which starts a child from within
        self._v2 = isolation == "cgroup-v2"

    @property
    def folders(self) -> list[Path]:
        """What a process has to join; the first one is the list of processes."""
        more = [path for path in (self.pids_path, self.cpu_path) if path not in (None, self.path)]
        return [self.path, *dict.fromkeys(path for path in more if path)]

    @property
    def doors(self) -> list[str]:
        """The files into which a process of one thread writes 0 to join.

        On v1 the list of threads: who moves only itself by it waits for nobody, while a move by the list of processes waits
        until every processor has been through the kernel, 5 to 16 ms."""
        return [f"{folder}/{'cgroup.procs' if self._v2 else 'tasks'}" for folder in self.folders]

    def pids(self) -> set[int]:
        return group_pids([str(self.path)]) - self.strangers

    def peak_bytes(self) -> int | None:
        return _number(self.path / ("memory.peak" if self._v2 else "memory.max_usage_in_bytes"))

    def file_cache_bytes(self) -> int | None:
        """The part of what is charged to it that the kernel gives up before it kills: pages of files."""
        names = (b"active_file", b"inactive_file") if self._v2 else (b"total_active_file", b"total_inactive_file")
        with contextlib.suppress(OSError, ValueError):
            lines = (line.partition(b" ") for line in kernel_bytes(f"{self.path}/memory.stat").splitlines())
            return sum(int(value) for name, _, value in lines if name in names)
        return None

    def shmem_bytes(self) -> int | None:
        """Return the part of what is charged to it that lies in memory file systems and shared memory; the kernel cannot give that up."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            fields = dict(line.split(b" ", 1) for line in kernel_bytes(f"{self.path}/memory.stat").splitlines())
            return int(fields[b"shmem" if self._v2 else b"total_shmem"])
        return None

    def used_bytes(self) -> int | None:
        """What is charged to it and to every group nested below it, without that."""
        usage = _number(self.path / ("memory.current" if self._v2 else "memory.usage_in_bytes"))
        return None if usage is None else max(0, usage - (self.file_cache_bytes() or 0))

    def own_oom_kills(self) -> int | None:
        """Kernel OOM kills of processes in this very group; those nested below it have counters of their own."""
        return _own_oom_kills(self.path, self._v2)

    def oom_kills(self) -> int | None:
        """Kernel OOM kills here and in every group nested below: on v1 a parent's counter does not show a nested group's.

        On v2 it does, also those of a nested group that was removed since."""
        counts = [_own_oom_kills(Path(folder), self._v2) for folder in group_folders(str(self.path))]
        known = [count for count in counts if count is not None]
        everywhere = _field(self.path / "memory.events", "oom_kill") if self._v2 else None
        return max(sum(known), everywhere or 0) if known else everywhere

    def pids_limit(self) -> int | None:
        return _number(self.pids_path / "pids.max") if self.pids_path else None

    def pids_refused(self) -> int | None:
        """How often a fork or a new thread failed because of the limit; kernels older than 6.2 count once a group at most."""
        return _field(self.pids_path / "pids.events", "max") if self.pids_path else None

    def memory_limit(self) -> int | None:
        """The smallest of its own and of every group around it, in bytes, as the kernel keeps it: whole pages."""
        if not self._v2:
            return _field(self.path / "memory.stat", "hierarchical_memory_limit")
        return _smallest(self.path, "memory.max")

    def memory_left(self) -> int | None:
        """Bytes until the first of those limits is met, file cache given back: others may use the groups around it too; None: no limit."""
        name = "memory.max" if self._v2 else "memory.limit_in_bytes"
        found = []
        for each in _around(self.path):
            limit, used = _number(each / name), Group(each, self.isolation).used_bytes()
            if limit is not None and used is not None:
                found.append(max(0, limit - used))
        return min(found, default=None)

    def slowed_from(self) -> int | None:
        """Bytes from which on the kernel holds its processes up until they give memory back (v2 alone); None: never."""
        return _smallest(self.path, "memory.high")

    def cpu_share(self) -> float | None:
        """Processor seconds per second that its processes may use together: the smallest quota of the group and those around it."""
        folders = _around(self.cpu_path) if self.cpu_path else ()
        return min((share for folder in folders if (share := _quota(folder, self._v2)) is not None), default=None)

    def cpu_throttled(self) -> int | None:
        """In how many periods the quota held it back."""
        return _field(self.cpu_path / "cpu.stat", "nr_throttled") if self.cpu_path else None

    def limit_cpu(self, token: str, share: float) -> None:
        """Set the quota; where that cannot be done, `cpu_share()` says so."""
        quota = int(share * CPU_PERIOD_US)
        with contextlib.suppress(OSError):
            if self._v2:
                hand_on(self.path.parent, "cpu")
                (self.path / "cpu.max").write_text(f"{quota} {CPU_PERIOD_US}")
                self.cpu_path = self.path
            elif home := home_v1("cpu"):
                (home / token).mkdir(exist_ok=True)
                self.cpu_path = home / token
                (self.cpu_path / "cpu.cfs_period_us").write_text(str(CPU_PERIOD_US))
                (self.cpu_path / "cpu.cfs_quota_us").write_text(str(quota))

    def kill(self, *, patience_s: float = 10) -> int:
        """SIGKILL everything in it until it is empty; the number of processes that were ended."""
        everyone = group_pids([str(self.path)])
        ours = everyone - self.strangers
        if ours and ours == everyone:  # or it would end strangers too
            kill_at_once(str(self.path))
        return max(len(ours), kill_until_none(self.pids, patience_s=patience_s, pause_s=0.002))

    def end(self) -> None:
        """Remove it, and before that end what is still in it."""
        for folder in reversed(self.folders):
            try:
                os.rmdir(folder)  # noqa: PTH106 - after a healthy attempt nothing is left, and this is all there is to do
            except OSError:
                self.kill()
                self.remove()
                return

    def remove(self) -> None:
        for folder in reversed(self.folders):
            remove_group(str(folder))


def kill_until_none(alive: Callable[[], set[int]], *, patience_s: float, pause_s: float) -> int:
    """SIGKILL what `alive` finds until it finds nothing; the number of processes that were ended.

    All are stopped before the first is ended: none shall print, or raise, that another one died by our hand."""
    killed: set[int] = set()
    deadline = time.monotonic() + patience_s
    while (pids := alive()) and time.monotonic() < deadline:
        for number in (signal.SIGSTOP, signal.SIGKILL) if len(pids) > 1 else (signal.SIGKILL,):
            for pid in pids:
                with contextlib.suppress(OSError):
                    os.kill(pid, number)
        killed |= pids
        time.sleep(pause_s)
    return len(killed)


def create(token: str, memory_limit_bytes: int | None, pids_limit: int | None = None) -> Group | None:
    """A new group, or None where none can be made; `why_not()` tells the reason.  Without a pids controller `pids_path` stays None."""
    home, _ = opened()
    if home is None:
        return None
    group = Group(home.path / token, home.isolation)
    try:
        group.path.mkdir()
        if memory_limit_bytes:
            name = "memory.max" if home.isolation == "cgroup-v2" else "memory.limit_in_bytes"
            _write(group.path / name, str(memory_limit_bytes))
            with contextlib.suppress(OSError):  # no swap accounting, or no swap: then there is nothing to forbid
                swap, value = (
                    ("memory.swap.max", "0") if home.isolation == "cgroup-v2" else ("memory.memsw.limit_in_bytes", str(memory_limit_bytes))
                )
                _write(group.path / swap, value)
    except OSError:
        group.remove()
        return None
    if pids_limit is not None:
        with contextlib.suppress(OSError):
            group.pids_path = _limited_pids(group, token, pids_limit)
    return group


def _limited_pids(group: Group, token: str, limit: int) -> Path:
    """The folder in which `limit` holds: the group itself (v2), or one of the pids hierarchy (v1)."""
    if group.isolation == "cgroup-v2":
        hand_on(group.path.parent, "pids")
        (group.path / "pids.max").write_text(str(limit))
        return group.path
    folder = home_v1("pids")
    if folder is None:
        raise FileNotFoundError("no pids hierarchy")
    (folder / token).mkdir()
    try:
        (folder / token / "pids.max").write_text(str(limit))
    except OSError:
        (folder / token).rmdir()
        raise
    return folder / token


def own_group() -> Group | None:
    """The group that this process is in, to read its limits; None without a memory controller.  In a container whose
    /proc/self/cgroup names the host's path, the mounted root is its group.  On v2 a group without a controller of its own
    counts in the nearest one around it that has one."""
    if (path := own_v2()) and path.is_dir() and (nearest := _nearest(path, "memory.stat")):
        group = Group(nearest, "cgroup-v2", pids_path=_nearest(path, "pids.max"))
        group.cpu_path = _nearest(path, "cpu.max")
        return group
    memory, pids, cpu = (_existing_v1(controller) for controller in ("memory", "pids", "cpu"))
    if memory is None:
        return None
    group = Group(memory, "cgroup-v1", pids_path=pids)
    group.cpu_path = cpu
    return group


def _existing_v1(controller: str) -> Path | None:
    own = home_v1(controller)
    if own is None or own.is_dir():
        return own
    return ROOT / controller if (ROOT / controller).is_dir() else None


def _around(folder: Path) -> Iterator[Path]:
    """The group and those around it, as far as they are visible here."""
    return (each for each in (folder, *folder.parents) if each.is_relative_to(ROOT))


def _smallest(folder: Path, name: str) -> int | None:
    """Of a limit of version 2, which holds for all that is nested below it."""
    return min((limit for each in _around(folder) if (limit := _number(each / name)) is not None), default=None)


def _nearest(folder: Path, name: str) -> Path | None:
    return next((each for each in _around(folder) if (each / name).exists()), None)


def _own_oom_kills(folder: Path, v2: bool) -> int | None:
    if not v2:
        return _field(folder / "memory.oom_control", "oom_kill")
    own = _field(folder / "memory.events.local", "oom_kill")
    return _field(folder / "memory.events", "oom_kill") if own is None else own  # before 5.2 there is but one file, with the own ones


def _quota(folder: Path, v2: bool) -> float | None:
    """Processors; None: no quota here."""
    with contextlib.suppress(OSError, ValueError):
        if v2:
            quota, period = map(int, kernel_text(folder / "cpu.max").split())
        else:
            quota, period = (int(kernel_text(folder / f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
        return quota / period if quota > 0 else None
    return None


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(kernel_bytes(path))
    return None


def _field(path: Path, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in kernel_bytes(path).splitlines():
            key, _, value = line.partition(b" ")
            if key == name.encode():
                return int(value)
    return None
