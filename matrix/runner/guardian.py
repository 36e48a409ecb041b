"""The guardian: one small process for each matrix that starts every child and outlives the tool.

It runs as a script of its own (`python -I -S guardian.py FD FOLDER HOMES...`), is single-threaded and imports only light
parts of the standard library, so that forking from it is safe (the tool itself has threads) and cheap.

Why a parent of its own: PDEATHSIG fires when the *thread* that started the child ends and is not inherited by
grandchildren, and nothing empties a cgroup whose owner died.  The guardian is a child subreaper, so daemonised
grandchildren become its children; when the tool's end of the socket closes, for whatever reason, it ends everything.

What the tool makes for attempts is known by its name, so that it is removed even when it was made a moment before the tool
was killed: temp folders are inside FOLDER, cgroups are in HOMES and begin with FOLDER's name.

Protocol: the tool sends `length (4 bytes, big endian) + JSON`, a request, with the descriptors (stdout, stderr, status)
attached.  The guardian answers on the status descriptor with JSON lines: {"pid": n, "limits": ...}, then {"status": wait status, ...};
or {"error": text} when the program could not be started.  End-of-file without a status means: the guardian died.
"""

from __future__ import annotations

import contextlib
import gc
import glob
import json
import os
import select
import shutil
import signal
import socket
import struct
import sys
import time
from typing import Any

if __name__ == "__main__":  # -I keeps our own folder off the path; at its end we hide nothing of the standard library
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from matrix.runner.leftovers import (
    become_subreaper,
    descendants,
    group_pids,
    kill_at_once,
    mapped_by,
    recorded_pids,
    remove_group,
    remove_registrations,
    remove_shared_objects,
)
from matrix.runner.starting import NotStarted, Request, libc, limits_of, start

PTRACE_DETACH = 17


def main(descriptor: int, folder: str, homes: list[str]) -> None:
    control = socket.socket(fileno=descriptor)
    control.set_inheritable(False)
    become_subreaper()
    gc.disable()  # nothing here makes cycles, and a collection after the fork would copy every page
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    asked_to_end = []
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.append(True))
    running: dict[int, int] = {}  # pid -> status descriptor
    sources: list[Any] = [control, wake_read]
    while not asked_to_end:
        ready = select.select(sources, [], [])[0]
        if wake_read in ready:
            os.read(wake_read, 4096)
            reap(running)
        if control in ready and not serve(control, running, folder):
            break
    end_everything(running, folder, homes)


def serve(control: socket.socket, running: dict[int, int], folder: str) -> bool:
    """Handle one message; False at end-of-file."""
    message = receive(control)
    if message is None:
        return False
    request, descriptors = message
    stdout, stderr, status = descriptors
    try:
        pid = start(request, stdout, stderr, folder)
    except Exception as problem:  # whatever is wrong with this request, the other children need their guardian
        answer(status, {"error": str(problem) if isinstance(problem, NotStarted) else f"{type(problem).__name__}: {problem}"})
        os.close(status)
    else:
        answer(status, {"pid": pid, "limits": limits_of(pid, request)})
        running[pid] = status
    os.close(stdout)
    os.close(stderr)
    return True


def receive(control: socket.socket) -> tuple[Request, list[int]] | None:
    try:
        first, descriptors, _, _ = socket.recv_fds(control, 4, 8)
    except ConnectionError:
        return None
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # received ones are: a child that held its status would hide the guardian's death
    while first and len(first) < 4:
        first += control.recv(4 - len(first))
    if not first:
        return None
    left, parts = struct.unpack(">I", first)[0], []
    while left:
        part = control.recv(min(left, 1 << 16))
        if not part:
            return None
        parts.append(part)
        left -= len(part)
    return json.loads(b"".join(parts)), list(descriptors)


# ------------------------------------------------------------------ ending
def reap(running: dict[int, int]) -> None:
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if os.WIFSTOPPED(status):
            let_go(pid, os.WSTOPSIG(status))
        elif pid in running:
            descriptor = running.pop(pid)
            scale = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in KiB on Linux, bytes on macOS
            used = {"maxrss_bytes": usage.ru_maxrss * scale, "cpu_s": usage.ru_utime + usage.ru_stime}
            answer(descriptor, {"status": status, **used, "preempted": usage.ru_nivcsw, "yielded": usage.ru_nvcsw})
            os.close(descriptor)


def let_go(pid: int, number: int) -> None:
    """Detach from a child that asked to be traced by its parent: its signals are its own, and a stop is no end."""
    signal_to_pass = 0 if number == signal.SIGTRAP else number
    libc().ptrace(PTRACE_DETACH, pid, None, signal_to_pass)


def answer(descriptor: int, message: Request) -> None:
    with contextlib.suppress(OSError):  # the tool may be gone; end-of-file on the control socket will tell
        os.write(descriptor, json.dumps(message).encode() + b"\n")


def end_everything(running: dict[int, int], folder: str, homes: list[str]) -> None:
    deadline = time.monotonic() + 20
    mine = os.getpid()
    groups = [group for home in homes for group in glob.glob(os.path.join(home, os.path.basename(folder) + "-*"))]
    killed, shared = set[int](), set[int]()
    while time.monotonic() < deadline:
        alive = descendants(mine) | group_pids(groups)
        alive.discard(mine)
        if not alive:
            break
        shared |= mapped_by(alive)
        for group in groups:
            kill_at_once(group)
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed |= alive
        reap(running)
        time.sleep(0.01)
    reap(running)  # or a dead child would still look like a process
    for group in groups:
        remove_group(group)
    remove_registrations(killed | recorded_pids(folder))
    remove_shared_objects(shared)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
