"""The tool's side of the guardian: start a child, follow its status, find and end what belongs to it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import secrets
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matrix.evidence import own_limits
from matrix.runner import cgroup
from matrix.runner.leftovers import (
    become_subreaper,
    descendants,
    group_pids,
    mapped_by,
    recorded_pids,
    remove_group,
    remove_registrations,
    remove_shared_objects,
)
from matrix.runner.tree import MARK, is_zombie, marked_processes

SHORT_TEMP = Path("/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir())  # long paths are too long for multiprocessing's sockets
ROOT = Path(__file__).resolve().parents[2]  # the folder that holds our packages
GUARDIAN_MARK = "MATRIX_GUARDIAN"  # in the environment of each guardian
LOOK_S = 0.5
CLOSING_S = 60.0  # for what a guardian does in 20 s at most
SCRIPT = Path(__file__).with_name("guardian.py")


class RunnerError(Exception):
    """The surroundings failed (the guardian died, no space, no process could be made): never the child's doing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """Everything the guardian needs to start one child."""

    argv: Sequence[str]
    env: dict[str, str]  # complete
    cwd: str
    cgroups: Sequence[str] = ()  # files into which the child writes 0 to join
    roomy: bool = False  # there is one group, and it has room for the guardian for a moment
    rlimits: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)  # "RLIMIT_CORE" -> (soft, hard)
    cpus: Sequence[int] | None = None
    mounts: Sequence[tuple[str, str]] = ()
    pty: bool = False
    tmpfs: Sequence[tuple[str, int]] = ()  # (folder, bytes): an empty file system in memory over that folder
    no_huge_pages: bool = False
    ignored: Sequence[int] = ()  # signals


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """The wait status of the main process, with the kernel's own account of it."""

    status: int
    maxrss_bytes: int
    cpu_s: float
    preempted: int  # involuntary context switches
    yielded: int  # voluntary ones: it had to wait for something


class Child:
    """The status of one started child, read from its own descriptor (so that an event loop can wait for it)."""

    def __init__(self, status: int) -> None:
        self.status_fd = status
        self.pid: int | None = None
        self.limits: dict[str, list[int]] = {}  # read from the child after its exec: "RLIMIT_NOFILE" -> [soft, hard], "cpus" -> CPUs
        self.start_error: str | None = None
        self.ended: Ended | None = None
        self._buffer = b""

    @property
    def over(self) -> bool:
        return self.ended is not None or self.start_error is not None

    def read_status(self) -> None:
        """Read what the guardian wrote.  Raises RunnerError when it died."""
        data = os.read(self.status_fd, 65536)
        if not data and not self.over:
            raise RunnerError("the guardian process was killed; the attempts that were running are not complete (run again with --resume)")
        self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        for line in lines:
            message = json.loads(line.decode())  # of bytes it would look for the encoding first
            if "pid" in message:
                self.pid, self.limits = message["pid"], message["limits"]
            elif "error" in message:
                self.start_error = message["error"]
            else:
                self.ended = Ended(**message)

    def close(self) -> None:
        os.close(self.status_fd)


def inherited() -> dict[str, str]:
    """The tool's own environment; its root never gets into a child by PYTHONPATH."""
    environment = dict(os.environ)
    path = [entry for entry in environment.pop("PYTHONPATH", "").split(os.pathsep) if entry and Path(entry).resolve() != ROOT]
    return {**environment, "PYTHONPATH": os.pathsep.join(path)} if path else environment


_adopts: list[int] = []  # our pid once orphans come to us


def adopt_orphans() -> None:
    """Have processes whose guardian was killed come to this process.  For a process that starts nothing else that stays."""
    become_subreaper()
    _adopts.append(os.getpid())


def adopted(guardian: int) -> set[int]:
    """Processes below this one, where nobody else can be there."""
    return descendants(os.getpid()) - {guardian} if os.getpid() in _adopts else set()


class Guardian:
    """Starts children through the guardian process; closing it (or dying) ends all of them and removes what was made for them."""

    def __init__(self) -> None:
        self.folder = SHORT_TEMP / f"mx-{os.getpid()}-{secrets.token_hex(4)}"
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._control = ours
        self._lock = threading.Lock()
        self._unused: list[Path] = []  # temp folders
        self.environment = inherited()  # for all children of one matrix the same
        self._numbers = itertools.count(1)  # of temp folders
        with theirs:
            argv = [sys.executable, "-I", "-S", str(SCRIPT), str(theirs.fileno()), str(self.folder), *map(str, cgroup.homes())]
            env = {**os.environ, GUARDIAN_MARK: self.folder.name}  # the next start finds one that was stopped for ever
            self.process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True, env=env)
        self.folder.mkdir(mode=0o700)  # not before there is somebody who removes it

    def token(self) -> str:
        """For one attempt.  All have the same length, so that none is the beginning of another."""
        return f"{self.folder.name}-{secrets.token_hex(4)}"

    def temp(self) -> Path:
        """An empty folder.  Raises RunnerError."""
        try:
            return self._unused.pop()
        except IndexError:
            made = self.folder / str(next(self._numbers))
        try:
            made.mkdir(mode=0o700)
        except OSError as problem:
            raise RunnerError(f"no temporary folder can be made: {problem}") from problem
        return made

    def give_back(self, temp: Path) -> None:
        """One that the child left as it was serves another attempt: making and removing folders is a tenth of a small attempt."""
        if _is_untouched(temp):
            self._unused.append(temp)
        else:
            shutil.rmtree(temp, ignore_errors=True)

    def start(self, launch: Launch, stdout: int, stderr: int) -> Child:
        """Start one child; its program writes to the given descriptors, which stay open here.  Raises RunnerError."""
        read, write = os.pipe()
        try:
            limits = {"rlimits": own_limits.with_inherited(launch.rlimits)}
            self._send({**vars(launch), **limits}, [stdout, stderr, write])
        except RunnerError:
            os.close(read)
            raise
        finally:
            os.close(write)
        return Child(read)

    def _send(self, message: dict[str, Any], descriptors: list[int]) -> None:
        body = json.dumps(message).encode()
        data = struct.pack(">I", len(body)) + body
        try:
            with self._lock:
                sent = socket.send_fds(self._control, [data], descriptors)
                if sent < len(data):
                    self._control.sendall(data[sent:])
        except OSError as problem:
            raise RunnerError(f"the guardian process is gone ({problem}); run again with --resume") from problem

    def wake(self) -> None:
        """Let the guardian go on where a child has stopped it; nothing happens to one that runs."""
        with contextlib.suppress(OSError):
            os.kill(self.process.pid, signal.SIGCONT)

    def close(self) -> None:
        """Have everything ended and removed; where the guardian was killed or does not get on, do it from here."""
        self._control.close()
        if not self._ended_in(CLOSING_S):
            self.process.kill()
            self.process.wait()
        if self.process.returncode:
            self._end_what_it_left()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _ended_in(self, patience_s: float) -> bool:
        deadline = time.monotonic() + patience_s
        while time.monotonic() < deadline:
            self.wake()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(LOOK_S)
                return True
        return False

    def _end_what_it_left(self) -> None:
        """End children whose guardian was killed: by their groups, by their mark, and those that came to this process."""
        name = self.folder.name
        groups = [str(group) for home in cgroup.homes() for group in home.glob(f"{name}-*")]
        ended, shared = set[int](), set[int]()

        def alive() -> set[int]:
            found = group_pids(groups) | marked_processes(f"{MARK}={name}-".encode()) | adopted(self.process.pid)
            found = {pid for pid in found if not is_zombie(pid)}
            ended.update(found)
            shared.update(mapped_by(found))
            return found

        cgroup.kill_until_none(alive, patience_s=CLOSING_S, pause_s=0.01)
        for group in groups:
            remove_group(group)
        remove_registrations(ended | recorded_pids(str(self.folder)))
        remove_shared_objects(shared)

    def __enter__(self) -> Guardian:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_untouched(folder: Path) -> bool:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return os.lstat(folder).st_mode == stat.S_IFDIR | 0o700 and not any(entries)
    return False
