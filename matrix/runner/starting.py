"""How the guardian starts a child: by posix_spawn where nothing has to be done between fork and exec, else by a fork.

Light parts of the standard library only: a fork copies every page that was touched.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import resource
import signal
import sys
from collections.abc import Iterator
from typing import Any

from matrix.kernel_text import kernel_bytes

CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
MS_NOSUID, MS_NODEV, MS_BIND, MS_REC, MS_PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
PR_SET_THP_DISABLE = 41
Request = dict[str, Any]  # see `launcher.Launch`


class NotStarted(OSError):
    """What went wrong in the child before it became the program."""


def start(request: Request, stdout: int, stderr: int, folder: str) -> int:
    """The pid of the program's process.  Raises OSError, NotStarted among them."""
    return (spawn if spawns(request) else fork)(request, stdout, stderr, folder)


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
        return door if b"%d" % os.getpid() in kernel_bytes(door).split() and os.access(door, os.W_OK) else ""
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


def record_pid(folder: str, pid: int) -> None:
    """For the next start of the tool, should it and the guardian both be killed."""
    with contextlib.suppress(OSError):
        os.write(pids_file(folder), b"%d\n" % pid)


@functools.cache
def pids_file(folder: str) -> int:
    return os.open(os.path.join(folder, "pids"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
