"""Instruction sets: what the processor has, what wheels were built for, and variables that ask for more."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from matrix.doctor.finding import NotSeen, Seen, check
from matrix.doctor.known_bad import within
from matrix.doctor.place import Place

V2 = ("cx16", "lahf_lm", "popcnt", "pni", "ssse3", "sse4_1", "sse4_2")  # x86-64-v2; pni is SSE3
HASWELL = ("avx2", "fma", "bmi1", "bmi2", "abm", "movbe")  # abm holds lzcnt


@dataclasses.dataclass(frozen=True, kw_only=True)
class Need:
    package: str
    versions: str
    flags: tuple[str, ...]
    unless: tuple[str, ...] = ()  # with one of these the package chooses another build at run time
    ends: str
    certain: bool = True  # False: it ends so only where such an instruction is met
    reference: str


NEEDS = (
    Need(
        package="numpy",
        versions=">=2.4",
        flags=V2,
        ends="RuntimeError at import",
        reference="https://github.com/numpy/numpy/issues/31073",
    ),
    Need(
        package="polars",
        versions=">=0.20",
        flags=HASWELL,
        unless=("polars-lts-cpu", "polars-runtime-compat"),
        ends="SIGILL where such code is met",
        certain=False,
        reference="https://github.com/houndry/barbet/issues/11 (polars' own list of what it requires)",
    ),
    *(
        Need(
            package=name,
            versions=">=1.6",
            flags=("avx",),
            ends="SIGILL at import",
            reference="https://github.com/tensorflow/tensorflow/issues/17411",
        )
        for name in ("tensorflow", "tensorflow-cpu", "tensorflow-gpu")
    ),
    Need(
        package="jaxlib",
        versions=">=0.1.62",
        flags=("avx",),
        ends="RuntimeError or SIGILL at import",
        reference="https://github.com/jax-ml/jax/issues/6671",
    ),
)
# Values that make a library run instructions without asking the processor.
FORCED = {
    "OPENBLAS_CORETYPE": {
        **dict.fromkeys(("skylakex", "cooperlake", "sapphirerapids"), ("avx512f", "avx512bw", "avx512vl")),
        **dict.fromkeys(("haswell", "zen"), ("avx2", "fma")),
        **dict.fromkeys(("sandybridge", "bulldozer"), ("avx",)),
    },
    "ATEN_CPU_CAPABILITY": {"avx512": ("avx512f", "avx512bw", "avx512vl"), "avx2": ("avx2", "fma")},
}
DISPATCH = (*FORCED, "NPY_DISABLE_CPU_FEATURES", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "FAISS_OPT_LEVEL")


def flags(place: Place) -> set[str]:
    """Of the first processor of an x86-64 machine.  Raises NotSeen."""
    if place.machine not in ("x86_64", "AMD64"):
        raise NotSeen(f"what wheels need on {place.machine} is not in the table: it holds x86-64 only")
    for line in place.text("/proc/cpuinfo").splitlines():
        if line.startswith("flags"):
            return set(line.partition(":")[2].split())
    raise NotSeen("/proc/cpuinfo names no flags")


@check(
    id="instruction-set",
    group="processor",
    fine="the processor has what the wheels of the table need",
    causes="SIGILL (exit 132), or an exception at import, on this machine and not on another",
    unproven="anything about packages that are not in the table (numpy, polars, tensorflow, jaxlib): a file does not say what it needs. "
    "torch, faiss and OpenBLAS choose at run time",
    by_hand="grep -m1 flags /proc/cpuinfo; the instruction is in the core: gdb -batch -ex 'x/i $pc' PROGRAM CORE",
    remedy="an older release, a build for old processors (polars[rtcompat], conda-forge), or a virtual machine that passes the "
    "processor through",
    references=tuple(dict.fromkeys(need.reference for need in NEEDS)),
)
def instruction_set(place: Place) -> Iterator[Seen]:
    have = flags(place)
    for need in NEEDS:
        found = place.python.installed(need.package)
        missing = [flag for flag in need.flags if flag not in have]
        if found is None or not missing or any(place.python.installed(other) for other in need.unless):
            continue
        if within(found.version, need.versions):
            hidden = "; the hypervisor may hide it" if "hypervisor" in have else ""
            summary = f"{need.package} {found.version} needs {', '.join(missing)}, which this processor does not have{hidden}: {need.ends}"
            yield Seen(severity="error" if need.certain else "warning", summary=summary, evidence=(need.reference,))


@check(
    id="instructions-forced",
    group="processor",
    fine="no variable asks for other instructions than the processor has",
    causes="SIGILL (exit 132) as soon as such a kernel runs: the library does not ask the processor when it is told",
    unproven="that the library is used",
    by_hand="env | grep -E 'CORETYPE|CPU_CAPABILITY|CPU_FEATURES|CPU_ISA'",
    remedy="unset it; it was often set for another machine",
    references=("measured on a processor without AVX-512: OPENBLAS_CORETYPE=SkylakeX and ATEN_CPU_CAPABILITY=avx512 both end with SIGILL",),
)
def forced(place: Place) -> Iterator[Seen]:
    set_here = {name: place.environment[name] for name in DISPATCH if place.environment.get(name)}
    if not set_here:
        return
    have = flags(place)
    for name, value in set_here.items():
        missing = [flag for flag in FORCED.get(name, {}).get(value.lower(), ()) if flag not in have]
        if missing:
            yield Seen(severity="error", summary=f"{name}={value} asks for {', '.join(missing)}, which this processor does not have")
        else:
            yield Seen(
                severity="info", summary=f"{name}={value} decides which instructions are used", remedy="unset it to compare machines"
            )


@check(
    id="wheel-platform",
    group="processor",
    fine="wheels are of this platform",
    causes="ImportError or a crash when the library is loaded: it was copied from another machine or image",
    unproven="nothing about packages that were not installed from wheels",
    by_hand="grep Tag PACKAGE.dist-info/WHEEL; ldd --version",
    remedy="make the environment anew on this machine",
    references=("https://peps.python.org/pep-0600/",),
)
def platform(place: Place) -> Iterator[Seen]:
    if place.system != "linux":
        raise NotSeen(f"wheels' tags are only compared on Linux, this is {place.system}")
    glibc, machine = place.python.glibc, place.python.machine
    for each in place.python.distributions:
        wanted = [tag.rpartition("-")[2] for tag in each.tags if not tag.endswith("-any")]
        if wanted and not any(_fits(tag, machine, glibc) for tag in wanted):
            has = f"glibc {glibc[0]}.{glibc[1]}" if glibc else "no glibc"
            yield Seen(severity="error", summary=f"{each.name} {each.version} is built for {wanted[0]}; this is {machine} with {has}")


def _fits(tag: str, machine: str, glibc: tuple[int, int] | None) -> bool:
    """`manylinux_2_28_x86_64`, `manylinux2014_x86_64`, `linux_x86_64`, `musllinux_1_2_x86_64`."""
    if not tag.endswith(machine):
        return False
    words = tag.split("_")
    if tag.startswith("manylinux_"):
        return glibc is not None and (int(words[1]), int(words[2])) <= glibc
    if tag.startswith("manylinux"):
        return glibc is not None
    return glibc is None if tag.startswith("musllinux") else tag.startswith("linux")
