"""Room on the file systems that a program writes to, seen from inside its own mount namespace.

/dev/shm, the temp folder and the working folder are always watched; others are found by the files that a process has open for
writing or has mapped shared, and, as small files are closed before anybody looks, by the mounts that came with it and by those that
ran full while it ran.  Nothing is kept open there: a program must be able to unmount what it mounted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import stat
from collections.abc import Iterable, Mapping
from typing import Literal

from matrix.kernel_text import kernel_text
from matrix.records import Filesystem

MOST_DESCRIPTORS = 64  # of each process
MOST_PROCESSES = 8
MOST = 12
NO_FILES = ("/dev/", "/proc/", "/sys/", "/memfd:", "/SYSV")
LOCAL = ("tmpfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "zfs", "vfat", "exfat", "ntfs3", "overlay")  # no server waits
FULL_SHARE = 0.02  # less room than that is none
MOUNT = re.compile(r"^\d+ \d+ (\d+):(\d+) \S+ (\S+) (\S+) .*?- (\S+) \S+ (\S+)$", re.M)
ESCAPED = re.compile(r"\\([0-7]{3})")
SHARED = re.compile(r"^\S+ .w.s \S+ \S+ \S+ +(/.*)$", re.M)
Use = Literal["shm", "temp", "cwd", "written"]
ALWAYS: tuple[Use, ...] = ("shm", "temp", "cwd")


@dataclasses.dataclass(kw_only=True)
class _Room:
    folder: str
    use: Use
    device: int
    kind: str
    total: int = 0
    least: int = 0
    last: int = 0
    last_s: float = 0.0
    least_inodes: int | None = None
    first: int = 0
    written: bool = True  # False: a mount of which nobody was seen to have a file open

    @property
    def told(self) -> bool:
        """Whether it is one that the program writes to, or that ran full meanwhile."""
        scarce = FULL_SHARE * self.total
        return self.total > 0 and (self.written or self.least_inodes == 0 or self.least < scarce <= self.first)


class Space:
    """`folders`: what is always watched, by its use (shm, temp, cwd).  `wanted`: whether there will be looks.

    `own`: the attempt's folder, where the tool and its hook write: what they fill is not what the program fills."""

    def __init__(self, folders: Mapping[str, str], *, wanted: bool = True, own: str = "") -> None:
        self._own = os.path.realpath(own) if own else ""
        self._own_device = _device(own) if own else None
        self._wanted: dict[Use, str] = {use: folders[use] for use in ALWAYS if use in folders}
        self._rooms: dict[tuple[int, Use], _Room] = {}
        self._pid = 0
        self._before = {device for device, _ in _mounts("self")} if wanted else set()
        self._mounts: list[tuple[int, str]] = []

    def look(self, now_s: float, pids: list[int], main: int, maps: Mapping[int, str]) -> None:
        """Find file systems; `maps` are texts of /proc/PID/maps as far as they are known."""
        self._pid = main
        for use, folder in self._wanted.items():
            self._add(main, folder, use)
        for pid in pids[:MOST_PROCESSES]:
            paths = (*_open_for_writing(pid), *SHARED.findall(maps.get(pid, "")))
            for folder in {os.path.dirname(path) for path in paths if not self._is_of_the_hook(path)}:  # noqa: PTH120
                if not folder.startswith(NO_FILES) and folder != "/dev":
                    self._add(pid, folder, "written")
        if (mounts := _mounts(main)) != self._mounts:
            self._mounts = mounts
            for device, folder in mounts:
                if device == self._own_device:
                    continue
                self._add(main, folder, "written", written=device not in self._before)
        self.sample(now_s)

    def _is_of_the_hook(self, path: str) -> bool:
        """True for a file that our hook keeps open in every Python process."""
        folder, name = os.path.split(path)
        return folder == self._own and name.startswith("stacks.")

    def sample(self, now_s: float) -> None:
        """How much room there is now; a few microseconds each."""
        for room in self._rooms.values():
            path = f"/proc/{self._pid}/root{room.folder}"
            with contextlib.suppress(OSError):
                if os.stat(path).st_dev == room.device:  # noqa: PTH116
                    _measure(room, path, now_s)

    def end(self, now_s: float) -> None:
        """Once more when nobody is left, where the file system is also ours."""
        for room in self._rooms.values():
            with contextlib.suppress(OSError):
                if os.stat(room.folder).st_dev == room.device:  # noqa: PTH116
                    _measure(room, room.folder, now_s)

    def _add(self, pid: int, folder: str, use: Use, *, written: bool = True) -> None:
        path = f"/proc/{pid}/root{folder}"
        with contextlib.suppress(OSError):
            device = os.stat(path).st_dev  # noqa: PTH116
            known = any(device == other for other, _ in self._rooms) if use == "written" else (device, use) in self._rooms
            if not known and len(self._rooms) < MOST:
                self._rooms[device, use] = _Room(folder=folder, use=use, device=device, kind=_kind(pid, device), written=written)
            elif written and (device, use) in self._rooms:
                self._rooms[device, use].written = True

    def record(self) -> list[Filesystem]:
        return [
            Filesystem(
                folder=room.folder,
                use=room.use,
                kind=room.kind,
                total_bytes=room.total,
                least_free_bytes=room.least,
                last_free_bytes=room.last,
                last_s=round(room.last_s, 3),
                least_free_inodes=room.least_inodes,
            )
            for room in self._rooms.values()
            if room.told
        ]


def _device(folder: str) -> int | None:
    with contextlib.suppress(OSError):
        return os.stat(folder).st_dev  # noqa: PTH116
    return None


def _measure(room: _Room, path: str, now_s: float) -> None:
    found = os.statvfs(path)
    free = found.f_bavail * found.f_frsize
    room.first = room.first if room.total else free
    room.least = min(free, room.least) if room.total else free
    room.total, room.last, room.last_s = found.f_blocks * found.f_frsize, free, now_s
    if found.f_files:
        room.least_inodes = min(found.f_favail, found.f_favail if room.least_inodes is None else room.least_inodes)


def _open_for_writing(pid: int) -> Iterable[str]:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd")[:MOST_DESCRIPTORS]:  # noqa: PTH208
            link = f"/proc/{pid}/fd/{name}"
            with contextlib.suppress(OSError):
                if os.lstat(link).st_mode & stat.S_IWUSR and (path := os.readlink(link)).startswith("/"):  # noqa: PTH115
                    yield path


def _mounts(pid: int | Literal["self"]) -> list[tuple[int, str]]:
    """(device, folder) of the local file systems that a process might write to."""
    found = []
    with contextlib.suppress(OSError):
        for major, minor, folder, options, kind, of_all in MOUNT.findall(kernel_text(f"/proc/{pid}/mountinfo")):
            writable = "rw" in options.split(",") and "rw" in of_all.split(",")
            if writable and kind in LOCAL and not folder.startswith(NO_FILES):
                name = ESCAPED.sub(lambda octal: chr(int(octal[1], 8)), folder)
                found.append((os.makedev(int(major), int(minor)), name))
    return found


def _kind(pid: int, device: int) -> str:
    """`tmpfs`, `ext4`: as its mount says."""
    number = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in kernel_text(f"/proc/{pid}/mountinfo").splitlines():
            fields = line.split()
            if fields[2] == number and "-" in fields:
                return fields[fields.index("-") + 1]
    return ""
