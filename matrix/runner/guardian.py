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
import errno
import functools
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
from collections.abc import Iterator
from typing import Any

PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
PR_SET_THP_DISABLE = 41
Request = dict[str, Any]


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
        pid = (spawn if spawns(request) else fork)(request, stdout, stderr, folder)
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


# ------------------------------------------------------------------ starting a child
class NotStarted(OSError):
    """What went wrong in the child before it became the program."""


def spawns(request: Request) -> bool:
    """Whether nothing has to be done in the child that posix_spawn cannot do; a hard limit that was lowered here would stay so."""
    more = any(request.get(name) for name in ("cpus", "mounts", "pty", "tmpfs", "ignored", "no_huge_pages"))
    more |= bool(request.get("cgroups")) and not (request.get("roomy") and way_back(request["cgroups"][0]))
    kept = all(name == "RLIMIT_CORE" and hard == resource.RLIM_INFINITY for name, (_, hard) in request.get("rlimits", {}).items())
    return sys.platform == "linux" and kept and not more


def spawn(request: Request, stdout: int, stderr: int, folder: str) -> int:
    """Start the program without a copy of this process, in a third of the time of a fork.  Raises OSError.

    The working folder, the limit of cores and the cgroup are inherited, so they are this process's own for that moment."""
    core = resource.getrlimit(resource.RLIMIT_CORE)
    os.chdir(request["cwd"])
    try:
        for soft, hard in request.get("rlimits", {}).values():
            limit(resource.RLIMIT_CORE, soft, hard)
        paths = candidates(request["argv"][0], request["env"])
        with inside(request.get("cgroups") or []):
            pid = spawn_first(paths, request, stdout, stderr)
        record_pid(folder, pid)
        return pid
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, core)
        os.chdir("/")


@contextlib.contextmanager
def inside(doors: list[str]) -> Iterator[None]:
    """Be in that group for a moment: what is started meanwhile is in it from its first instruction on."""
    if not doors:
        yield
        return
    join(doors[0])
    try:
        yield
    finally:
        join(way_back(doors[0]))


def join(door: str) -> None:
    descriptor = os.open(door, os.O_WRONLY)
    try:
        os.write(descriptor, b"0")
    finally:
        os.close(descriptor)


def way_back(door: str) -> str:
    """The door of the group around that one when this process lives there and gets in and out without waiting; else ""."""
    folder, name = os.path.split(door)
    return is_at_home(os.path.join(os.path.dirname(folder), name)) if name == "tasks" else ""


@functools.cache
def is_at_home(door: str) -> str:
    with contextlib.suppress(OSError):
        return door if b"%d" % os.getpid() in short_file(door).split() and os.access(door, os.W_OK) else ""
    return ""


def spawn_first(paths: list[str], request: Request, stdout: int, stderr: int) -> int:
    """The first of these that can be started, as execvp does it."""
    files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, stdout, 1), (os.POSIX_SPAWN_DUP2, stderr, 2)]
    why = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for path in paths:
        try:
            return os.posix_spawn(
                path, request["argv"], request["env"], file_actions=files, setsid=True, setsigmask=(), setsigdef=ignored_signals()
            )
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as problem:
            why = problem
    raise why


def candidates(program: str, env: dict[str, str]) -> list[str]:
    """Where execvp would look for it, without the places where there is nothing."""
    if "/" in program:
        return [program]
    return [path for folder in os.get_exec_path(env) if os.access(path := f"{folder}/{program}", os.F_OK)]


def fork(request: Request, stdout: int, stderr: int, folder: str) -> int:
    """Start the program by a copy of this process that takes on everything the request asks for.  Raises NotStarted."""
    if request.get("mounts") or request.get("tmpfs") or request.get("no_huge_pages"):
        libc()  # loaded before the fork: the child must not import
    error_read, error_write = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        try:
            become(request, stdout, stderr)
        except BaseException as problem:
            os.write(error_write, f"{type(problem).__name__}: {problem}".encode()[:4000])
        os._exit(127)
    record_pid(folder, pid)
    os.close(error_write)
    with os.fdopen(error_read, "rb") as errors:
        # Waited for: until the exec it looks like this process, and may not be in its cgroup yet.
        reason = errors.read().decode(errors="replace")
    if reason:
        os.waitpid(pid, 0)
        raise NotStarted(reason)
    return pid


def become(request: Request, stdout: int, stderr: int) -> None:
    """In the child: take on everything that the request asks for, then become the program."""
    os.setsid()
    for door in request["cgroups"]:
        join(door)
    if request.get("cpus") and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, request["cpus"])
    mount_private_copies(request.get("mounts") or [], request.get("tmpfs") or [])
    if request.get("no_huge_pages"):
        libc().prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)  # whether it holds is read from the child
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, target)
    if request.get("pty"):
        import fcntl
        import termios

        fcntl.ioctl(1, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    for number in ignored_signals():
        signal.signal(number, signal.SIG_DFL)
    for number in request.get("ignored") or []:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    for name, (soft, hard) in request.get("rlimits", {}).items():  # last: nothing above may fail for lack of descriptors
        limit(getattr(resource, name), soft, hard)
    os.execvpe(request["argv"][0], request["argv"], request["env"])


@functools.cache
def ignored_signals() -> list[int]:
    """A program started under nohup or from Python inherits these, and one that ignores SIGHUP or SIGPIPE dies differently."""
    return [number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN]


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


def mount_private_copies(mounts: list[list[str]], tmpfs: list[list[Any]]) -> None:
    """Bind each (source, target), then mount an empty tmpfs (folder, bytes), in a mount namespace of this child alone.

    All of it vanishes with the last process in it."""
    if not mounts and not tmpfs:
        return
    unshare_mounts()
    check(libc().mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "mount --make-rprivate /")
    for source, target in mounts:
        check(libc().mount(os.fsencode(source), os.fsencode(target), None, MS_BIND, None), f"bind {target}")
    for folder, size in tmpfs:
        options = f"size={size},mode=1777".encode()
        check(libc().mount(b"tmpfs", os.fsencode(folder), b"tmpfs", MS_NOSUID | MS_NODEV, options), f"tmpfs on {folder}")


def unshare_mounts() -> None:
    """Without the right to a mount namespace there may be one inside a user namespace, in which our ids stay what they are."""
    if libc().unshare(CLONE_NEWNS) == 0:
        return
    uid, gid = os.getuid(), os.getgid()
    check(libc().unshare(CLONE_NEWUSER | CLONE_NEWNS), "a mount namespace is needed (as root there is one): unshare")
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


def record_pid(folder: str, pid: int) -> None:
    """For the next start of the tool, should it and the guardian both be killed."""
    with contextlib.suppress(OSError):
        os.write(pids_file(folder), b"%d\n" % pid)


@functools.cache
def pids_file(folder: str) -> int:
    return os.open(os.path.join(folder, "pids"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


# ------------------------------------------------------------------ ending
def reap(running: dict[int, int]) -> None:
    while True:
        try:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid in running:
            descriptor = running.pop(pid)
            scale = 1 if sys.platform == "darwin" else 1024  # ru_maxrss is in KiB on Linux, bytes on macOS
            used = {"maxrss_bytes": usage.ru_maxrss * scale, "cpu_s": usage.ru_utime + usage.ru_stime, "preempted": usage.ru_nivcsw}
            answer(descriptor, {"status": status, **used})
            os.close(descriptor)


def answer(descriptor: int, message: Request) -> None:
    with contextlib.suppress(OSError):  # the tool may be gone; end-of-file on the control socket will tell
        os.write(descriptor, json.dumps(message).encode() + b"\n")


def end_everything(running: dict[int, int], folder: str, homes: list[str]) -> None:
    deadline = time.monotonic() + 20
    mine = os.getpid()
    groups = [group for home in homes for group in glob.glob(os.path.join(home, os.path.basename(folder) + "-*"))]
    killed: set[int] = set()
    while time.monotonic() < deadline:
        alive = descendants(mine) | group_pids(groups)
        alive.discard(mine)
        if not alive:
            break
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
    shutil.rmtree(folder, ignore_errors=True)


def remove_registrations(pids: set[int]) -> None:
    """What OpenMP runtimes left of processes that are dead; a pid may have become another program's since."""
    for path in glob.glob("/dev/shm/__KMP_REGISTERED_LIB_*_*"):
        pid = int(number) if (number := path.split("_")[-2]).isdecimal() else 0
        if pid in pids and not os.path.exists(f"/proc/{pid}"):
            with contextlib.suppress(OSError):
                os.unlink(path)


def recorded_pids(folder: str) -> set[int]:
    try:
        with open(os.path.join(folder, "pids")) as source:
            return {int(word) for word in source.read().split() if word.isdecimal()}
    except OSError:
        return set()


def group_pids(groups: list[str]) -> set[int]:
    """Processes of cgroups and of every group nested below them."""
    pids: set[int] = set()
    for group in groups:
        for folder in group_folders(group):
            with contextlib.suppress(OSError):
                pids |= set(map(int, short_file(folder + "/cgroup.procs").split()))
    pids.discard(0)  # one of another container, which has no number here; and a signal to 0 would end our own
    return pids


def kill_at_once(group: str) -> None:
    """SIGKILL all in it and below it in one step, so that nothing outruns it by forking: version 2 since Linux 5.14; elsewhere nothing."""
    with contextlib.suppress(OSError):
        descriptor = os.open(os.path.join(group, "cgroup.kill"), os.O_WRONLY)
        try:
            os.write(descriptor, b"1")
        finally:
            os.close(descriptor)


def short_file(path: str) -> bytes:
    """All of a file of the kernel's, in a third of the calls that an open file of Python makes.  Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        parts = [os.read(descriptor, 1 << 16)]
        while parts[-1]:
            parts.append(os.read(descriptor, 1 << 16))
        return b"".join(parts)
    finally:
        os.close(descriptor)


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
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
