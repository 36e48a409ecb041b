"""Probes of what runs: the heap, instructions, start methods, runtimes, signals, tracers, devices; each from how an attempt would be
started to its change."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
from pathlib import Path

from matrix.runner.probes import machine
from matrix.runner.probes.change import Change, Context, Unavailable
from matrix.runner.probes.main_guard import why_no_other_start_method
from matrix.runner.probes.resources import number

# numpy warns about features that its build does not dispatch, and goes on.
NUMPY_FEATURES = (
    "AVX F16C FMA3 AVX2 AVX512F AVX512CD AVX512_KNL AVX512_KNM AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V3 X86_V4"
)
LARGE_BLOCK = 32 << 10  # bytes; the C library takes 128 KiB and moves that up to 32 MiB with the blocks that are freed


# ------------------------------------------------------------------ the heap
def poisoned_heap(context: Context, setting: str) -> Change:
    """Fill what is allocated and freed with other bytes.  The C library's cache of each thread would hand blocks out as they are."""
    byte = int(number(setting, "a byte from 1 to 255")) if setting else 165
    tunables = _and_tunable(context, "glibc.malloc.tcache_count=0")
    return Change(env={"MALLOC_PERTURB_": str(byte), "PYTHONMALLOC": "debug", "GLIBC_TUNABLES": tunables}, uses_malloc=True)


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
    """memcheck with its findings in the attempt's folder; Python's own allocator would hide small objects from it.

    What it costs is told before by `estimate_s`."""
    program = _tool(context, "valgrind")
    log = context.folder.resolve() / "valgrind.%p.log"
    wrapper = (program, "--tool=memcheck", "--trace-children=yes", "--num-callers=20", "--xml=no", f"--log-file={log}", "--")
    no_core = {"RLIMIT_CORE": (0, context.limit("RLIMIT_CORE")[1])}  # valgrind would write one of its own, as large as all it had
    return Change(wrapper=wrapper, env={"PYTHONMALLOC": "malloc"}, rlimits=no_core, maps=("vgpreload_memcheck",))


def one_arena(context: Context, setting: str) -> Change:
    """Also for large blocks: each is mapped by itself, so that what is freed between blocks in use goes back to the system."""
    return Change(env={"MALLOC_ARENA_MAX": "1", "MALLOC_MMAP_THRESHOLD_": str(LARGE_BLOCK)}, uses_malloc=True)


def no_huge_pages(context: Context, setting: str) -> Change:
    if "THP_enabled" not in machine.own_status():
        raise Unavailable("this kernel does not say whether a process may have huge pages")
    return Change(env={"NUMPY_MADVISE_HUGEPAGE": "0"}, no_huge_pages=True)


def _and_tunable(context: Context, tunable: str) -> str:
    return ":".join(filter(None, [context.env.get("GLIBC_TUNABLES"), tunable]))


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
    """The tracer is a grandchild (-D): the program stays our own child, with its pid and its exit status."""
    program = _tool(context, "strace")
    calls = "exit_group,kill,tgkill,tkill,rt_sigqueueinfo,rt_tgsigqueueinfo,pidfd_send_signal"
    log = context.folder.resolve() / "strace.log"
    options = ["-f", "-D", "-qq", "-ttt", "-e", f"trace={calls}", "-e", "signal=!SIGCHLD,SIGWINCH,SIGURG", "-o", str(log)]
    return Change(wrapper=(program, *options, *_more_of_strace(program), "--"), traced=True)


@functools.cache
def _more_of_strace(program: str) -> list[str]:
    """Stops only at the calls that are asked for, and the stack of each, where this strace can."""
    said = [subprocess.run([program, option], capture_output=True, timeout=60).stdout for option in ("-V", "-h")]
    text = b"".join(said).decode(errors="replace")
    return [*(["--seccomp-bpf"] if "seccomp-bpf" in text else []), *(["-k"] if "stack-trace=" in text else [])]


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
