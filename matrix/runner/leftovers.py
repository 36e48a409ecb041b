"""Which processes and groups there are, and how they go without a trace: for the guardian, and for the next start of the tool.

Light parts of the standard library only: the guardian imports this.
"""

from __future__ import annotations

import contextlib
import glob
import os
import sys
import time

from matrix.kernel_text import kernel_bytes, kernel_text

SHM = "/dev/shm/"  # where the C library keeps named semaphores and shared memory
PR_SET_CHILD_SUBREAPER = 36
SHARED_NAMES = ("sem.mp-", "psm_", "torch_")


def remove_registrations(pids: set[int]) -> None:
    """What OpenMP runtimes left of processes that are dead; a pid may have become another program's since."""
    for path in glob.glob("/dev/shm/__KMP_REGISTERED_LIB_*_*"):
        pid = int(number) if (number := path.split("_")[-2]).isdecimal() else 0
        if pid in pids and not os.path.exists(f"/proc/{pid}"):
            with contextlib.suppress(OSError):
                os.unlink(path)


def shared_objects(maps: str) -> set[int]:
    """Inodes of the named semaphores and shared memory in the text of a /proc/PID/maps, where a semaphore has the name of a draft that was
    removed since (sem_open links a finished file to the name)."""
    return {int(line.split()[4]) for line in maps.splitlines() if SHM in line} if SHM in maps else set()


def mapped_by(pids: set[int]) -> set[int]:
    found: set[int] = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found |= shared_objects(kernel_text(f"/proc/{pid}/maps"))
    return found


def remove_shared_objects(inodes: set[int]) -> None:
    """Those that libraries named at random and that nobody maps any more: what removes them at the end of a healthy program
    (multiprocessing's resource tracker, torch's manager) was ended together with it."""
    with contextlib.suppress(OSError):
        found = [each for each in os.scandir(SHM) if each.inode() in inodes and each.name.startswith(SHARED_NAMES)] if inodes else []
        mapped = mapped_by({int(name) for name in os.listdir("/proc") if name.isdecimal()}) if found else set()
        for each in found:
            if each.inode() not in mapped:
                os.unlink(each.path)


def recorded_pids(folder: str) -> set[int]:
    try:
        with open(os.path.join(folder, "pids"), errors="replace") as source:
            return {int(word) for word in source.read().split() if word.isdecimal()}
    except OSError:
        return set()


def group_pids(groups: list[str]) -> set[int]:
    """Processes of cgroups and of every group nested below them."""
    pids: set[int] = set()
    for group in groups:
        for folder in group_folders(group):
            with contextlib.suppress(OSError):
                pids |= set(map(int, kernel_bytes(folder + "/cgroup.procs").split()))
    pids.discard(0)  # one of another container, which has no number here; and a signal to 0 would end our own
    return pids


def kill_at_once(group: str) -> None:
    """SIGKILL all in it and below it in one step, so that nothing outruns it by forking: version 2 since Linux 5.14; elsewhere nothing."""
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.join(group, "cgroup.kill"), os.O_WRONLY)
        try:
            os.write(descriptor, b"1")
        finally:
            os.close(descriptor)


def group_folders(group: str) -> list[str]:
    """A cgroup and those nested below it, outermost first; the kernel counts folders as links, which spares a walk over all its files."""
    try:
        if os.stat(group).st_nlink == 2:
            return [group]
    except OSError:
        return []
    return [folder for folder, _, _ in os.walk(group)]


def remove_group(group: str) -> None:
    """Remove a cgroup and those nested below it, innermost first; a group is busy for a moment after its last process."""
    for _ in range(50):
        for folder in reversed(group_folders(group)):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        if not os.path.isdir(group):
            return
        time.sleep(0.01)


def descendants(root: int) -> set[int]:
    """Every living process below `root`, by a walk over /proc (ps elsewhere); zombies are not counted."""
    children: dict[int, list[int]] = {}
    for pid, parent in process_table():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    queue = [root]
    while queue:
        for pid in children.get(queue.pop(), []):
            if pid not in found:
                found.add(pid)
                queue.append(pid)
    return found


def process_table() -> list[tuple[int, int]]:
    if not os.path.isdir("/proc/self"):
        import subprocess

        lines = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True, errors="replace").stdout.splitlines()
        return [(int(words[0]), int(words[1])) for words in map(str.split, lines) if not words[2].startswith("Z")]
    table = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                state, parent = kernel_text(f"/proc/{name}/stat").rpartition(")")[2].split()[:2]
                if state != "Z":
                    table.append((int(name), int(parent)))
    return table


def become_subreaper() -> None:
    """Have processes below this one that lose their parent come to this one."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
