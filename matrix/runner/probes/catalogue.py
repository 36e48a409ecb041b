"""The probes: for each name a function from how an attempt would be started to what is changed, or `Unavailable` with the reason.

A setting is "" for the default, else one number: bytes, a count, processors' worth of time, or the number of a processor.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from matrix.runner import cgroup
from matrix.runner.probes import machine
from matrix.runner.probes.change import INFINITE, Change, Context, Prepared, Unavailable
from matrix.runner.probes.main_guard import why_no_other_start_method

MIB, GIB = 1 << 20, 1 << 30
ONE_THREAD = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)
# numpy warns about features that its build does not dispatch, and goes on.
NUMPY_FEATURES = (
    "AVX F16C FMA3 AVX2 AVX512F AVX512CD AVX512_KNL AVX512_KNM AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V3 X86_V4"
)
WANTED_FILES = 65536


# ------------------------------------------------------------------ processors and threads
def one_core(context: Context, setting: str) -> Change:
    """Threads are counted from the affinity by most runtimes: what the unprobed run would have had is written out.

    OpenBLAS never starts more threads than the affinity has processors, whatever the variable says."""
    if not hasattr(os, "sched_setaffinity"):
        raise Unavailable(f"{sys.platform} has no way to bind a process to a processor")
    usable = context.usable_cpus()
    if len(usable) == 1:
        raise Unavailable("it has only one processor anyway")
    chosen = int(_number(setting, "the number of a processor")) if setting else usable[0]
    if chosen not in usable:
        raise Unavailable(f"processor {chosen} is not one of {usable}")
    return Change(cpus=[chosen], env=_unprobed_threads(context, usable))


def _unprobed_threads(context: Context, usable: list[int]) -> dict[str, str]:
    if "OMP_NUM_THREADS" in context.env:  # all others follow it
        return {}
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
    share = _number(setting, "processors' worth of time") if setting else 0.5
    if not context.watch or not cgroup.can_limit_cpu():
        raise Unavailable("no cpu cgroup can be made here")
    if share < cgroup.LEAST_CPU_SHARE:
        raise Unavailable(f"the kernel takes no quota below {cgroup.LEAST_CPU_SHARE} processors")
    return Change(cpu_share=share)


# ------------------------------------------------------------------ limits
def larger_stacks(context: Context, setting: str) -> Change:
    """Of the main thread, of those that inherit RLIMIT_STACK, and of OpenMP's.  Never unlimited: then new threads get only 2 MiB."""
    soft, _ = context.limit("RLIMIT_STACK")
    wanted = int(_number(setting, "bytes")) if setting else max(64 * MIB, 8 * soft)
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
    wanted = int(_number(setting, "a count")) if setting else max(WANTED_FILES, 8 * soft)
    return Change(rlimits={"RLIMIT_NOFILE": _raised(context, "RLIMIT_NOFILE", min(wanted, machine.most_open_files()))})


def raised_pids(context: Context, setting: str) -> Change:
    """Our own limit and RLIMIT_NPROC; one of a container or a service around us stays."""
    pids = None if context.pids is None else int(_number(setting, "a count")) if setting else 8 * context.pids
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
    import dataclasses

    return dataclasses.replace(context, rlimits={}).limit(name)


# ------------------------------------------------------------------ the heap
def poisoned_heap(context: Context, setting: str) -> Change:
    byte = int(_number(setting, "a byte from 1 to 255")) if setting else 165
    return Change(env={"MALLOC_PERTURB_": str(byte), "PYTHONMALLOC": "debug"}, uses_malloc=True)


def checked_heap(context: Context, setting: str) -> Change:
    library = machine.malloc_debug_library()
    if library is None:
        raise Unavailable("there is no libc_malloc_debug.so beside the C library (glibc 2.34 or later has it)")
    tunables = _and_tunable(context, "glibc.malloc.check=3")
    preload = ":".join(filter(None, [library, context.env.get("LD_PRELOAD")]))
    return Change(
        env={"LD_PRELOAD": preload, "MALLOC_CHECK_": "3", "GLIBC_TUNABLES": tunables}, maps=("libc_malloc_debug.so",), uses_malloc=True
    )


def valgrind(context: Context, setting: str) -> Change:
    """memcheck with its findings in the attempt's folder; Python's own allocator would hide small objects from it."""
    program = _tool(context, "valgrind")
    log = context.folder.resolve() / "valgrind.%p.log"
    wrapper = (program, "--tool=memcheck", "--trace-children=yes", "--num-callers=20", "--xml=no", f"--log-file={log}", "--")
    return Change(wrapper=wrapper, env={"PYTHONMALLOC": "malloc"}, maps=("vgpreload_memcheck",))


def one_arena(context: Context, setting: str) -> Change:
    return Change(env={"MALLOC_ARENA_MAX": "1"}, uses_malloc=True)


def no_huge_pages(context: Context, setting: str) -> Change:
    if "THP_enabled" not in machine.own_status():
        raise Unavailable("this kernel does not say whether a process may have huge pages")
    return Change(env={"NUMPY_MADVISE_HUGEPAGE": "0"}, no_huge_pages=True)


def _and_tunable(context: Context, tunable: str) -> str:
    return ":".join(filter(None, [context.env.get("GLIBC_TUNABLES"), tunable]))


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
        return int(_number(setting, "bytes"))
    status = os.statvfs(place)
    free, most = status.f_bavail * status.f_frsize, machine.available_bytes() // 2
    size = min(most, max(GIB, 4 * status.f_blocks * status.f_frsize))
    if size <= free:
        raise Unavailable(f"{place} has {free >> 20} MiB free; a file system in memory could be of {most >> 20} MiB at most")
    return size


# ------------------------------------------------------------------ instructions, runtimes, start methods
def plain_instructions(context: Context, setting: str) -> Change:
    core = {"x86_64": "Prescott", "AMD64": "Prescott", "aarch64": "ARMV8", "arm64": "ARMV8"}.get(os.uname().machine)
    env = {"ATEN_CPU_CAPABILITY": "default", "NPY_DISABLE_CPU_FEATURES": NUMPY_FEATURES, "FAISS_OPT_LEVEL": "generic"}
    env |= {"ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"} if core == "Prescott" else {}
    return Change(env=env | ({"OPENBLAS_CORETYPE": core} if core else {}), maps_not=("_swigfaiss_avx",))


def start_spawn(context: Context, setting: str) -> Change:
    return _start_method(context, "spawn")


def start_forkserver(context: Context, setting: str) -> Change:
    return _start_method(context, "forkserver")


def _start_method(context: Context, method: str) -> Change:
    if not context.hook:
        raise Unavailable("the hook is switched off (evidence)")
    if why := why_no_other_start_method(context.argv, Path(context.cwd)):
        raise Unavailable(why)
    return Change(start_method=method, env={"MATRIX_START_METHOD": method})


def runtime_override(context: Context, setting: str) -> Change:
    return Change(env={"KMP_DUPLICATE_LIB_OK": "TRUE"})


def clean_preload(context: Context, setting: str) -> Change:
    preloaded = context.env.get("LD_PRELOAD", "")
    if not preloaded:
        raise Unavailable("LD_PRELOAD is not set")
    names = tuple(Path(word).name for word in preloaded.replace(":", " ").split())
    return Change(unset=("LD_PRELOAD",), maps_not=names)


# ------------------------------------------------------------------ signals, sessions, who ended it
def own_session(context: Context, setting: str) -> Change:
    """A session of its own it has always; here it has no terminal either, and its output is a file, as under `setsid nohup`."""
    return Change(to_file=True)


def ignore_sighup(context: Context, setting: str) -> Change:
    return Change(ignored=(signal.SIGHUP,))


def ignore_sigpipe(context: Context, setting: str) -> Change:
    return Change(ignored=(signal.SIGPIPE,))


def default_sigpipe(context: Context, setting: str) -> Change:
    """Python ignores SIGPIPE from its start; here it ends the process, as it does with all other programs."""
    if not context.hook:
        raise Unavailable("the hook is switched off (evidence)")
    return Change(default=(signal.SIGPIPE,), env={"MATRIX_SIGPIPE": "default"})


def who_ended_it(context: Context, setting: str) -> Change:
    program = _tool(context, "strace")
    calls = "exit_group,kill,tgkill,tkill,rt_sigqueueinfo,rt_tgsigqueueinfo,pidfd_send_signal"
    log = context.folder.resolve() / "strace.log"
    options = ["-f", "-D", "-qq", "-ttt", "--seccomp-bpf", "-e", f"trace={calls}", "-e", "signal=!SIGCHLD,SIGWINCH,SIGURG", "-o", str(log)]
    return Change(wrapper=(program, *options, "--"), traced=True)


def _tool(context: Context, name: str) -> str:
    found = shutil.which(name, path=context.env.get("PATH"))
    if found is None:
        raise Unavailable(f"{name} is not installed")
    return found


# ------------------------------------------------------------------ devices
def cuda_launch_blocking(context: Context, setting: str) -> Change:
    return _on_a_device(context, {"CUDA_LAUNCH_BLOCKING": "1"})


def no_cuda_caching(context: Context, setting: str) -> Change:
    return _on_a_device(context, {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"})


def nccl_debug(context: Context, setting: str) -> Change:
    return _on_a_device(context, {"NCCL_DEBUG": "INFO"})


def _on_a_device(context: Context, env: dict[str, str]) -> Change:
    if why := machine.why_no_device(context.env):
        raise Unavailable(why)
    return Change(env=env)


# ------------------------------------------------------------------ all of them
# In this order they are applied: one_thread before one_core, which keeps thread counts as they are.
PROBES: dict[str, Callable[[Context, str], Change]] = {
    probe.__name__: probe
    for probe in (
        one_thread, one_core, larger_stacks, memory_x2, memory_half, poisoned_heap, checked_heap, one_arena, no_huge_pages,
        raised_nofile, raised_pids, raised_address_space, raised_cpu_time, bigger_shm, bigger_temp, slower_clock, plain_instructions,
        start_spawn, start_forkserver, runtime_override, clean_preload, own_session, ignore_sighup, ignore_sigpipe, default_sigpipe,
        cuda_launch_blocking, no_cuda_caching, nccl_debug, valgrind, who_ended_it,
    )
}  # fmt: skip
NAMES = tuple(PROBES)


def unavailable(name: str, setting: str, context: Context) -> str | None:
    """Why that probe cannot be had for an attempt that would be started like this; None: it can."""
    if name not in PROBES:
        return f"there is no probe {name}; there are {', '.join(NAMES)}"
    try:
        PROBES[name](context, setting)
    except Unavailable as reason:
        return str(reason)
    return None


def prepare(context: Context, settings: dict[str, str]) -> Prepared:
    """What all probes of an attempt change together; those that cannot be had are left out, with the reason."""
    each: dict[str, Change] = {}
    refused = {name: f"there is no probe {name}" for name in settings if name not in PROBES}
    total = Change()
    for name in (name for name in NAMES if name in settings):
        try:
            each[name] = PROBES[name](context, settings[name])
        except Unavailable as reason:
            refused[name] = str(reason)
            continue
        context = context.changed(each[name])
        total = total.plus(each[name])
    return Prepared(settings=dict(settings), each=each, refused=refused, total=total)


def _number(setting: str, what: str) -> float:
    try:
        value = float(setting)
    except ValueError:
        value = -1.0
    if value < 0:
        raise Unavailable(f"{setting!r} is not {what}")
    return value
