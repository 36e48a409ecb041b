"""What would be left to find the cause with, if the job died: cores, stacks, the kernel log."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

from matrix.doctor.finding import NotSeen, Seen, check
from matrix.doctor.limits import INFINITE, limit, shown
from matrix.doctor.place import Place
from matrix.evidence.native_stacks import program

CORE = "https://man7.org/linux/man-pages/man5/core.5.html"
UNIQUE = re.compile(r"%[pPiIt]")  # of a core's name: process or thread, here or on the host, or the time
ATTACH, DETACH = 16, 17  # PTRACE_ATTACH, PTRACE_DETACH
# A sibling looks into a sibling, as py-spy would into a job.
TRACER = f"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long
pid = int(sys.argv[1])
if libc.ptrace({ATTACH}, pid, None, None):
    sys.exit(os.strerror(ctypes.get_errno()))
os.waitpid(pid, 0)
libc.ptrace({DETACH}, pid, None, None)
"""


@check(
    id="core-limit",
    group="tools",
    fine="a crash may leave a core",
    causes="a crash leaves no core, so neither native stacks nor the libraries that were loaded",
    unproven="that a core would have been kept: see core-pattern",
    by_hand="ulimit -c",
    remedy="ulimit -c unlimited before the launch (`matrix run` raises it for its own children)",
    references=(CORE,),
)
def core_limit(place: Place) -> Iterator[Seen]:
    soft, hard = limit("RLIMIT_CORE")
    if soft == 0:
        grave = hard == 0
        may = "and the hard limit is 0 too: nobody but root can raise it" if grave else f"(the hard limit is {shown(hard)})"
        yield Seen(severity="warning" if grave else "info", summary=f"cores are off {may}")
    elif soft != INFINITE and soft < 1 << 30:
        yield Seen(
            severity="info", summary=f"cores are cut off at {shown(soft, of_bytes=True)}: the libraries can be read, stacks perhaps not"
        )


@check(
    id="core-pattern",
    group="tools",
    fine="cores are written to files that do not overwrite each other",
    causes="the core is handed to a program that may drop it, or overwrites a file called core in the working folder",
    unproven="what that program does with it",
    by_hand="cat /proc/sys/kernel/core_pattern; coredumpctl list",
    remedy="sysctl kernel.core_pattern=core.%p (of the whole machine), or read it from where the program keeps it (coredumpctl)",
    references=(CORE,),
)
def core_pattern(place: Place) -> Iterator[Seen]:
    pattern = place.text("/proc/sys/kernel/core_pattern")
    if pattern.startswith("|"):
        handler = pattern[1:].split()[0]
        gone = "" if (place.root / handler.lstrip("/")).exists() else ", which is not here: from a container it is started on the host"
        yield Seen(severity="info", summary=f"the kernel hands cores to {handler}{gone}", evidence=(pattern,))
    elif not UNIQUE.search(pattern) and place.number("/proc/sys/kernel/core_uses_pid") == 0:
        summary = f"cores are called {pattern!r}: one overwrites the other" + ("" if "/" in pattern else ", in the working folder")
        yield Seen(severity="info", summary=summary)


@check(
    id="stacks-of-live-processes",
    group="tools",
    fine="stacks of a running job can be read",
    causes="a job that hangs shows no stack to py-spy or gdb",
    unproven="other users' processes: only one of this user was tried",
    by_hand="py-spy dump --pid PID; cat /proc/sys/kernel/yama/ptrace_scope",
    remedy="docker --cap-add SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=0, or run py-spy as root",
    references=("https://docs.kernel.org/admin-guide/LSM/Yama.html", "https://github.com/benfred/py-spy#how-do-i-run-py-spy-in-docker"),
)
def ptrace(place: Place) -> Iterator[Seen]:
    """It is tried, with two processes of our own: capabilities, Yama and seccomp all have a say."""
    if place.system != "linux":
        raise NotSeen(f"{place.system} allows it to root, and to programs that are signed for it")
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", "input()"], stdin=subprocess.PIPE) as target:
        tried = subprocess.run(
            [sys.executable, "-I", "-S", "-c", TRACER, str(target.pid)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
        )
        target.kill()
    if tried.returncode:
        try:
            scope = f"kernel.yama.ptrace_scope={place.text('/proc/sys/kernel/yama/ptrace_scope')}"
        except NotSeen:
            scope = "no Yama here: capabilities or seccomp forbid it"
        said = tried.stderr.strip().splitlines()[-1:] or ["no reason given"]
        yield Seen(severity="warning", summary=f"reading a sibling process was refused ({said[0]}; {scope})")


@check(
    id="stack-readers",
    group="tools",
    fine="py-spy, and a reader of cores",
    causes="a death or a hang is told without its stacks",
    unproven="nothing",
    by_hand="py-spy --version; pystack --version; gdb --version",
    remedy="pip install py-spy pystack; gdb from the distribution",
    references=("https://github.com/benfred/py-spy", "https://github.com/bloomberg/pystack"),
)
def readers(place: Place) -> Iterator[Seen]:
    missing = [] if program("py-spy") else ["py-spy (Python stacks of a job that hangs)"]
    if not program("pystack") and not program("gdb"):
        missing.append("pystack or gdb (native stacks from a core)")
    if missing:
        yield Seen(severity="info", summary=f"not installed: {', '.join(missing)}")


@check(
    id="kernel-log",
    group="tools",
    fine="the kernel log can be read",
    causes="an OOM kill is known by its counter only, and a segfault without the library",
    unproven="nothing",
    by_hand="dmesg | tail",
    remedy="sysctl kernel.dmesg_restrict=0, or CAP_SYSLOG; in a container mount /dev/kmsg",
    references=("https://docs.kernel.org/admin-guide/sysctl/kernel.html#dmesg-restrict",),
)
def kernel_log(place: Place) -> Iterator[Seen]:
    if place.system != "linux":
        raise NotSeen(f"{place.system} keeps a unified log; `log show` reads it")
    try:
        os.close(os.open(place.root / "dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError as problem:
        yield Seen(severity="info", summary=f"/dev/kmsg: {problem.strerror}")


@check(
    id="memory-limits-possible",
    group="tools",
    fine="runs can be given a memory cgroup of their own",
    causes="`matrix run` cannot let the kernel enforce a memory limit; its watchdog does, and peaks between two samples are missed",
    unproven="nothing is made to find out: whether the folders may be written to is all that is asked",
    by_hand="mkdir /sys/fs/cgroup/…/x (v2 also needs +memory in cgroup.subtree_control, and no processes beside x)",
    remedy="run as root, or with Delegate=yes (systemd-run --user --scope -p Delegate=yes)",
    references=("https://docs.kernel.org/admin-guide/cgroup-v2.html#delegation",),
)
def cgroups(place: Place) -> Iterator[Seen]:
    from matrix.runner.cgroup_home import seems_not

    if place.system != "linux":
        raise NotSeen(f"{place.system} has no cgroups")
    if why := seems_not():
        yield Seen(severity="info", summary=why)
