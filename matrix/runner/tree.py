"""The processes of one attempt: who they are, whether they do anything, and how to end them."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from pathlib import Path

import psutil

from matrix.evidence.processes import waits_for_memory, wchan_of
from matrix.kernel_text import kernel_bytes
from matrix.runner.cgroup import Group, kill_until_none
from matrix.runner.leftovers import descendants

TICK_S = 1 / os.sysconf("SC_CLK_TCK")
MARK = "MATRIX_ATTEMPT"  # in every child's environment; finds daemonised processes where there are no cgroups


@dataclasses.dataclass(frozen=True, kw_only=True)
class Activity:
    """What the processes did since the last look."""

    cpu_s: float  # used by all of them in that time
    on_disk: bool  # some process waits for a disk (state D)
    runnable: bool  # the main thread of some process runs, or could


class Tree:
    """Processes of one attempt by its cgroup, or by ancestry and the mark in their environment where there is none."""

    def __init__(self, token: str, main: int, group: Group | None, reaper: int = 0) -> None:
        """`reaper`: the guardian, which adopts every process of the tree that lost its parent."""
        self._reaper = reaper
        self._mark = f"{MARK}={token}".encode()
        self.main = main
        self.group = group
        self.ever: set[int] = {main}
        self._cpu: dict[int, float] = {}

    def pids(self) -> set[int]:
        """Living processes (zombies among them while nobody has read their status)."""
        found = self.group.pids() if self.group else self._marked()
        self.ever |= found
        return found

    def _marked(self) -> set[int]:
        found = descendants(self.main) | ({self.main} if psutil.pid_exists(self.main) else set())
        return found | marked_processes(self._mark)

    def _nothing_is_left(self) -> bool:
        """Whether the main process is gone and left no orphan: a look at the guardian's children instead of at every process."""
        try:
            children = kernel_bytes(f"/proc/{self._reaper}/task/{self._reaper}/children").split()
        except OSError:
            return False
        return not any(int(pid) == self.main or self._mark in _environment(int(pid)) for pid in children)

    def activity(self, pids: set[int]) -> Activity:
        used, states = 0.0, set()
        for pid in pids:
            state, cpu = state_and_cpu(pid)
            used += max(0.0, cpu - self._cpu.get(pid, 0.0))
            self._cpu[pid] = cpu
            states.add("waits for memory" if state == "D" and waits_for_memory(wchan_of(pid)) else state)
        return Activity(cpu_s=used, on_disk="D" in states, runnable="R" in states)

    def kill(self, *, patience_s: float = 10) -> int:
        """SIGKILL all of it until nothing is left; the number of processes that were ended."""
        if self.group:
            return self.group.kill(patience_s=patience_s)
        if self._nothing_is_left():
            return 0
        return kill_until_none(self._alive, patience_s=patience_s, pause_s=0.005)

    def _alive(self) -> set[int]:
        return {pid for pid in self._marked() if not is_zombie(pid)}


def owner_is_dead(kind: str, token: str) -> bool:
    """Whether the tool that made `<kind>-<pid>-...` is gone; False for other names.  One with our own pid is: a container that is
    started anew counts from 1 again."""
    parts = token.split("-")
    if len(parts) < 3 or parts[0] != kind or not parts[1].isdecimal():
        return False
    return int(parts[1]) == os.getpid() or not psutil.pid_exists(int(parts[1]))


def marked_processes(mark: bytes) -> set[int]:
    """Living processes whose environment at exec holds `mark` (NAME=value, or the beginning of it)."""
    found = set()
    for name in os.listdir("/proc") if Path("/proc/self").exists() else []:  # noqa: PTH208 - a fifth of the time
        if name.isdigit() and any(word.startswith(mark) for word in _environment(int(name))):
            found.add(int(name))
    return found


def _environment(pid: int) -> list[bytes]:
    """NAME=value at exec; [] when it is gone, a zombie, or another user's."""
    with contextlib.suppress(OSError):
        return kernel_bytes(f"/proc/{pid}/environ").split(b"\0")
    return []


def state_and_cpu(pid: int) -> tuple[str, float]:
    """State letter and CPU seconds used, also by children that it has waited for; ("", 0) when it is gone."""
    with contextlib.suppress(OSError, ValueError):
        fields = kernel_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        return fields[0].decode(errors="replace"), sum(map(int, fields[11:15])) * TICK_S
    if not Path("/proc/self").exists():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            times = process.cpu_times()
            return {"disk-sleep": "D", "zombie": "Z", "running": "R"}.get(process.status(), "S"), sum(times[:4])
    return "", 0.0


def is_zombie(pid: int) -> bool:
    """True for a process that is over or gone."""
    return state_and_cpu(pid)[0] in ("Z", "")
