"""Which axes probably take part in the crash, and whether it comes every time, by what the first death shows: the search starts there.

An axis is judged by the environment variables that it sets, never by its name or its values.  A variable that one of the tool's
own interventions sets is a lever of every cause that the intervention cures (`Cause.cures_it`).
"""

from __future__ import annotations

from collections.abc import Mapping

from matrix.diagnosis.cause import Cause
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


def weights(spec: Spec, shares: Mapping[str, float], causes: Mapping[str, Cause]) -> dict[str, float]:
    """How much likelier than another each axis with a known lever takes part, for `Search.suspect_axes`.

    `shares`: probabilities of the causes after the first death, `unknown` among them, for which every axis is as good as another."""
    found = {}
    for axis in spec.axes:
        if probes := _levers(axis):
            found[axis.name] = sum(share * _times(causes[cause], probes) if cause in causes else share for cause, share in shares.items())
    return found


def every_time(shares: Mapping[str, float], causes: Mapping[str, Cause]) -> float:
    """How likely a crash of these causes, `unknown` among them, is to come in every run, for `Search.expect_every_time`."""
    return sum(share * causes[cause].every_time for cause, share in shares.items())


def _times(cause: Cause, probes: set[str]) -> float:
    return max(LEAST, max(cause.goes_away(probe) for probe in probes) / USUAL)


def _levers(axis: Axis) -> set[str]:
    names = {name for value in axis.values for name in axis.variables(value)}
    return {probe for name in names for start, probe in LEVERS.items() if name.startswith(start)}
