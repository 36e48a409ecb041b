"""Variables that a job would inherit: threads, preloads, allocators, output."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from matrix.doctor.finding import NotSeen, Seen, check
from matrix.doctor.native import SUFFIX
from matrix.doctor.native import read as read_native
from matrix.doctor.place import Place
from matrix.kernel_text import kernel_text
from matrix.runner import cgroup

COUNTS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
PINS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
MALLOC: tuple[str, ...] = ("MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_PERTURB_", "MALLOC_CHECK_")
MALLOC += ("GLIBC_TUNABLES", "PYTHONMALLOC")


def _count(text: str) -> int | None:
    """`4`, or `4,2` of nested regions."""
    first = text.partition(",")[0].strip()
    return int(first) if first.isascii() and first.isdecimal() else None


@check(
    id="thread-count",
    group="threads",
    fine="thread variables fit the processors",
    causes="more threads than processors: slow, and every thread costs a stack and allocator arenas; where threads are limited, "
    '"Thread creation failed" or "can\'t start new thread"',
    unproven="what your program sets itself",
    by_hand="env | grep _THREADS; nproc; ls /proc/PID/task | wc -l",
    remedy="set OMP_NUM_THREADS (and MKL_, OPENBLAS_NUM_THREADS) to the processors that one process may use, divided among workers",
    references=("https://docs.pytorch.org/docs/stable/notes/multiprocessing.html (CPU oversubscription)",),
)
def count(place: Place) -> Iterator[Seen]:
    cpus = place.cpus()
    asked = {name: place.environment[name] for name in COUNTS if name in place.environment}
    shown = ", ".join(f"{name}={value}" for name, value in asked.items())
    wrong = [f"{name}={value}" for name, value in asked.items() if not _count(value)]
    if wrong:
        yield Seen(
            severity="warning", summary=f"{', '.join(wrong)} is no number of threads; the runtime then takes its default", evidence=(shown,)
        )
    elif any((_count(value) or 0) > cpus for value in asked.values()):
        yield Seen(severity="warning", summary=f"more threads asked for than the {cpus} processors that this process may use: {shown}")
    elif len({_count(value) for value in asked.values()}) > 1:
        yield Seen(severity="info", summary=f"thread variables disagree: {shown}")


@check(
    id="cpu-quota",
    group="threads",
    fine="no CPU quota below the processors that are seen",
    causes="OpenMP and BLAS start a thread for each processor that they see, and the quota stops them all for the rest of each "
    "period: a job "
    "that is many times slower, and looks hung",
    unproven="that your program does not set its threads",
    by_hand="cat /sys/fs/cgroup/cpu.max (v2) or cpu/cpu.cfs_quota_us (v1); nr_throttled in cpu.stat",
    remedy="set OMP_NUM_THREADS to the quota, rounded down, at least 1",
    references=("https://docs.kernel.org/scheduler/sched-bwc.html",),
)
def quota(place: Place) -> Iterator[Seen]:
    group, cpus = _group(place), place.cpus()
    share = group.cpu_share()
    if share is None or share >= cpus:
        return
    set_to = _count(place.environment.get("OMP_NUM_THREADS", ""))
    fits = set_to is not None and set_to <= max(share, 1)
    threads = f"OMP_NUM_THREADS={set_to}" if set_to else "OMP_NUM_THREADS is not set"
    summary = f"a quota of {share:g} processors while {cpus} are seen; {threads}"
    yield Seen(severity="info" if fits else "warning", summary=summary, evidence=(str(group.cpu_path),))


def _group(place: Place) -> cgroup.Group:
    group = cgroup.own_group() if place.system == "linux" else None
    if group is None:
        raise NotSeen("no cgroup of a known kind" if place.system == "linux" else f"{place.system} has no cgroups")
    return group


@check(
    id="thread-pinning",
    group="threads",
    fine="no variable pins threads to processors",
    causes="every process of the job pins its first thread to the same processor: workers and ranks share one while others idle, "
    "and look hung",
    unproven="that it does harm: with one process it may be wanted",
    by_hand="env | grep -E 'OMP_PROC_BIND|OMP_PLACES|AFFINITY'; grep Cpus_allowed_list /proc/PID/status",
    remedy="unset it for jobs with workers, or give each rank its own places",
    references=("https://gcc.gnu.org/onlinedocs/libgomp/GOMP_005fCPU_005fAFFINITY.html",),
)
def pinning(place: Place) -> Iterator[Seen]:
    found = [f"{name}={place.environment[name]}" for name in PINS if place.environment.get(name, "").lower() not in ("", "false", "none")]
    if found:
        yield Seen(severity="warning", summary=", ".join(found))


@check(
    id="duplicate-ok-set",
    group="threads",
    fine="KMP_DUPLICATE_LIB_OK is not set",
    causes='"OMP: Error #15" does not stop the job when two runtimes are in it: wrong results, hangs or crashes elsewhere, '
    "without that word",
    unproven="that there are two runtimes; see openmp-duplicate",
    by_hand="env | grep KMP_",
    remedy="unset it, and leave one runtime installed",
    references=("the runtime's own text: unsafe, unsupported, may crash or silently produce incorrect results",),
)
def duplicate_ok(place: Place) -> Iterator[Seen]:
    value = place.environment.get("KMP_DUPLICATE_LIB_OK", "")
    if value.lower() in ("true", "1", "t", "yes", "on", ".true."):
        yield Seen(severity="warning", summary=f"KMP_DUPLICATE_LIB_OK={value} hides a conflict of OpenMP runtimes")


@check(
    id="preload",
    group="threads",
    fine="nothing is preloaded",
    causes="code that is in every process of the job and in no list of packages: an allocator, a profiler, an OpenMP runtime",
    unproven="that it does harm",
    by_hand="echo $LD_PRELOAD; cat /etc/ld.so.preload",
    remedy="run once without it: env -u LD_PRELOAD",
    references=("https://man7.org/linux/man-pages/man8/ld.so.8.html",),
)
def preload(place: Place) -> Iterator[Seen]:
    names = [name for name in ("LD_PRELOAD", "DYLD_INSERT_LIBRARIES") if place.environment.get(name)]
    for name in names:
        files = place.environment[name].replace(":", " ").split()
        gone = [file for file in files if os.sep in file and not Path(file).exists()]
        missing = f"; missing: {', '.join(gone)}" if gone else ""
        yield Seen(severity="warning", summary=f"{name}={place.environment[name]}{missing}", evidence=tuple(files))
    everywhere = place.root / "etc/ld.so.preload"
    if everywhere.is_file() and (text := kernel_text(everywhere).split()):
        yield Seen(severity="warning", summary=f"/etc/ld.so.preload loads {', '.join(text)} into every program", evidence=tuple(text))


@check(
    id="library-path",
    group="threads",
    fine="LD_LIBRARY_PATH holds no runtime that wheels bring too",
    causes="a library from there is loaded in place of the one that the wheel was built and tested with: undefined symbols at import, "
    "crashes, or a second OpenMP runtime",
    unproven="that the loader takes it: wheels with RPATH find their own first",
    by_hand="LD_DEBUG=libs python -c 'import PACKAGE' 2>&1 | grep 'calling init'",
    remedy="unset LD_LIBRARY_PATH for Python jobs",
    references=("https://github.com/pytorch/pytorch/issues/157381", "https://github.com/pytorch/pytorch/issues/152783"),
)
def library_path(place: Place) -> Iterator[Seen]:
    found = []
    for folder in filter(None, place.environment.get("LD_LIBRARY_PATH", "").split(":")):
        files = sorted(Path(folder).iterdir()) if Path(folder).is_dir() else []
        for path in (path for path in files if SUFFIX.search(path.name) and not path.is_symlink()):
            native = read_native(path, "LD_LIBRARY_PATH")
            found += [f"{path} ({', '.join(native.families)})"] if native and native.families else []
    if found:
        yield Seen(severity="warning", summary=f"LD_LIBRARY_PATH brings {', '.join(found[:3])}", evidence=tuple(found))


@check(
    id="allocator-variables",
    group="threads",
    fine="no variable changes the allocator",
    causes="memory that grows or falls otherwise than on other machines; the checking ones are slow, and a crash may vanish or "
    "come with them",
    unproven="that it does harm",
    by_hand="env | grep -E 'MALLOC|GLIBC_TUNABLES'",
    remedy="nothing has to be done; unset it to compare with another machine",
    references=("https://man7.org/linux/man-pages/man3/mallopt.3.html",),
)
def allocator_variables(place: Place) -> Iterator[Seen]:
    if found := [f"{name}={place.environment[name]}" for name in MALLOC if place.environment.get(name)]:
        yield Seen(severity="info", summary=", ".join(found))


@check(
    id="output-lost",
    group="threads",
    fine="output is unbuffered and faults leave Python stacks",
    causes="when a process is killed or aborts, what Python had not yet written is lost: the last lines of a log are not the "
    "last that were "
    'printed, and "OMP: Error #15" stands far from where it happened',
    unproven="what your program sets itself",
    by_hand="env | grep -E 'PYTHONUNBUFFERED|PYTHONFAULTHANDLER'",
    remedy="launch it with PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1 (`matrix run` does the like)",
    references=(
        "https://docs.python.org/3/using/cmdline.html#envvar-PYTHONUNBUFFERED",
        "https://docs.python.org/3/library/faulthandler.html",
    ),
)
def output_lost(place: Place) -> Iterator[Seen]:
    lost = {"PYTHONUNBUFFERED": "the last lines printed are lost", "PYTHONFAULTHANDLER": "there is no Python stack"}
    missing = {name: what for name, what in lost.items() if not place.environment.get(name)}
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        summary = f"{' and '.join(missing)} {verb} not set: when a job crashes, {' and '.join(missing.values())}"
        yield Seen(severity="info", summary=summary)
