"""The processes of a watched run: its own cgroup's where one could be made, else those below the main one.  Nothing here is ended."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import psutil

from matrix.runner.cgroup import Group, homes
from matrix.runner.cgroup_home import own_v2
from matrix.runner.tree import Tree, owner_is_dead

KIND = "watch"  # with which the names of its cgroups begin


class Family(Tree):
    """Unlike an attempt's tree it does not search the whole machine for processes that daemonised: that would cost too much."""

    def pids(self) -> set[int]:
        found = super().pids()
        if self.main not in found:  # a launcher moved it out of our group
            found = found | below(self.main)
            self.ever |= found
        return found

    def _marked(self) -> set[int]:
        return below(self.main)


def below(root: int) -> set[int]:
    """`root` and everything below it that lives, at the price of its own threads and not of all processes of the machine."""
    if sys.platform != "linux":
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(root)
            return {root, *(child.pid for child in process.children(recursive=True))}
        return set()
    found: set[int] = set()
    queue = [root]
    while queue:
        pid = queue.pop()
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - read of every thread
                with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as source:  # noqa: PTH123
                    queue += [int(word) for word in source.read().split()]
            found.add(pid)
    return found


def sweep() -> None:
    """Remove the cgroups that recorders left behind which were killed; one in which a recorded program still runs stays."""
    for home in homes():
        for folder in home.glob(f"{KIND}-*"):
            if owner_is_dead(KIND, folder.name) and not (group := Group(folder, "none")).pids():
                group.remove()


def release(group: Group) -> int:
    """Remove our cgroup and end nothing: what outlived the main process goes to where the recorder is.  The number of those."""
    left = group.pids()
    for folder in group.folders:
        door = _own_place(folder, group.isolation == "cgroup-v2") / "cgroup.procs"
        for pid in left:
            with contextlib.suppress(OSError):
                door.write_text(str(pid))
    group.remove()
    return len(left)


def _own_place(folder: Path, v2: bool) -> Path:
    """The recorder's group in the same hierarchy; of version 2 never the folder above, which hands controllers on and takes no process."""
    return (own_v2() if v2 else None) or folder.parent
