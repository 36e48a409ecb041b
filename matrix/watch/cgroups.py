"""The cgroups that a process is in, whoever made them: what bounds it from outside, read from wherever they are mounted here."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path

from matrix.kernel_text import kernel_text
from matrix.runner.cgroup import Group

NO_LIMIT = 1 << 60  # version 1 writes the largest number of pages that it can count


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    """One group, by its folder."""

    folder: Path
    v2: bool

    @property
    def _group(self) -> Group:
        return Group(self.folder, "cgroup-v2" if self.v2 else "cgroup-v1")

    # -------------------------------------------------------------- memory
    def memory_limit(self) -> int | None:
        """Bytes; None: none here."""
        found = number(self.folder / ("memory.max" if self.v2 else "memory.limit_in_bytes"))
        return found if found is not None and found < NO_LIMIT else None

    def slowed_from(self) -> int | None:
        """Bytes from which on the kernel holds its processes up until they give memory back; None: never, as in version 1."""
        return number(self.folder / "memory.high") if self.v2 else None

    def memory_used(self) -> int | None:
        """Bytes that the kernel cannot get back by dropping pages of files."""
        return self._group.used_bytes()

    def oom_kills(self) -> int | None:
        """Of the kernel's, of processes in this very group: those below it may be other people's."""
        return self._group.own_oom_kills()

    def ends_all_at_once(self) -> bool:
        """Whether the kernel ends the whole group, the recorder in it too, when it kills for memory."""
        return self.v2 and number(self.folder / "memory.oom.group") == 1

    # -------------------------------------------------------------- processes and threads
    def pids_limit(self) -> int | None:
        return number(self.folder / "pids.max")

    def pids_used(self) -> int | None:
        return number(self.folder / "pids.current")


def around(pid: int | str, controller: str) -> list[Place]:
    """The group of that process and those around it, the innermost first, as far as they are visible here; [] on other systems."""
    with contextlib.suppress(OSError, ValueError):
        own = _own(kernel_text(f"/proc/{pid}/cgroup"))
        for place, root in _mounts(kernel_text(f"/proc/{pid}/mountinfo"), controller):
            path = own.get("" if place.v2 else controller)
            if path is None or (place.v2 and not (place.folder / "cgroup.controllers").exists()):
                continue
            inner = path[len(root) :] if root != "/" and path.startswith(root) else path
            folder = place.folder / inner.strip("/")
            folder = folder if folder.is_dir() else place.folder  # a container shows its own group as the mount, under its path outside
            chain = [folder, *(each for each in folder.parents if each.is_relative_to(place.folder))]
            found = [Place(folder=each, v2=place.v2) for each in chain]
            if any(_is_controlled(each, controller) for each in found):
                return found
    return []


def _is_controlled(place: Place, controller: str) -> bool:
    names = {"memory": ("memory.max", "memory.limit_in_bytes"), "pids": ("pids.max",)}[controller]
    return any((place.folder / name).exists() for name in names)


def _own(text: str) -> dict[str, str]:
    """Path by controller; that of version 2 by the empty name."""
    found = {}
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _mounts(text: str, controller: str) -> Iterator[tuple[Place, str]]:
    """Where hierarchies that may hold it are mounted, and which of their folders is."""
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        words, (kind, _, options) = before.split(), after.split(maxsplit=2)
        if kind == "cgroup2" or (kind == "cgroup" and controller in options.split(",")):
            yield Place(folder=Path(words[4]), v2=kind == "cgroup2"), words[3]


def number(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(kernel_text(path))
    return None
