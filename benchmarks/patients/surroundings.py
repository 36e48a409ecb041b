"""The surroundings that kill a patient: limits, small file systems, a container, and a process that sends signals.

All of them are arranged from outside.  No file of the program is edited.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil

from matrix.runner import cgroup

MARK = "PATIENT_OF"  # stands in the environment of all that belongs to one patient
LOOK_EVERY_S = 0.1


class NotHere(Exception):
    """This machine cannot arrange the surroundings; the text says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Killer:
    """A process of somebody else that sends a signal to the program at a fixed age."""

    script: str  # the last part of the path in the command line of the victim
    after_s: float
    number: int = signal.SIGKILL
    rank: str | None = None  # RANK of the victim; None: every process of the program


@dataclasses.dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What stands around the program, as in the shell or the container that a user starts the program in."""

    told: str  # one line for people
    limits: Mapping[int, int] = dataclasses.field(default_factory=dict)  # soft and hard limit by resource.RLIMIT_*
    mounts: Mapping[str, str] = dataclasses.field(default_factory=dict)  # size of a memory file system by its folder
    memory_bytes: int | None = None
    pids: int | None = None
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    killer: Killer | None = None


NOTHING = Surroundings(told="nothing wrong")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Entrance:
    """How a process gets into the surroundings."""

    prefix: list[str]  # words before its command
    enter: Callable[[], None]  # runs in the child before its command
    env: dict[str, str]


@contextlib.contextmanager
def arranged(around: Surroundings, folder: Path) -> Iterator[Entrance]:
    """Arrange the surroundings for a program in `folder`, and take all of them away at the end.  Raises NotHere."""
    if around.mounts and (os.geteuid() != 0 or not shutil.which("unshare")):
        raise NotHere("small file systems need root and unshare")
    group = _container(around)
    mark = f"{folder.name}-{os.getpid()}"
    stop = threading.Event()
    watcher = threading.Thread(target=_send_signals, args=(around.killer, mark, stop), daemon=True)
    if around.killer:
        watcher.start()
    try:
        yield Entrance(
            prefix=_mounting(around.mounts, folder),
            enter=_entering(around.limits, group),
            env={**around.env, MARK: mark},
        )
    finally:
        stop.set()
        if around.killer:
            watcher.join()
        _end_all(mark)
        if group:
            group.end()
            group.remove()


def _container(around: Surroundings) -> cgroup.Group | None:
    if around.memory_bytes is None and around.pids is None:
        return None
    group = cgroup.create(f"container-{os.getpid()}", around.memory_bytes, around.pids)
    if group is None:
        raise NotHere(f"no control group can be made: {cgroup.why_not()}")
    return group


def _mounting(mounts: Mapping[str, str], folder: Path) -> list[str]:
    """Return the words that start a command with small file systems of its own."""
    if not mounts:
        return []
    places = [(folder / place, size) for place, size in mounts.items()]
    for place, _ in places:
        place.mkdir(parents=True, exist_ok=True)
    script = "".join(f"mount -t tmpfs -o size={size} tmpfs '{place}' && " for place, size in places) + 'exec "$@"'
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]


def _entering(limits: Mapping[int, int], group: cgroup.Group | None) -> Callable[[], None]:
    def enter() -> None:
        if group:
            for folder in group.folders:
                (folder / "cgroup.procs").write_text(str(os.getpid()))
        for name, most in limits.items():
            resource.setrlimit(name, (most, most))

    return enter


# ------------------------------------------------------------------ signals from outside
def _send_signals(killer: Killer | None, mark: str, stop: threading.Event) -> None:
    """Send the signal to each victim at its age, until `stop`."""
    done: set[tuple[int, float]] = set()
    while killer and not stop.wait(LOOK_EVERY_S):
        for process in psutil.process_iter(["pid", "create_time"]):
            born = process.info["create_time"]
            if (process.pid, born) in done or time.time() - born < killer.after_s:
                continue
            done.add((process.pid, born))  # looked at once: a program is what it is at that age
            if _is_victim(process, killer, mark):
                with contextlib.suppress(psutil.Error):
                    process.send_signal(killer.number)


def _is_victim(process: psutil.Process, killer: Killer, mark: str) -> bool:
    try:
        words = process.cmdline()
        if not any(word.endswith(killer.script) for word in words) or any(word.startswith("matrix") for word in words):
            return False
        env = process.environ()
    except (psutil.Error, OSError):
        return False
    return env.get(MARK) == mark and killer.rank in (None, env.get("RANK"))


def _end_all(mark: str) -> None:
    """End every process that is left of a patient."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(MARK) == mark:
                process.kill()
