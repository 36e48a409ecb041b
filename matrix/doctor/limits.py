"""What the kernel lets a job use: limits that it would inherit from here, and those of its cgroup."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

from matrix.doctor.finding import NotSeen, Seen, check
from matrix.doctor.place import Place, size
from matrix.evidence.own_limits import inherited_limits
from matrix.kernel_text import kernel_text
from matrix.runner import cgroup

INFINITE = resource.RLIM_INFINITY
MIB = 1 << 20
LIMITS = "https://man7.org/linux/man-pages/man2/getrlimit.2.html"
FEW_FILES, FEW_THREADS = 4096, 512
SHORT_S = 3600


def limit(name: str) -> tuple[int, int]:
    """Soft and hard, of this process and what it starts.  Raises NotSeen."""
    if not hasattr(resource, name):
        raise NotSeen(f"this system has no {name}")
    return inherited_limits().get(name) or resource.getrlimit(getattr(resource, name))


def shown(value: int, *, of_bytes: bool = False) -> str:
    return "unlimited" if value == INFINITE else size(value) if of_bytes else f"{value:,}"


@check(
    id="stack-size",
    group="limits",
    fine="stacks of 8 MiB or more",
    causes="a deep recursion or a large local array of native code ends with SIGSEGV, first in threads: they get the same size",
    unproven="that your program needs more",
    by_hand="ulimit -s; grep 'stack' /proc/PID/limits",
    remedy="ulimit -s 8192 before the launch; for OpenMP's threads OMP_STACKSIZE=16M",
    references=(
        "https://man7.org/linux/man-pages/man3/pthread_create.3.html",
        "measured with glibc 2.36 on x86-64: unlimited gives threads 2 MiB",
    ),
)
def stack(place: Place) -> Iterator[Seen]:
    soft, _ = limit("RLIMIT_STACK")
    if soft == INFINITE:
        summary = "the stack is unlimited: then glibc gives threads a small default (2 MiB on x86-64), less than with 8 MiB"
        yield Seen(severity="info", summary=summary, remedy="ulimit -s 8192 before the launch")
    elif soft < 8 * MIB:
        yield Seen(severity="warning", summary=f"a stack of {size(soft)}", evidence=(f"RLIMIT_STACK {soft}",))


@check(
    id="open-files",
    group="limits",
    fine=f"{FEW_FILES:,} or more open files",
    causes='"Too many open files", or "received 0 items of ancdata" in DataLoader workers: torch keeps a descriptor for each '
    "tensor that it "
    "shares; sockets, memory maps and shards count too",
    unproven="that your program opens so many",
    by_hand="ulimit -n; ls /proc/PID/fd | wc -l",
    remedy='ulimit -n 65536 before the launch; or torch.multiprocessing.set_sharing_strategy("file_system")',
    references=("https://docs.pytorch.org/docs/stable/multiprocessing.html#file-descriptor-file-descriptor", LIMITS),
)
def open_files(place: Place) -> Iterator[Seen]:
    soft, hard = limit("RLIMIT_NOFILE")
    if soft == INFINITE or soft >= FEW_FILES:
        return
    grave = soft < 256 or (soft <= 1024 and place.python.installed("torch") is not None)
    may = "may be raised" if hard == INFINITE or hard > soft else "cannot be raised by this user"
    yield Seen(severity="warning" if grave else "info", summary=f"{soft:,} open files (the hard limit is {shown(hard)}: it {may})")


@check(
    id="threads-left",
    group="limits",
    fine="room for threads and processes",
    causes='"can\'t start new thread", "libgomp: Thread creation failed", or a fork that fails: each worker brings a thread pool '
    "of its own",
    unproven="how many your job starts: about workers x (threads + 2), for each BLAS and OpenMP copy",
    by_hand="ulimit -u; cat pids.max and pids.current in the cgroup; cat /proc/sys/kernel/threads-max",
    remedy="fewer workers or OMP_NUM_THREADS=1 in them, or a higher limit (docker --pids-limit, systemd TasksMax, ulimit -u)",
    references=("https://docs.kernel.org/admin-guide/cgroup-v2.html#pid", LIMITS),
)
def threads_left(place: Place) -> Iterator[Seen]:
    """error: not even one pool of threads fits, as large as the job would start it from here."""
    if place.system != "linux":
        soft, _ = limit("RLIMIT_NPROC")
        if soft != INFINITE and soft < FEW_THREADS:
            yield Seen(severity="warning", summary=f"{soft:,} processes of this user")
        return
    for what, most, used in _thread_bounds(place):
        left, needed = most - used, _pool(place) + 2
        if left < needed:
            summary = f"{what}: {left:,} of {most:,} are left, and one pool of threads needs {needed}"
            yield Seen(severity="error", summary=summary, evidence=(f"{used:,} used",))
        elif left < FEW_THREADS:
            yield Seen(severity="warning", summary=f"{what}: {left:,} of {most:,} are left", evidence=(f"{used:,} used",))


def _pool(place: Place) -> int:
    """Threads of one pool: OpenMP and OpenBLAS start as many as there are processors, unless they are told."""
    told = place.environment.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(told) if told.isascii() and told.isdecimal() and len(told) < 6 and int(told) else place.cpus()


def _thread_bounds(place: Place) -> Iterator[tuple[str, int, int]]:
    """(what, most, used) of everything that bounds the number of threads here."""
    group = cgroup.own_group()
    for folder in _around(group.pids_path) if group and group.pids_path else ():
        text = kernel_text(folder / "pids.max").strip()
        if text != "max":
            yield f"threads and processes in the cgroup {folder}", int(text), int(kernel_text(folder / "pids.current"))
    running = int(place.text("/proc/loadavg").split()[3].partition("/")[2])
    yield "threads on the machine (kernel.threads-max)", place.number("/proc/sys/kernel/threads-max"), running
    yield "process numbers (kernel.pid_max)", place.number("/proc/sys/kernel/pid_max"), running
    soft, _ = limit("RLIMIT_NPROC")
    if soft != INFINITE and not _may_exceed(place):
        yield "processes of this user (ulimit -u)", soft, _of_user(place)


def _around(folder: Path) -> Iterator[Path]:
    """The group and those around it; each one's limit holds."""
    for each in (folder, *folder.parents):
        if (each / "pids.max").is_file():
            yield each


def _may_exceed(place: Place) -> bool:
    """RLIMIT_NPROC does not bind who has CAP_SYS_ADMIN or CAP_SYS_RESOURCE, nor root's own user."""
    fields = dict(line.split(":\t", 1) for line in place.text("/proc/self/status").splitlines() if ":\t" in line)
    capable = int(fields.get("CapEff", "0"), 16)
    return fields.get("Uid", "1").split()[0] == "0" or bool(capable >> 21 & 1 or capable >> 24 & 1)


def _of_user(place: Place) -> int:
    """Threads of this user in this process namespace."""
    import os

    count = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                count += len(os.listdir(folder / "task")) if folder.stat().st_uid == os.getuid() else 0  # noqa: PTH208 - only counted
            except OSError:
                continue
    return count


@check(
    id="address-space",
    group="limits",
    fine="address space and data segment are not limited",
    causes="a MemoryError, or an abort of a library that does not check, while memory is free: Python, torch and thread stacks "
    "reserve many "
    "times what they use",
    unproven="that your program comes near it",
    by_hand="ulimit -v; ulimit -d; grep VmPeak /proc/PID/status",
    remedy="ulimit -v unlimited; limit memory with a cgroup instead",
    references=(LIMITS, "measured: such a limit gives a Python exception from torch's allocator, never the kernel's OOM kill"),
)
def address_space(place: Place) -> Iterator[Seen]:
    for name, flag in (("RLIMIT_AS", "-v"), ("RLIMIT_DATA", "-d")):
        soft, _ = limit(name)
        if soft != INFINITE:
            summary = f"{'address space' if name == 'RLIMIT_AS' else 'data segment'} of {size(soft)} (ulimit {flag})"
            yield Seen(severity="warning", summary=summary, evidence=(f"{name} {soft}",))


@check(
    id="cpu-time",
    group="limits",
    fine="CPU time is not limited",
    causes="SIGXCPU, then SIGKILL, when the process has used so much CPU time: no traceback, always after the same time",
    unproven="nothing: the kernel keeps this limit for every process that inherits it",
    by_hand="ulimit -t; grep 'cpu time' /proc/PID/limits",
    remedy="ulimit -t unlimited where the hard limit allows it; ask who sets it (login shell, scheduler)",
    references=(LIMITS,),
)
def cpu_time(place: Place) -> Iterator[Seen]:
    """error: under an hour.  It counts all threads together, so with 8 of them that is 8 minutes."""
    soft, _ = limit("RLIMIT_CPU")
    if soft != INFINITE:
        yield Seen(
            severity="error" if soft < SHORT_S else "warning", summary=f"{soft:,} s of CPU time for each process, its threads together"
        )


@check(
    id="file-size",
    group="limits",
    fine="file sizes are not limited",
    causes='a checkpoint or a bank that grows past it fails with "File too large"; native programs get SIGXFSZ',
    unproven="that you write files so large",
    by_hand="ulimit -f",
    remedy="ulimit -f unlimited",
    references=(LIMITS,),
)
def file_size(place: Place) -> Iterator[Seen]:
    soft, _ = limit("RLIMIT_FSIZE")
    if soft != INFINITE:
        yield Seen(severity="warning", summary=f"files of {size(soft)} at most")


@check(
    id="locked-memory",
    group="limits",
    fine="locked memory is not limited, or nothing needs it",
    causes="RDMA (NCCL over InfiniBand) cannot register buffers: it fails at start, or falls back to sockets and is slow",
    unproven="that this job uses InfiniBand",
    by_hand="ulimit -l; ls /sys/class/infiniband",
    remedy="ulimit -l unlimited (docker --ulimit memlock=-1)",
    references=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",),
)
def locked_memory(place: Place) -> Iterator[Seen]:
    soft, _ = limit("RLIMIT_MEMLOCK")
    nics = place.root / "sys/class/infiniband"
    if soft != INFINITE and nics.is_dir() and any(nics.iterdir()):
        yield Seen(severity="warning", summary=f"{size(soft)} of locked memory on a machine with InfiniBand")
