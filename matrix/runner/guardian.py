"""The guardian: one small process for each matrix that starts every child and outlives the tool.

It runs as a script of its own (`python -I -S guardian.py FD`), is single-threaded and imports only light parts of
the standard library, so that forking from it is safe (the tool itself has threads) and cheap.

Why a parent of its own: PDEATHSIG fires when the *thread* that started the child ends and is not inherited by
grandchildren, and nothing empties a cgroup whose owner died.  The guardian is a child subreaper, so daemonised
grandchildren become its children; when the tool's end of the socket closes, for whatever reason, it ends everything.

Protocol: the tool sends `length (4 bytes, big endian) + JSON`: {"hold": what is going to be made for an attempt}, then its
request with the descriptors (stdout, stderr, status) attached, at its end {"release": token}.
The guardian answers on the status descriptor with JSON lines: {"pid": n, "limits": ...}, then {"status": wait status, ...};
or {"error": text} when the program could not be started.  End-of-file without a status means: the guardian died.
"""

from __future__ import annotations

import contextlib
import gc
import glob
import json
import os
import resource
import select
import shutil
import signal
import socket
import struct
import sys
import time
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
Request = dict[str, Any]


def main(descriptor: int) -> None:
    control = socket.socket(fileno=descriptor)
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
    running: dict[int, tuple[int, Request]] = {}  # pid -> (status descriptor, request)
    held: dict[str, Request] = {}  # token -> request whose cgroup and folders still exist
    sources: list[Any] = [control, wake_read]
    while not asked_to_end:
        ready = select.select(sources, [], [])[0]
        if wake_read in ready:
            os.read(wake_read, 4096)
        reap(running)
        if control in ready and not serve(control, running, held):
            break
    end_everything(running, held)


def serve(control: socket.socket, running: dict[int, tuple[int, Request]], held: dict[str, Request]) -> bool:
    """Handle one message; False at end-of-file."""
    message = receive(control)
    if message is None:
        return False
    request, descriptors = message
    if "hold" in request:
        held[request["hold"]["token"]] = request["hold"]
        return True
    if "release" in request:
        held.pop(request["release"], None)
        return True
    held[request["token"]] = request
    stdout, stderr, status = descriptors
    pid = start(request, stdout, stderr, status)
    os.close(stdout)
    os.close(stderr)
    if pid is None:
        os.close(status)
    else:
        running[pid] = (status, request)
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


# ------------------------------------------------------------------ starting a child
def start(request: Request, stdout: int, stderr: int, status: int) -> int | None:
    if request.get("mounts"):
        libc()  # loaded before the fork: the child must not import
    error_read, error_write = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        try:
            become(request, stdout, stderr)
        except BaseException as problem:
            os.write(error_write, f"{type(problem).__name__}: {problem}".encode()[:4000])
        os._exit(127)
    os.close(error_write)
    record_pid(request, pid)
    with os.fdopen(error_read, "rb") as errors:
        reason = errors.read().decode(errors="replace")
    if not reason:
        # Not before: until the exec it looks like this process, and may not be in its cgroup yet.
        answer(status, {"pid": pid, "limits": limits_of(pid, request)})
        return pid
    os.waitpid(pid, 0)
    answer(status, {"error": reason})
    return None


def become(request: Request, stdout: int, stderr: int) -> None:
    """In the child: take on everything that the request asks for, then become the program."""
    os.setsid()
    for procs in request["cgroup_procs"]:
        with open(procs, "w") as sink:
            sink.write("0")
    if request.get("cpus") and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, request["cpus"])
    mount_private_copies(request.get("mounts") or [])
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, target)
    if request.get("pty"):
        import fcntl
        import termios

        fcntl.ioctl(1, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    # A program started under nohup or from Python inherits ignored signals, and one that ignores SIGHUP or SIGPIPE dies differently.
    for number in signal.valid_signals():
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for name, (soft, hard) in request.get("rlimits", {}).items():  # last: nothing above may fail for lack of descriptors
        limit(getattr(resource, name), soft, hard)
    os.execvpe(request["argv"][0], request["argv"], request["env"])


def limit(number: int, soft: int, hard: int) -> None:
    """Set it, or as much of it as this user may have: what the child then has is read back and compared with what was asked for."""
    try:
        resource.setrlimit(number, (soft, hard))
    except (ValueError, OSError):
        most = resource.getrlimit(number)[1]
        resource.setrlimit(number, (most if soft == resource.RLIM_INFINITY or soft > most else soft, most))


def limits_of(pid: int, request: Request) -> Request:
    """What the child really has of what was asked for, by name: {"RLIMIT_NOFILE": [soft, hard], "cpus": [0]}."""
    found: Request = {}
    with contextlib.suppress(OSError, AttributeError):  # it is gone, or this system cannot read another process's limits
        for name in request.get("rlimits", {}):
            found[name] = resource.prlimit(pid, getattr(resource, name))
        if request.get("cpus"):
            found["cpus"] = sorted(os.sched_getaffinity(pid))
    return found


def mount_private_copies(mounts: list[list[str]]) -> None:
    """Bind each (source, target) in a mount namespace of this child alone; it vanishes with the last process in it."""
    if not mounts:
        return
    unshare_mounts()
    check(libc().mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount --make-rprivate /")
    for source, target in mounts:
        check(libc().mount(os.fsencode(source), os.fsencode(target), None, MS_BIND, None), f"bind {target}")


def unshare_mounts() -> None:
    """Without the right to a mount namespace there may be one inside a user namespace, in which our ids stay what they are."""
    if libc().unshare(CLONE_NEWNS) == 0:
        return
    uid, gid = os.getuid(), os.getgid()
    check(libc().unshare(CLONE_NEWUSER | CLONE_NEWNS), "run.writes needs a mount namespace (as root there is one): unshare")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as sink:
            sink.write(text)


def libc() -> Any:
    import ctypes

    return ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result:
        import ctypes

        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def become_subreaper() -> None:
    if sys.platform == "linux":
        libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def record_pid(request: Request, pid: int) -> None:
    """For the next start of the tool, should it and the guardian both be killed."""
    with contextlib.suppress(OSError), open(os.path.join(request["temp"], "pids"), "a") as sink:
        sink.write(f"{pid}\n")


# ------------------------------------------------------------------ ending
def reap(running: dict[int, tuple[int, Request]]) -> None:
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in running:
            descriptor, _ = running.pop(pid)
            scale = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in KiB on Linux, bytes on macOS
            answer(descriptor, {"status": status, "maxrss_bytes": usage.ru_maxrss * scale, "cpu_s": usage.ru_utime + usage.ru_stime})
            os.close(descriptor)


def answer(descriptor: int, message: Request) -> None:
    with contextlib.suppress(OSError):  # the tool may be gone; end-of-file on the control socket will tell
        os.write(descriptor, json.dumps(message).encode() + b"\n")


def end_everything(running: dict[int, tuple[int, Request]], held: dict[str, Request]) -> None:
    deadline = time.monotonic() + 20
    mine = os.getpid()
    killed: set[int] = set()
    while time.monotonic() < deadline:
        alive = descendants(mine)
        for request in held.values():
            alive |= group_pids(request["cgroups"][:1])
        alive.discard(mine)
        if not alive:
            break
        for pid in alive:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        killed |= alive
        reap(running)
        time.sleep(0.01)
    for request in held.values():
        for group in request["cgroups"]:
            remove_group(group)
        killed |= recorded_pids(request["temp"])
        shutil.rmtree(request["temp"], ignore_errors=True)
    for pid in killed:
        for leftover in glob.glob(f"/dev/shm/__KMP_REGISTERED_LIB_{pid}_*"):
            with contextlib.suppress(OSError):
                os.unlink(leftover)


def recorded_pids(temp: str) -> set[int]:
    try:
        with open(os.path.join(temp, "pids")) as source:
            return {int(word) for word in source.read().split() if word.isdigit()}
    except OSError:
        return set()


def group_pids(groups: list[str]) -> set[int]:
    """Processes of cgroups and of every group nested below them."""
    pids: set[int] = set()
    for group in groups:
        for folder in group_folders(group):
            with contextlib.suppress(OSError), open(os.path.join(folder, "cgroup.procs")) as source:
                pids |= {int(word) for word in source.read().split()}
    return pids


def group_folders(group: str) -> list[str]:
    """A cgroup and those nested below it, outermost first; the kernel counts folders as links, which spares a walk over all its files."""
    try:
        if os.stat(group).st_nlink == 2:
            return [group]
    except OSError:
        return []
    return [folder for folder, _, _ in os.walk(group)]


def remove_group(group: str) -> None:
    """Remove a cgroup and those nested below it, innermost first; a group is busy for a moment after its last process."""
    for _ in range(50):
        for folder in reversed(group_folders(group)):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        if not os.path.isdir(group):
            return
        time.sleep(0.01)


def descendants(root: int) -> set[int]:
    """Every living process below `root`, by a walk over /proc (ps elsewhere); zombies are not counted."""
    children: dict[int, list[int]] = {}
    for pid, parent in process_table():
        children.setdefault(parent, []).append(pid)
    found: set[int] = set()
    queue = [root]
    while queue:
        for pid in children.get(queue.pop(), []):
            if pid not in found:
                found.add(pid)
                queue.append(pid)
    return found


def process_table() -> list[tuple[int, int]]:
    if not os.path.isdir("/proc/self"):
        import subprocess

        lines = subprocess.run(["ps", "-axo", "pid=,ppid=,stat="], capture_output=True, text=True).stdout.splitlines()
        return [(int(words[0]), int(words[1])) for words in map(str.split, lines) if not words[2].startswith("Z")]
    table = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as source:
                state, parent = source.read().rpartition(")")[2].split()[:2]
                if state != "Z":
                    table.append((int(name), int(parent)))
    return table


if __name__ == "__main__":
    main(int(sys.argv[1]))
