"""Which axes probably take part in the crash, and whether it comes every time, by what the first death shows: the search starts there.

An axis is judged by what it sets, never by its name: by the environment variables that the specification says it sets, and by what
runs were under (limits, room, processes of a pool, the start method) where that was what the axis says in every run.  A variable that
one of the tool's own interventions sets is a lever of every cause that the intervention cures (`Cause.cures_it`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from matrix.diagnosis.cause import Cause
from matrix.diagnosis.fork import CAUSE as FORK
from matrix.diagnosis.fork import WORKERS as POOL
from matrix.diagnosis.limits import COUNTED, FULL, RESOURCE, TIME
from matrix.diagnosis.memory_causes import NAMES as MEMORY
from matrix.diagnosis.memory_causes import WORKERS
from matrix.diagnosis.native_causes import OVERFLOW
from matrix.records import Observation, Value
from matrix.spec import Spec
from matrix.spec.axes import Axis

LEVERS = {  # variables, by how they begin -> the intervention that sets them
    "KMP_DUPLICATE_LIB_OK": "runtime_override",
    "LD_PRELOAD": "clean_preload",
    "LD_LIBRARY_PATH": "clean_preload",
    "OMP_NUM_THREADS": "one_thread",
    "MKL_NUM_THREADS": "one_thread",
    "OPENBLAS_NUM_THREADS": "one_thread",
    "NUMEXPR_NUM_THREADS": "one_thread",
    "VECLIB_MAXIMUM_THREADS": "one_thread",
    "OMP_STACKSIZE": "larger_stacks",
    "KMP_STACKSIZE": "larger_stacks",
    "MALLOC_ARENA_MAX": "one_arena",
    "MALLOC_MMAP_THRESHOLD_": "one_arena",
    "MALLOC_PERTURB_": "poisoned_heap",
    "PYTHONMALLOC": "poisoned_heap",
    "NUMPY_MADVISE_HUGEPAGE": "no_huge_pages",
    "ATEN_CPU_CAPABILITY": "plain_instructions",
    "OPENBLAS_CORETYPE": "plain_instructions",
    "NPY_DISABLE_CPU_FEATURES": "plain_instructions",
    "CUDA_LAUNCH_BLOCKING": "cuda_launch_blocking",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "no_cuda_caching",
    "NCCL_": "nccl_debug",
}
USUAL = 0.15  # chance that an axis takes part, of which nothing is known
LEAST = 0.5  # the catalogue does not know every lever: what is not listed loses no more than half

SET_BY = {  # what a run is under -> the causes in which whoever sets it takes part
    **dict.fromkeys((*COUNTED, "as"), (RESOURCE,)),
    "memory": MEMORY,
    "disk": (FULL,),
    "cpu": (TIME,),
    "stack": (OVERFLOW,),
    "pool": (WORKERS, FORK),
    "start": (FORK,),
}
TAKES_PART = 0.9  # chance that an axis which sets that takes part
LIMITS = SET_BY.keys() - {"pool", "start"}  # a value that is not positive sets no limit
BYTES = ("memory", "disk", "as", "fsize", "memlock", "data", "stack")
UNITS = (1, 1000, 1 << 10, 10**6, 1 << 20, 10**9, 1 << 30)  # in which a number of bytes may be given
MET = re.compile(r"memory: usage \d+kB, limit (\d+)kB")  # of a group that ran out, in the kernel's words
FITS, FOLLOWS = 3.0, 9.0  # odds that an axis sets what is as it says: in runs with one value of it, in runs with several


def weights(spec: Spec, shares: Mapping[str, float], causes: Mapping[str, Cause], runs: Sequence[Observation] = ()) -> dict[str, float]:
    """How much likelier than another each axis with a known lever takes part, for `Search.suspect_axes`.

    `shares`: probabilities of the causes after the first death, `unknown` among them, for which every axis is as good as another.
    `runs`: whatever was run without a probe, however it ended."""
    found = {}
    for axis in spec.axes:
        if probes := _levers(axis):
            found[axis.name] = sum(share * _times(causes[cause], probes) if cause in causes else share for cause, share in shares.items())
    for axis in spec.axes:
        if _names_a_place(axis):
            found[axis.name] = found.get(axis.name, 1.0) * (1 + shares.get(FULL, 0.0) * (_odds(TAKES_PART) / _odds(USUAL) - 1))
    for name, by_axis in _setters(spec, runs).items():
        share = sum(shares.get(cause, 0.0) for cause in SET_BY[name])
        for axis_name, chance in by_axis.items():
            found[axis_name] = found.get(axis_name, 1.0) * (1 + chance * share * (_odds(TAKES_PART) / _odds(USUAL) - 1))
    return found


def every_time(shares: Mapping[str, float], causes: Mapping[str, Cause]) -> float:
    """How likely a crash of these causes, `unknown` among them, is to come in every run, for `Search.expect_every_time`."""
    return sum(share * causes[cause].every_time for cause, share in shares.items())


def _times(cause: Cause, probes: set[str]) -> float:
    return max(LEAST, max(cause.goes_away(probe) for probe in probes) / USUAL)


def _odds(chance: float) -> float:
    return chance / (1 - chance)


def _levers(axis: Axis) -> set[str]:
    names = {name for value in axis.values for name in axis.variables(value)}
    return {probe for name in names for start, probe in LEVERS.items() if name.startswith(start)}


def _names_a_place(axis: Axis) -> bool:
    """True if some value of the axis is a path: where a program writes decides which disk is full."""
    words = [word for value in axis.values for word in (*axis.argv(value), *axis.variables(value).values())]
    return any("/" in word or "{attempt_dir}" in word for word in words)


# ------------------------------------------------------------------ what an axis sets, by what runs were under
def _setters(spec: Spec, runs: Sequence[Observation]) -> dict[str, dict[str, float]]:
    """For all that a run may be under, the axes that may set it, each with its chance; that none of them does has odds of its own."""
    under, found = [(run.trial.cell, settings(run)) for run in runs], dict[str, dict[str, float]]()
    for name in SET_BY:
        known = [(cell, values[name]) for cell, values in under if name in values]
        odds = {axis.name: max(_fit(name, unit, axis.name, known) for unit in _units(name)) for axis in spec.axes}
        found[name] = {axis: each / (1 + sum(odds.values())) for axis, each in odds.items() if each}
    return found


def _fit(name: str, unit: int, axis: str, known: Sequence[tuple[Mapping[str, Value], set[float | str]]]) -> float:
    """Odds that an axis sets this, in this unit: 0 when any run was under something else."""
    said = [(_said(cell[axis], unit), values) for cell, values in known]
    said = [(value, values) for value, values in said if not (name in LIMITS and isinstance(value, int | float) and value <= 0)]
    if not any(value for value, _ in said) or not all(value in values for value, values in said):  # an empty pool tells nothing
        return 0.0
    return FOLLOWS if len({value for value, _ in said}) > 1 else FITS


def _said(value: Value, unit: int) -> float | str | None:
    return value * unit if isinstance(value, int | float) and not isinstance(value, bool) else value if isinstance(value, str) else None


def _units(name: str) -> tuple[int, ...]:
    return UNITS if name in BYTES else (1,)


def settings(run: Observation) -> dict[str, set[float | str]]:
    """What a run was under, by the names of SET_BY: limits in bytes, seconds or a count, the size of file systems, the processes of a
    pool, the start method.  What is not known is left out."""
    found: dict[str, set[float | str]] = {}
    for process in run.settings:
        for bound in process.bounds:
            if bound.name in SET_BY:
                found.setdefault(bound.name, set()).add(bound.soft)
    met = [float(limit) * 1024 for line in run.kernel_lines for limit in MET.findall(line)]
    lists: dict[str, list[float | str]] = {
        "memory": [*met],
        "disk": [room.total_bytes for room in run.filesystems],
        "start": [fork.start_method for fork in run.forks if fork.start_method],
        "pool": [sum(process.role in POOL for process in run.memory.processes)] if run.memory.processes else [],
    }
    return found | {name: set(values) for name, values in lists.items() if values}
