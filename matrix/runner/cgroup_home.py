"""Where groups of ours can be made: in this process's own group, or beside it where that takes no limit away.

Version 2 lets no group with processes in it hand a controller on (the root alone is exempt), so nobody can make a group
that limits memory right below the one that he is in.  What is done instead: groups beside the own one, where the own one
sets no limit and the one around it can be written to (a login of root, a program under a user's systemd).  Else all
processes of the own group move together one level down, where each of its limits still holds, and ours are made beside
them (a container, a delegated scope).  The rules: Documentation/admin-guide/cgroup-v2.rst of the kernel, "Delegation",
"No Internal Process Constraint".
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from matrix.kernel_text import kernel_text

ROOT = Path("/sys/fs/cgroup")
REST = "matrix-rest"  # where the processes of the own group are when they had to move; it stays as long as they do
ROUNDS = 50  # they may fork meanwhile
LIMITS = ("memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max", "cpuset.cpus", "cpuset.mems", "io.max")
Isolation = Literal["cgroup-v2", "cgroup-v1", "watchdog", "none"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Home:
    """A folder in which groups of ours are made."""

    path: Path
    isolation: Isolation
    crowded: bool = False  # the processes in it have to move first


def why_not() -> str:
    """Why no memory cgroup can be made here; empty when one can."""
    return (opened() if opened.cache_info().currsize else _chosen())[1]


def seems_not() -> str:
    """The same by a look at rights alone, without making a group; empty when it seems that one can be made."""
    reasons = []
    for folder in _candidates():
        if "memory" not in _words(folder / "cgroup.controllers"):
            reasons.append(f"{folder} has no memory controller")
        elif all(os.access(folder / name, os.W_OK) for name in ("", "cgroup.procs", "cgroup.subtree_control")):
            return ""
        else:
            reasons.append(f"{folder} cannot be written to")
    if (path := home_v1("memory")) is not None and path.is_dir():
        if os.access(path, os.W_OK):
            return ""
        reasons.append(f"{path} cannot be written to")
    return "; ".join(reasons) or "no memory cgroup is mounted"


def can_limit_pids() -> bool:
    """Whether the number of processes of an attempt can be bounded."""
    return _can("pids")


def can_limit_cpu() -> bool:
    """Whether an attempt can be given less than its processors' time."""
    return _can("cpu")


def _can(controller: str) -> bool:
    home, _ = _chosen()
    if home is not None and home.isolation == "cgroup-v2":
        return controller in _words(home.path / "cgroup.controllers")
    folder = home_v1(controller)
    return home is not None and folder is not None and os.access(folder, os.W_OK)


@functools.cache
def homes() -> list[Path]:
    """Folders that may hold groups of ours, for the clean-up of what a killed tool left behind."""
    found = [*_candidates(), *filter(None, map(home_v1, ("memory", "pids", "cpu")))]
    return [path for path in found if path.is_dir()]


@functools.cache
def opened() -> tuple[Home | None, str]:
    """The folder, ready to be used, or why there is none.  Where they have to, processes are moved."""
    home, why = _chosen()
    if home is None or not home.crowded:
        return home, why
    try:
        make_room(home.path)
    except OSError as problem:
        return None, f"{home.isolation}: the processes of {home.path} cannot be moved: {problem.strerror}"
    _, why = _trial(home.path, "memory.max")
    return (None, f"{home.isolation}: {why}") if why else (home, "")


@functools.cache
def _chosen() -> tuple[Home | None, str]:
    """The folder or the reason, found without moving anything."""
    reasons: list[str] = []
    mine, crowded = own_v2(), False
    for folder in _candidates():
        code, why = _trial(folder, "memory.max")
        if not why:
            return Home(path=folder, isolation="cgroup-v2"), ""
        reasons.append(f"cgroup-v2: {why}")
        crowded |= folder == mine and code == errno.EBUSY and os.access(folder / "cgroup.procs", os.W_OK)
    if mine is not None and crowded:
        return Home(path=mine, isolation="cgroup-v2", crowded=True), ""
    if (path := home_v1("memory")) is None or not path.is_dir():
        return None, "; ".join([*reasons, "cgroup-v1: no memory controller here"])
    _, why = _trial(path, "memory.limit_in_bytes")
    return (None, "; ".join([*reasons, f"cgroup-v1: {why}"])) if why else (Home(path=path, isolation="cgroup-v1"), "")


def _candidates() -> Iterator[Path]:
    """This process's own group of version 2, then those around it, as long as leaving the inner ones leaves no limit."""
    folder = own_v2()
    while folder is not None and folder.is_dir():
        yield folder
        if folder == ROOT or any(is_set(folder / name) for name in LIMITS):
            return
        folder = folder.parent


def is_set(file: Path) -> bool:
    """Whether a file of version 2 holds a limit."""
    words = _words(file)
    return bool(words) and words[0] != "max"


def _trial(folder: Path, limit: str) -> tuple[int, str]:
    """Make a group there and remove it: (0, "") or the error's number and why it cannot be used."""
    made = folder / f"mx-{os.getpid()}-probe"
    try:
        if limit == "memory.max":
            hand_on(folder, "memory")
        made.mkdir()
        if not (made / limit).exists():
            return 0, f"{folder} does not delegate the memory controller"
        # who moves a process needs this right in the innermost group around the old place and the new one
        if limit == "memory.max" and not os.access(folder / "cgroup.procs", os.W_OK):
            return errno.EACCES, f"{folder}: no process may be moved within it"
        return 0, ""
    except OSError as problem:
        return problem.errno or 0, f"{folder}: {'it has processes of its own' if problem.errno == errno.EBUSY else problem.strerror}"
    finally:
        with contextlib.suppress(OSError):
            made.rmdir()


def hand_on(folder: Path, controller: str) -> None:
    """Let the groups in a folder of version 2 have a controller.  Raises OSError: ENOENT: it has none to give; EBUSY: it has processes."""
    if controller not in _words(folder / "cgroup.subtree_control"):
        (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def make_room(group: Path) -> None:
    """Move all processes of a group of version 2 one level down; where one cannot be moved, all come back.  Raises OSError."""
    rest = group / REST
    rest.mkdir(exist_ok=True)
    try:
        for _ in range(ROUNDS):
            pids = _words(group / "cgroup.procs")
            if not pids:
                return
            _move(pids, rest)
        raise OSError(errno.EBUSY, "they are started faster than they can be moved")
    except OSError:
        with contextlib.suppress(OSError):
            _move(_words(rest / "cgroup.procs"), group)
            rest.rmdir()
        raise


def _move(pids: list[str], group: Path) -> None:
    for pid in pids:
        if pid == "0":
            raise OSError(errno.EPERM, "one is of another container")
        with contextlib.suppress(ProcessLookupError):
            (group / "cgroup.procs").write_text(pid)


def own(prefix: str) -> str | None:
    """Path of this process in the hierarchy of /proc/self/cgroup that has the controller `prefix`; of version 2 for ""."""
    for line in _lines(Path("/proc/self/cgroup")):
        number, controllers, path = line.split(":", 2)
        if (prefix == "" and number == "0" and not controllers) or (prefix and prefix in controllers.split(",")):
            return path
    return None


def own_v2() -> Path | None:
    """None: no such hierarchy is mounted here, or not the part of it that this process is in."""
    path = own("")
    if path is None or not (ROOT / "cgroup.controllers").exists():
        return None
    mounts = [words[3] for line in _lines(Path("/proc/self/mountinfo")) if (words := line.split())[4] == str(ROOT)]
    mounted = mounts[-1] if mounts else "/"  # which folder of the hierarchy is seen there
    if mounted != "/" and not f"{path}/".startswith(f"{mounted}/"):
        return None
    inner = (path if mounted == "/" else path[len(mounted) :]).strip("/")
    return None if inner.startswith("..") else ROOT / inner


def home_v1(controller: str) -> Path | None:
    path = own(controller)
    return None if path is None else ROOT / controller / path.lstrip("/")


def _words(file: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return kernel_text(file).split()
    return []


def _lines(file: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return kernel_text(file).splitlines()
    return []
