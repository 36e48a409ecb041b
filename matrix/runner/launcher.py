"""The tool's side of the guardian: start a child, follow its status, find and end what belongs to it."""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("guardian.py")


class RunnerError(Exception):
    """The surroundings failed (the guardian died, no space, no process could be made): never the child's doing."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Launch:
    """Everything the guardian needs to start one child."""

    token: str  # unique on this machine; also the name of the cgroup and of the temp folder
    argv: Sequence[str]
    env: dict[str, str]  # complete
    cwd: str
    temp: str
    cgroups: Sequence[str] = ()  # folders; the first one is the list of processes
    rlimits: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)  # "RLIMIT_CORE" -> (soft, hard)
    cpus: Sequence[int] | None = None
    mounts: Sequence[tuple[str, str]] = ()
    pty: bool = False

    def request(self) -> dict[str, Any]:
        procs = [str(Path(group, "cgroup.procs")) for group in self.cgroups]
        return {**vars(self), "cgroup_procs": procs}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ended:
    """The wait status of the main process, with the kernel's own account of it."""

    status: int
    maxrss_bytes: int
    cpu_s: float


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
            message = json.loads(line)
            if "pid" in message:
                self.pid, self.limits = message["pid"], message["limits"]
            elif "error" in message:
                self.start_error = message["error"]
            else:
                self.ended = Ended(**message)

    def close(self) -> None:
        os.close(self.status_fd)


class Guardian:
    """Starts children through the guardian process; closing it (or dying) ends all of them."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._control = ours
        self._lock = threading.Lock()
        with theirs:
            argv = [sys.executable, "-I", "-S", str(SCRIPT), str(theirs.fileno())]
            self.process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True)

    def hold(self, token: str, temp: str, cgroups: Sequence[str]) -> None:
        """What is going to be made for an attempt; said before it is made, so that nothing is left whenever the tool is killed."""
        self._send({"hold": {"token": token, "temp": temp, "cgroups": list(cgroups)}}, [])

    def start(self, launch: Launch, stdout: int, stderr: int) -> Child:
        """Start one child; its program writes to the given descriptors, which stay open here.  Raises RunnerError."""
        read, write = os.pipe()
        try:
            self._send(launch.request(), [stdout, stderr, write])
        except RunnerError:
            os.close(read)
            raise
        finally:
            os.close(write)
        return Child(read)

    def release(self, token: str) -> None:
        """The attempt is over and everything of it is removed."""
        self._send({"release": token}, [])

    def _send(self, message: dict[str, Any], descriptors: list[int]) -> None:
        body = json.dumps(message).encode()
        try:
            with self._lock:
                socket.send_fds(self._control, [struct.pack(">I", len(body))], descriptors)
                self._control.sendall(body)
        except OSError as problem:
            raise RunnerError(f"the guardian process is gone ({problem}); run again with --resume") from problem

    def close(self) -> None:
        self._control.close()
        self.process.wait()

    def __enter__(self) -> Guardian:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
