"""Families of native runtimes among the installed libraries: OpenMP, BLAS, allocators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from matrix.doctor.finding import NotSeen, Seen, check
from matrix.doctor.native import OPENMP, Native, askers, openblas_version
from matrix.doctor.place import Place
from matrix.evidence.runtimes import REGISTERING

THREADPOOLCTL = "https://github.com/joblib/threadpoolctl/pull/49 (when two OpenMP runtimes get along, and when not)"
NATIVE_ISSUES = "https://pypackaging-native.github.io/key-issues/native-dependencies/blas_openmp/"
HIDES = "KMP_DUPLICATE_LIB_OK"


def listed(natives: Iterable[Native], place: Place) -> tuple[str, ...]:
    return tuple(
        f"{each.owner}: {place.short(each.path)}" + (f" (build {each.build_id[:12]})" if each.build_id else "") for each in natives
    )


def asked_for(runtime: Native, place: Place) -> list[str]:
    """Other packages that ask the loader for it."""
    return sorted({user.owner for user in askers(runtime, place.libraries)} - {runtime.owner})


@check(
    id="openmp-duplicate",
    group="libraries",
    fine="at most one OpenMP runtime of the LLVM/Intel family",
    causes='a process that uses two of them ends with SIGABRT and "OMP: Error #15", at the first use of the second, not at import',
    unproven="that one process of yours loads both; libraries that are opened by path (ctypes) are not seen from files",
    by_hand="grep -E 'lib(i?omp5?)' /proc/PID/maps while the job runs; two different files are the conflict",
    remedy="leave one: uninstall the package that nobody asks for, or take both libraries from builds that share a runtime; "
    f"{HIDES} only hides the abort, results may then be wrong",
    references=(
        "measured with intel-openmp 2026.2 on Linux: 13 of 13 runs with two copies abort, also two copies of the same file",
        "measured: two libraries that ask for copies of one SONAME get the first that was loaded, and do not abort",
        THREADPOOLCTL,
        NATIVE_ISSUES,
        "https://github.com/faiss-wheels/faiss-wheels/issues/73 (macOS: torch and faiss-cpu)",
    ),
)
def duplicate(place: Place) -> Iterator[Seen]:
    """error: two under different names, each asked for by a library: the loader will bring in both.  warning: all else."""
    runtimes = place.of_family(REGISTERING)
    if len(runtimes) < 2:
        return
    wanted = {each.soname or each.path.name for each in runtimes if askers(each, place.libraries)}
    certain = len(wanted) > 1 and place.system == "linux"
    why = (
        "and libraries ask for each by its own name"
        if len(wanted) > 1
        else "under one name, or not asked for by a package that can be imported"
    )
    if place.system == "darwin":
        why = "each package loads its own there (by the files' names: nothing was tried on that system)"
    summary = (
        f"{len(runtimes)} OpenMP runtimes that refuse each other are installed, {why}: {', '.join(sorted({r.owner for r in runtimes}))}"
    )
    yield Seen(severity="error" if certain else "warning", summary=summary, evidence=listed(runtimes, place))


@check(
    id="openmp-mixed",
    group="libraries",
    fine="OpenMP runtimes of one family",
    causes="two thread pools in one process: twice the threads, and where MKL uses the other runtime than its caller, wrong "
    "results or hangs",
    unproven="that one process loads both; GNU and LLVM/Intel runtimes do not abort on each other",
    by_hand="grep -E 'lib(gomp|i?omp5?)' /proc/PID/maps while the job runs",
    remedy="with MKL set MKL_THREADING_LAYER=GNU; else uninstall the runtime that nobody asks for",
    references=(THREADPOOLCTL, "https://github.com/pytorch/pytorch/issues/37377 (MKL_THREADING_LAYER and libgomp)"),
)
def mixed(place: Place) -> Iterator[Seen]:
    gnu, llvm = place.of_family("openmp-gnu"), place.of_family(REGISTERING)
    if not gnu or not llvm:
        return
    asked = {owner for each in llvm for owner in asked_for(each, place)}
    by = f"asked for by {', '.join(sorted(asked))}" if asked else "no other package asks for the latter, so it is loaded only by path"
    owners = [", ".join(sorted({each.owner for each in group})) for group in (gnu, llvm)]
    summary = f"GNU ({owners[0]}) and LLVM/Intel ({owners[1]}) OpenMP are both installed; {by}"
    yield Seen(severity="warning" if asked else "info", summary=summary, evidence=listed([*gnu, *llvm], place))


@check(
    id="openmp-copies",
    group="libraries",
    fine="one copy of GNU OpenMP at most",
    causes="a thread pool for each copy, so threads add up; limits of one (omp_set_num_threads) do not reach the other; never an abort",
    unproven="that one process loads them all",
    by_hand="grep libgomp /proc/PID/maps; ls /proc/PID/task | wc -l",
    remedy="nothing has to be done; where threads are scarce set OMP_NUM_THREADS, which all copies read",
    references=("measured: torch's and faiss's libgomp live in one process without an abort", NATIVE_ISSUES),
)
def copies(place: Place) -> Iterator[Seen]:
    found = place.of_family("openmp-gnu")
    if len(found) > 1:
        builds = {each.build_id for each in found}
        same = ", the same build" if len(builds) == 1 and None not in builds else ""
        owners = ", ".join(sorted({each.owner for each in found}))
        yield Seen(severity="info", summary=f"{len(found)} copies of GNU OpenMP{same}: {owners}", evidence=listed(found, place))


@check(
    id="openmp-fork",
    group="libraries",
    fine="no fork by default, or nothing with GNU OpenMP",
    causes="a child that is forked after the parent ran a parallel region, and runs one itself, hangs: asleep in libgomp "
    "(torch), or at 100 % "
    "CPU in an OpenMP build of OpenBLAS (faiss)",
    unproven="that your program forks after such work; DataLoader workers and multiprocessing pools do so by default here",
    by_hand="py-spy dump --native --pid CHILD: gomp_team_start, or sched_yield below cblas",
    remedy='multiprocessing.set_start_method("spawn") (or "forkserver"), or OMP_NUM_THREADS=1, or no parallel work before the fork',
    references=(
        "measured with torch 2.13 and faiss-cpu 1.15: 3 of 3 hang; spawn, forkserver and OMP_NUM_THREADS=1 do not",
        "https://github.com/OpenMathLib/OpenBLAS/pull/343 (fork-safe without OpenMP, not with libgomp)",
        "https://gcc.gnu.org/bugzilla/show_bug.cgi?id=60035",
    ),
)
def fork(place: Place) -> Iterator[Seen]:
    if place.system != "linux":
        raise NotSeen(f"{place.system} starts processes with spawn, or was not measured")
    gnu = place.of_family("openmp-gnu")
    if not gnu or place.python.version >= (3, 14):
        return
    version = ".".join(map(str, place.python.version[:2]))
    blas = [each for each in place.of_family("blas-openblas") if openmp_build(each)]
    more = f", and an OpenBLAS built with OpenMP ({', '.join(each.owner for each in blas)})" if blas else ""
    summary = f"Python {version} forks by default, and GNU OpenMP is there ({', '.join(sorted({each.owner for each in gnu}))}){more}"
    yield Seen(severity="warning", summary=summary, evidence=listed([*gnu, *blas], place))


def openmp_build(blas: Native) -> bool:
    return any(OPENMP.match(name) for name in blas.needed)


@check(
    id="blas-copies",
    group="libraries",
    fine="one BLAS at most",
    causes="a thread pool and buffers for each: CPUs times copies threads, and memory for each thread",
    unproven="that one process loads them all; they do not refuse each other",
    by_hand="grep -iE 'blas|mkl' /proc/PID/maps; ls /proc/PID/task | wc -l",
    remedy="nothing has to be done; where threads or memory are scarce set OPENBLAS_NUM_THREADS and OMP_NUM_THREADS",
    references=(NATIVE_ISSUES,),
)
def blas_copies(place: Place) -> Iterator[Seen]:
    found = [each for each in place.libraries if any(family.startswith("blas-") for family in each.families)]
    if len(found) < 2:
        return
    described = [f"{_kind(each)} in {each.owner}" for each in found]
    yield Seen(severity="info", summary=f"{len(found)} BLAS libraries: {'; '.join(described)}", evidence=listed(found, place))


def _kind(blas: Native) -> str:
    if "blas-openblas" not in blas.families:
        return next(family for family in blas.families if family.startswith("blas-")).removeprefix("blas-").upper()
    version = openblas_version(blas.path)
    return f"OpenBLAS {'.'.join(map(str, version)) if version else '?'} ({'OpenMP' if openmp_build(blas) else 'pthreads'})"


@check(
    id="openblas-fork-deadlock",
    group="libraries",
    fine="no OpenBLAS with a known deadlock",
    causes="a factorisation (LU, inverse, determinant) after a fork may wait for ever, in the parent too",
    unproven="that it happens here: it was reported from macOS and some Linux builds, and was not met in 40 runs on the machine "
    "of this tool",
    by_hand="py-spy dump --native --pid PID: exec_blas_async, or blas_thread_shutdown",
    remedy="a newer build of the package that ships it, OPENBLAS_NUM_THREADS=1, or spawn instead of fork",
    references=(
        "https://github.com/OpenMathLib/OpenBLAS/issues/5520",
        "https://github.com/scipy/scipy/issues/23686",
        "https://github.com/OpenMathLib/OpenBLAS/issues/5341",
    ),
)
def openblas_deadlock(place: Place) -> Iterator[Seen]:
    bad = [each for each in place.of_family("blas-openblas") if openblas_version(each.path) == (0, 3, 30)]
    if bad:
        owners = ", ".join(sorted({each.owner for each in bad}))
        yield Seen(
            severity="info",
            summary=f"OpenBLAS 0.3.30, of which deadlocks after a fork were reported, in {owners}",
            evidence=listed(bad, place),
        )


@check(
    id="allocator-replaced",
    group="libraries",
    fine="no package exports an allocator of its own",
    causes="memory that one allocator gave and another frees aborts; the process's size is held by another allocator than glibc's, so "
    "MALLOC_ variables do nothing to it",
    unproven="that it takes malloc's place: most packages keep it to themselves",
    by_hand="grep -E 'jemalloc|tcmalloc|mimalloc' /proc/PID/maps; echo $LD_PRELOAD",
    remedy="keep it in mind when memory does not fall after a free; preload only one",
    references=("https://github.com/ray-project/ray/pull/60478 (jemalloc in pyarrow)",),
)
def allocators(place: Place) -> Iterator[Seen]:
    found = [each for each in place.libraries if any(family.startswith("allocator-") for family in each.families)]
    if found:
        owners = ", ".join(sorted({f"{each.owner} ({each.families[0].removeprefix('allocator-')})" for each in found}))
        yield Seen(severity="info", summary=f"allocators in {owners}", evidence=listed(found, place))
