"""The tool's side of the guardian: start a child, follow its status, find and end what belongs to it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import os
import secrets
import shutil
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matrix.evidence import own_limits
from matrix.runner import cgroup

SHORT_TEMP = Path("/tmp" if os.access("/tmp", os.W_OK) else tempfile.gettempdir())  # long paths are too long for multiprocessing's sockets
ROOT = Path(__file__).resolve().parents[2]  # the folder that holds our packages
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
            self.process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True)
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

    def close(self) -> None:
        self._control.close()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)  # it may have been killed

    def __enter__(self) -> Guardian:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _is_untouched(folder: Path) -> bool:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return os.lstat(folder).st_mode == stat.S_IFDIR | 0o700 and not any(entries)
    return False
