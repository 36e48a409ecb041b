"""Room: /dev/shm, the temp folder, the working folder."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from matrix.doctor.finding import NotSeen, Seen, check
from matrix.doctor.place import Place, size

GIB, MIB = 1 << 30, 1 << 20
# In a socket's name: the folder, then "/pymp-xxxxxxxx/listener-xxxxxxxx", and 108 bytes with the zero at the end.
SOCKET_LONGEST, SOCKET_REST = 108, len("/pymp-xxxxxxxx/listener-xxxxxxxx") + 1
LITTER = re.compile(r"(?:__KMP_REGISTERED_LIB_|torch_)(?P<pid>\d+)_")


def _room(folder: Path) -> tuple[int, int, int | None]:
    """Free bytes, all bytes, and the share of inodes that is free in percent (None: it does not count them)."""
    found = os.statvfs(folder)
    inodes = 100 * found.f_favail // found.f_files if found.f_files else None
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, inodes


@check(
    id="shm-room",
    group="storage",
    fine="/dev/shm is 1 GiB or more",
    causes='"DataLoader worker is killed by signal: Bus error": workers hand batches over in /dev/shm, and a page that finds no '
    "room is SIGBUS",
    unproven="that your batches times prefetch times workers need more; jobs without workers need little",
    by_hand="df -h /dev/shm while the job runs",
    remedy='docker --shm-size=8g (or --ipc=host), an emptyDir with medium Memory in Kubernetes; or set_sharing_strategy("file_system")',
    references=(
        "https://github.com/pytorch/pytorch/issues/5040",
        "https://docs.docker.com/reference/cli/docker/container/run/ (the default is 64 MB)",
    ),
)
def shm(place: Place) -> Iterator[Seen]:
    """error: nothing can be put there, so not even a lock of multiprocessing can be made."""
    if place.system != "linux":
        raise NotSeen(f"{place.system} has no /dev/shm: shared memory has no folder there")
    folder = place.root / "dev/shm"
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        what = "is not writable" if folder.is_dir() else "is not there"
        yield Seen(
            severity="error", summary=f"/dev/shm {what}: locks and queues of multiprocessing cannot be made", remedy="mount a tmpfs there"
        )
        return
    free, total, _ = _room(folder)
    if free < MIB:
        yield Seen(
            severity="error", summary=f"/dev/shm is full ({size(free)} of {size(total)} free)", remedy="remove what nobody uses there"
        )
    elif total < GIB or free < GIB // 4:
        yield Seen(severity="warning", summary=f"/dev/shm has {size(free)} free of {size(total)}")


@check(
    id="shm-litter",
    group="storage",
    fine="no dead process left anything in /dev/shm",
    causes="room that is gone until somebody removes it; most often the trace of a process that was killed",
    unproven="which job it was: only the number of the process is known, and where the folder is shared with another container or "
    "the host, processes there do not count; torch's files may be in use by another process than the one that made them",
    by_hand="ls -la /dev/shm",
    remedy="remove the files named in the evidence (--json) when no job runs, in no container that shares the folder",
    references=("measured: the LLVM/Intel OpenMP runtime's file survives SIGABRT and SIGKILL and names the library that was first",),
)
def litter(place: Place) -> Iterator[Seen]:
    folder = place.root / "dev/shm"
    if not folder.is_dir():
        raise NotSeen("there is no /dev/shm")
    dead = [path for path in sorted(folder.iterdir()) if (match := LITTER.match(path.name)) and not psutil.pid_exists(int(match["pid"]))]
    if dead:
        held = sum(path.lstat().st_size for path in dead)
        what = f"{len(dead)} file{'s' * (len(dead) > 1)} in /dev/shm of processes that do not run here, {size(held)}"
        yield Seen(severity="info", summary=what, evidence=tuple(map(str, dead[:20])))


@check(
    id="temp-folder",
    group="storage",
    fine="the temp folder has room, and its path is short",
    causes='writes that fail in the middle of a run; with a long path "AF_UNIX path too long" as soon as multiprocessing makes a socket',
    unproven="how much the job writes there",
    by_hand="python -c 'import tempfile; print(tempfile.gettempdir())'; df -h -i THAT",
    remedy="TMPDIR=/a/short/path/with/room",
    references=("https://man7.org/linux/man-pages/man7/unix.7.html",),
)
def temp(place: Place) -> Iterator[Seen]:
    try:
        folder = Path(tempfile.gettempdir())
    except FileNotFoundError:
        yield Seen(severity="error", summary="no temp folder can be written to: tempfile raises FileNotFoundError")
        return
    asked = place.environment.get("TMPDIR", "")
    if asked and not os.access(asked, os.W_OK):
        yield Seen(severity="warning", summary=f"TMPDIR={asked} cannot be written to, so {folder} is used")
    if len(os.fsencode(folder)) + SOCKET_REST > SOCKET_LONGEST:
        longest = SOCKET_LONGEST - SOCKET_REST
        yield Seen(
            severity="warning", summary=f"the temp folder's path has {len(os.fsencode(folder))} bytes, sockets take {longest}: {folder}"
        )
    yield from _little(folder, "the temp folder")
    if _is_memory(folder, place):
        yield Seen(severity="info", summary=f"{folder} is in memory (tmpfs): what is written there counts against it")


@check(
    id="disk-room",
    group="storage",
    fine="the working folder has room",
    causes="a checkpoint that is cut off, and a run that ends in the middle of it",
    unproven="how much the job writes, and whether it writes there; quotas are not seen",
    by_hand="df -h . ; df -i . ; quota",
    remedy="make room, or write elsewhere",
)
def disk(place: Place) -> Iterator[Seen]:
    if not os.access(place.cwd, os.W_OK):
        yield Seen(severity="warning", summary=f"{place.cwd} cannot be written to")
        return  # images that are read-only are always full
    yield from _little(place.cwd, "the working folder")


def _little(folder: Path, name: str) -> Iterator[Seen]:
    free, total, inodes = _room(folder)
    if not total:  # /proc and some network file systems count nothing
        raise NotSeen(f"{name} ({folder}) is on a file system that does not tell its room")
    if free < 16 * MIB:
        yield Seen(severity="error", summary=f"{name} ({folder}) is full: {size(free)} of {size(total)} free")
    elif free < 2 * GIB:
        yield Seen(severity="warning", summary=f"{name} ({folder}) has {size(free)} free of {size(total)}")
    if inodes is not None and inodes < 3:
        yield Seen(severity="warning", summary=f"{name} ({folder}) has {inodes} % of its inodes free: no more files, whatever df says")


def _is_memory(folder: Path, place: Place) -> bool:
    """Whether its mount is a tmpfs."""
    try:
        lines = place.text("/proc/self/mountinfo").splitlines()
    except NotSeen:
        return False
    device = os.stat(folder).st_dev  # noqa: PTH116 - the device is wanted
    number = f"{os.major(device)}:{os.minor(device)}"
    return any(line.split()[2] == number and " - tmpfs " in line for line in lines)
