"""Probes of resources: processors, threads, time, limits, and the size of places; each from how an attempt would be started to its change.

A setting is "" for the default, else one number: bytes, a count, processors' worth of time, or the number of a processor.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from pathlib import Path

from matrix.runner import cgroup
from matrix.runner.probes import machine
from matrix.runner.probes.change import INFINITE, Change, Context, Unavailable

MIB, GIB = 1 << 20, 1 << 30
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)
LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate")
WANTED_FILES = 65536
HALF = 0.5  # of a processor


# ------------------------------------------------------------------ processors and threads
def one_core(context: Context, setting: str) -> Change:
    """Threads are counted from the affinity by most runtimes: what the unprobed run would have had is written out.

    OpenBLAS never starts more threads than the affinity has processors, whatever the variable says."""
    if not hasattr(os, "sched_setaffinity"):
        raise Unavailable(f"{sys.platform} has no way to bind a process to a processor")
    usable = context.usable_cpus()
    if len(usable) == 1:
        raise Unavailable("it has only one processor anyway")
    chosen = int(number(setting, "the number of a processor")) if setting else usable[0]
    if chosen not in usable:
        raise Unavailable(f"processor {chosen} is not one of {usable}")
    return Change(cpus=[chosen], env=_unprobed_threads(context, usable))


def _unprobed_threads(context: Context, usable: list[int]) -> dict[str, str]:
    if "OMP_NUM_THREADS" in context.env or any(Path(word).name in LAUNCHERS for word in context.argv):
        return {}  # all others follow it; these launchers set it to 1 in their ranks where it is not set
    counts = {
        "OMP_NUM_THREADS": len(usable),
        "OPENBLAS_NUM_THREADS": len(usable),
        "MKL_NUM_THREADS": machine.physical_cores(usable),
        "NUMEXPR_NUM_THREADS": min(16, os.cpu_count() or 1),
    }
    return {name: str(count) for name, count in counts.items() if name not in context.env}


def one_thread(context: Context, setting: str) -> Change:
    return Change(env=dict.fromkeys(ONE_THREAD, "1"), native_threads=0)


def slower_clock(context: Context, setting: str) -> Change:
    """Half a processor for all of the attempt, or what the setting says: one that keeps two busy takes twice as long with 1.0."""
    share = number(setting, "processors' worth of time") if setting else HALF
    if not context.watch or not cgroup.can_limit_cpu():
        raise Unavailable("no cpu cgroup can be made here")
    if share < cgroup.LEAST_CPU_SHARE:
        raise Unavailable(f"the kernel takes no quota below {cgroup.LEAST_CPU_SHARE} processors")
    return Change(cpu_share=share)


# ------------------------------------------------------------------ limits
def larger_stacks(context: Context, setting: str) -> Change:
    """Of the main thread, of those that inherit RLIMIT_STACK, and of OpenMP's.  Never unlimited: then new threads get only 2 MiB."""
    soft, _ = context.limit("RLIMIT_STACK")
    wanted = int(number(setting, "bytes")) if setting else max(64 * MIB, 8 * soft)
    env = {"OMP_STACKSIZE": f"{wanted >> 10}K", "KMP_STACKSIZE": f"{wanted >> 10}K"}
    if soft == INFINITE:
        return Change(env=env)
    return Change(env=env, rlimits={"RLIMIT_STACK": _raised(context, "RLIMIT_STACK", wanted)})


def memory_x2(context: Context, setting: str) -> Change:
    limit = _our_memory_limit(context) * 2
    if limit > machine.memory_bytes():
        raise Unavailable(f"this machine has no {limit >> 20} MiB")
    return Change(memory_limit_bytes=limit)


def memory_half(context: Context, setting: str) -> Change:
    return Change(memory_limit_bytes=_our_memory_limit(context) // 2)


def _our_memory_limit(context: Context) -> int:
    if not context.memory_limit_bytes:
        raise Unavailable("no memory limit of ours (limits.memory) to change")
    if not context.watch:
        raise Unavailable("the attempt runs unwatched, without a memory limit")
    return context.memory_limit_bytes


def raised_nofile(context: Context, setting: str) -> Change:
    """Not as far as it goes: some programs close every possible descriptor one by one."""
    soft, _ = context.limit("RLIMIT_NOFILE")
    wanted = int(number(setting, "a count")) if setting else max(WANTED_FILES, 8 * soft)
    return Change(rlimits={"RLIMIT_NOFILE": _raised(context, "RLIMIT_NOFILE", min(wanted, machine.most_open_files()))})


def raised_pids(context: Context, setting: str) -> Change:
    """Our own limit and RLIMIT_NPROC; one of a container or a service around us stays."""
    pids = None if context.pids is None else int(number(setting, "a count")) if setting else 8 * context.pids
    try:
        rlimits = {"RLIMIT_NPROC": _raised(context, "RLIMIT_NPROC", INFINITE)}
    except Unavailable:
        if pids is None:
            raise
        rlimits = {}
    return Change(pids=pids, rlimits=rlimits)


def raised_address_space(context: Context, setting: str) -> Change:
    return Change(rlimits={"RLIMIT_AS": _raised(context, "RLIMIT_AS", INFINITE)})


def raised_cpu_time(context: Context, setting: str) -> Change:
    return Change(rlimits={"RLIMIT_CPU": _raised(context, "RLIMIT_CPU", INFINITE)})


def _raised(context: Context, name: str, wanted: int) -> tuple[int, int]:
    """As much of `wanted` as this user may have.  One that the program sets for itself cannot be raised from outside."""
    soft, hard = context.limit(name)
    if soft == INFINITE:
        raise Unavailable(f"{name} is unlimited already")
    if hard != INFINITE and not machine.may_raise_limits():
        own = name in context.rlimits and context.limit(name) != _inherited(context, name)
        hard = _inherited(context, name)[1] if own else hard
        wanted = hard if wanted == INFINITE else wanted if hard == INFINITE else min(wanted, hard)
    if wanted != INFINITE and wanted <= soft:
        raise Unavailable(f"{name} is {soft} already, and more is not allowed here")
    return wanted, wanted if hard != INFINITE and (wanted == INFINITE or wanted > hard) else hard


def _inherited(context: Context, name: str) -> tuple[int, int]:
    return dataclasses.replace(context, rlimits={}).limit(name)


# ------------------------------------------------------------------ places
def bigger_shm(context: Context, setting: str) -> Change:
    return Change(tmpfs={"/dev/shm": _bigger(Path("/dev/shm"), setting)})


def bigger_temp(context: Context, setting: str) -> Change:
    place = Path(context.env.get("TMPDIR") or context.temp)
    size = _bigger(place if place.is_dir() else place.parent, setting)
    return Change(tmpfs={str(place): size}, env={"TMPDIR": str(place)})


def _bigger(place: Path, setting: str) -> int:
    if not place.is_dir():
        raise Unavailable(f"there is no {place}")
    if why := machine.why_no_mount():
        raise Unavailable(why)
    if setting:
        return int(number(setting, "bytes"))
    status = os.statvfs(place)
    free, most = status.f_bavail * status.f_frsize, machine.available_bytes() // 2
    size = min(most, max(GIB, 4 * status.f_blocks * status.f_frsize))
    if size <= free:
        raise Unavailable(f"{place} has {free >> 20} MiB free; a file system in memory could be of {most >> 20} MiB at most")
    return size


def number(setting: str, what: str) -> float:
    try:
        value = float(setting)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:  # not a number is neither
        raise Unavailable(f"{setting!r} is not {what}")
    return value
