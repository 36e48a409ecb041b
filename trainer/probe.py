"""Is an npz mapped or loaded?  Asked of the kernel, not of numpy: `np.load` takes mmap_mode for an npz and ignores it."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer.config import ProbeConfig
from trainer.memory import MB, Held, held
from trainer.npz import ALIGNMENT, open_npz


def probe(config: ProbeConfig) -> None:
    """Print how each array is there, and what this process held before, after opening and after one access.  Raises InputError."""
    stages = [("before", _held())]
    arrays = open_npz(config.file, "an npz file")
    stages.append(("after opening", _held()))
    for array in arrays.values():
        if array.size:
            float(array.reshape(-1)[array.size // 2 : array.size // 2 + 1].sum())
    stages.append(("after one access to each", _held()))
    for name, array in arrays.items():
        print(f"{name}: {_kind(array)}, {array.dtype} {array.shape}, {array.nbytes / MB:.1f} MB")
    print(f"{'memory of this process':<26}{'total MB':>10}{'anonymous MB':>14}")
    for stage, now in stages:
        anonymous = "unknown" if now.anonymous_bytes is None else f"{now.anonymous_bytes / MB:.1f}"
        print(f"{stage:<26}{now.total_bytes / MB:>10.1f}{anonymous:>14}")
    mapped = sum(isinstance(array, np.memmap) for array in arrays.values())
    print(f"{config.file}: {mapped} of {len(arrays)} arrays are mapped, {len(arrays) - mapped} loaded")


def _held() -> Held:
    return held(os.getpid())


def _kind(array: NDArray[Any]) -> str:
    if not isinstance(array, np.memmap):
        return "loaded"
    shift = array.ctypes.data % ALIGNMENT
    return "mapped" if shift == 0 else f"mapped {shift} bytes past a multiple of {ALIGNMENT}"
