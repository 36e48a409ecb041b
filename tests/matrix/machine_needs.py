"""What this machine has, asked without the tool's own code: a tool that is wrong about its needs must not skip its own test.

Each function gives the reason why something is lacking, or "" where it is there.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from pathlib import Path

FIRST_PID_NAMESPACE = 0xEFFFFFFC  # its inode, the same on every machine


def nothing() -> str:
    return ""


@functools.cache
def mounts() -> str:
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/dev/shm"]
    if shutil.which("unshare") is None:
        return "the command unshare is not installed"
    tried = subprocess.run(command, capture_output=True, text=True)
    return f"no file system can be mounted: {tried.stderr.strip()}" if tried.returncode else ""


@functools.cache
def groups(controller: str) -> str:
    """A control group that can be made by hand, on version 1 or 2."""
    own = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for _, controllers, path in own:
        if controller in controllers.split(","):
            return _made_in(Path(f"/sys/fs/cgroup/{controller}{path}"))
    available = Path("/sys/fs/cgroup/cgroup.controllers")
    if available.exists() and controller in available.read_text().split():
        return "" if os.geteuid() == 0 else "only root may make groups of version 2 everywhere"
    return f"there is no {controller} controller"


def _made_in(parent: Path) -> str:
    made = parent / f"matrix-test-{os.getpid()}"
    try:
        made.mkdir()
        made.rmdir()
    except OSError as problem:
        return f"no groups can be made in {parent}: {problem.strerror}"
    return ""


def memory_groups() -> str:
    return groups("memory")


def pids_groups() -> str:
    return groups("pids")


def cpu_groups() -> str:
    return groups("cpu")


def two_processors() -> str:
    return "" if len(os.sched_getaffinity(0)) > 1 else "there is one processor only"


def device() -> str:
    return "" if any(Path("/dev").glob("nvidia[0-9]*")) else "there is no NVIDIA device"


def strace() -> str:
    return "" if shutil.which("strace") else "strace is not installed"


def valgrind() -> str:
    return "" if shutil.which("valgrind") else "valgrind is not installed"


def compiler() -> str:
    return "" if shutil.which("cc") and shutil.which("c++") else "there is no C compiler"


def debug_library() -> str:
    return "" if any(Path("/").glob("lib*/*/libc_malloc_debug.so.0")) else "no libc_malloc_debug.so"


def process_events() -> str:
    """The kernel's process connector, which is for root in the first pid and network namespace.

    The file is there in the first network namespace only."""
    names = Path("/proc/net/connector")
    if os.geteuid() or not names.exists() or "cn_proc" not in names.read_text():
        return "no process connector for this user"
    first = Path("/proc/self/ns/pid").stat().st_ino == FIRST_PID_NAMESPACE
    return "" if first else "a pid namespace of its own has no process connector"


@functools.cache
def signal_trace() -> str:
    event = "/sys/kernel/tracing/events/signal/signal_generate/id"
    script = f"cat {event} || {{ mount -t tracefs nodev /sys/kernel/tracing && cat {event}; }}"
    if os.geteuid() or mounts():
        return "only root may trace signals"
    tried = subprocess.run(["unshare", "--mount", "sh", "-c", script], capture_output=True, text=True)
    return "" if tried.stdout.strip().isdecimal() else f"no trace of signals: {tried.stderr.strip()}"


def core_files() -> str:
    pattern = Path("/proc/sys/kernel/core_pattern").read_text()
    return "cores go to a program" if pattern.startswith("|") else ""
