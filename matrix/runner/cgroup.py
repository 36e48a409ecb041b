"""A memory cgroup of its own for each attempt: v2, then v1, then none (the sampler becomes a watchdog).

A group does three things: it makes a memory limit that the kernel itself enforces (with a counter that proves an OOM
kill), it lists every process of the attempt however it daemonised, and it knows the exact peak.  It also bounds the
number of processes where that is asked for: RLIMIT_NPROC would count all processes of the user, and does not bind root.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from matrix.runner.guardian import group_folders, group_pids, remove_group, short_file

ROOT = Path("/sys/fs/cgroup")
CPU_PERIOD_US = 100_000
LEAST_CPU_SHARE = 0.01  # processors; the kernel takes no quota below a millisecond
Isolation = Literal["cgroup-v2", "cgroup-v1", "watchdog", "none"]


class Group:
    """One cgroup folder.  Every reading is None when the file is missing."""

    def __init__(self, path: Path, isolation: Isolation, pids_path: Path | None = None) -> None:
        self.path = path
        self.isolation = isolation
        self.pids_path = pids_path  # the folder whose pids.max is set; None: no such limit
        self.cpu_path: Path | None = None  # the folder whose processor quota is set; None: no quota
        self.strangers: frozenset[int] = frozenset()  # processes that are never ended: the guardian, which starts a child from within
        self._v2 = isolation == "cgroup-v2"
        self._kills = "memory.events.local" if self._v2 else "memory.oom_control"

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
            lines = (line.partition(b" ") for line in short_file(f"{self.path}/memory.stat").splitlines())
            return sum(int(value) for name, _, value in lines if name in names)
        return None

    def used_bytes(self) -> int | None:
        """What is charged to it and to every group nested below it, without that."""
        usage = _number(self.path / ("memory.current" if self._v2 else "memory.usage_in_bytes"))
        return None if usage is None else max(0, usage - (self.file_cache_bytes() or 0))

    def own_oom_kills(self) -> int | None:
        """Kernel OOM kills of processes in this very group; those nested below it have counters of their own."""
        return _field(self.path / self._kills, "oom_kill")

    def oom_kills(self) -> int | None:
        """Kernel OOM kills here and in every group nested below: on v1 a parent's counter does not show a nested group's."""
        counts = [_field(Path(folder, self._kills), "oom_kill") for folder in group_folders(str(self.path))]
        known = [count for count in counts if count is not None]
        return sum(known) if known else None

    def pids_limit(self) -> int | None:
        return _number(self.pids_path / "pids.max") if self.pids_path else None

    def pids_refused(self) -> int | None:
        """How often a fork or a new thread failed because of the limit; kernels older than 6.2 count once a group at most."""
        return _field(self.pids_path / "pids.events", "max") if self.pids_path else None

    def memory_limit(self) -> int | None:
        """The smallest of its own and of every group around it, in bytes, as the kernel keeps it: whole pages."""
        if not self._v2:
            return _field(self.path / "memory.stat", "hierarchical_memory_limit")
        around = [folder for folder in (self.path, *self.path.parents) if folder.is_relative_to(ROOT)]
        known = [limit for folder in around if (limit := _number(folder / "memory.max")) is not None]
        return min(known, default=None)

    def cpu_share(self) -> float | None:
        """Processor seconds per second that its processes may use together."""
        if self.cpu_path is None:
            return None
        if not self._v2:
            quota, period = _number(self.cpu_path / "cpu.cfs_quota_us"), _number(self.cpu_path / "cpu.cfs_period_us")
            return quota / period if quota and quota > 0 and period else None
        with contextlib.suppress(OSError, ValueError):
            quota, period = map(int, (self.cpu_path / "cpu.max").read_text().split())
            return quota / period
        return None

    def cpu_throttled(self) -> int | None:
        """In how many periods the quota held it back."""
        return _field(self.cpu_path / "cpu.stat", "nr_throttled") if self.cpu_path else None

    def limit_cpu(self, token: str, share: float) -> None:
        """Set the quota; where that cannot be done, `cpu_share()` says so."""
        quota = int(share * CPU_PERIOD_US)
        with contextlib.suppress(OSError):
            if self._v2:
                (self.path.parent / "cgroup.subtree_control").write_text("+cpu")
                (self.path / "cpu.max").write_text(f"{quota} {CPU_PERIOD_US}")
                self.cpu_path = self.path
            elif home := _home_v1("cpu"):
                (home / token).mkdir(exist_ok=True)
                self.cpu_path = home / token
                (self.cpu_path / "cpu.cfs_period_us").write_text(str(CPU_PERIOD_US))
                (self.cpu_path / "cpu.cfs_quota_us").write_text(str(quota))

    def kill(self, *, patience_s: float = 10) -> int:
        """SIGKILL everything in it until it is empty; the number of processes that were ended."""
        return kill_until_none(self.pids, patience_s=patience_s, pause_s=0.002)

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
    """SIGKILL what `alive` finds until it finds nothing; the number of processes that were ended."""
    killed: set[int] = set()
    deadline = time.monotonic() + patience_s
    while (pids := alive()) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed |= pids
        time.sleep(pause_s)
    return len(killed)


def create(token: str, memory_limit_bytes: int | None, pids_limit: int | None = None) -> Group | None:
    """A new group, or None where none can be made; `why_not()` tells the reason.  Without a pids controller `pids_path` stays None."""
    home, _ = _home()
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
        (group.path.parent / "cgroup.subtree_control").write_text("+pids")
        (group.path / "pids.max").write_text(str(limit))
        return group.path
    folder = _home_v1("pids")
    if folder is None:
        raise FileNotFoundError("no pids hierarchy")
    (folder / token).mkdir()
    try:
        (folder / token / "pids.max").write_text(str(limit))
    except OSError:
        (folder / token).rmdir()
        raise
    return folder / token


def why_not() -> str:
    """Why no memory cgroup can be made here; empty when one can."""
    return _home()[1]


def can_limit_pids() -> bool:
    """Whether the number of processes of an attempt can be bounded."""
    return _can("pids")


def can_limit_cpu() -> bool:
    """Whether an attempt can be given less than its processors' time."""
    return _can("cpu")


def _can(controller: str) -> bool:
    home, _ = _home()
    if home is not None and home.isolation == "cgroup-v2":
        with contextlib.suppress(OSError):
            return controller in (home.path / "cgroup.controllers").read_text().split()
        return False
    folder = _home_v1(controller)
    return home is not None and folder is not None and os.access(folder, os.W_OK)


def own_group() -> Group | None:
    """The group that this process is in, to read its limits; None without a memory controller.  In a container whose
    /proc/self/cgroup names the host's path, the mounted root is its group."""
    if (path := _own_v2()) and (path / "memory.current").exists():
        group = Group(path, "cgroup-v2", pids_path=path)
        group.cpu_path = path
        return group
    memory, pids, cpu = (_existing_v1(controller) for controller in ("memory", "pids", "cpu"))
    if memory is None:
        return None
    group = Group(memory, "cgroup-v1", pids_path=pids)
    group.cpu_path = cpu
    return group


def _existing_v1(controller: str) -> Path | None:
    own = _home_v1(controller)
    if own is None or own.is_dir():
        return own
    return ROOT / controller if (ROOT / controller).is_dir() else None


@functools.cache
def homes() -> list[Path]:
    """Folders that may hold groups of ours, for the clean-up of what a killed tool left behind."""
    return [path for path in (_own_v2(), _home_v1("memory"), _home_v1("pids"), _home_v1("cpu")) if path is not None and path.is_dir()]


@functools.cache
def _home() -> tuple[Group | None, str]:
    reasons = []
    for isolation, path, probe in (("cgroup-v2", _own_v2(), "memory.max"), ("cgroup-v1", _home_v1("memory"), "memory.limit_in_bytes")):
        if path is None or not path.is_dir():
            reasons.append(f"{isolation}: no memory controller here")
            continue
        trial = path / f"mx-{os.getpid()}-probe"
        try:
            if isolation == "cgroup-v2":
                (path / "cgroup.subtree_control").write_text("+memory")
            trial.mkdir()
            if not (trial / probe).exists():
                reasons.append(f"{isolation}: {path} does not delegate the memory controller")
                continue
            return Group(path, isolation), ""  # type: ignore[arg-type]
        except OSError as problem:
            reasons.append(f"{isolation}: {path}: {problem.strerror}")
        finally:
            with contextlib.suppress(OSError):
                trial.rmdir()
    return None, "; ".join(reasons)


def _own(prefix: str) -> str | None:
    """Path of this process in the hierarchy of /proc/self/cgroup whose line starts with (or, for v1, names) `prefix`."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, controllers, path = line.split(":", 2)
            if (prefix == "" and number == "0" and not controllers) or (prefix and prefix in controllers.split(",")):
                return path
    return None


def _own_v2() -> Path | None:
    own = _own("")
    if own is None or not (ROOT / "cgroup.controllers").exists():
        return None
    return ROOT / own.lstrip("/")


def _home_v1(controller: str) -> Path | None:
    own = _own(controller)
    return None if own is None else ROOT / controller / own.lstrip("/")


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(short_file(str(path)))
    return None


def _field(path: Path, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        for line in short_file(str(path)).splitlines():
            key, _, value = line.partition(b" ")
            if key == name.encode():
                return int(value)
    return None
