"""A few rows of a large array are written to, as far apart as huge pages are, and the resident memory is compared with theirs.

NumPy asks for huge pages for arrays of 4 MiB and more, unless NUMPY_MADVISE_HUGEPAGE=0; the kernel grants them by its own setting.
--memory plain leaves it to the kernel's setting alone; huge asks for them, which plants the fault; small forbids them.
"""

from __future__ import annotations

import argparse
import mmap
from pathlib import Path

import numpy as np

from reproducers.suspects import give_up

MIB, HUGE, PAGE = 1 << 20, 2 << 20, 4096
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--memory", choices=["numpy", "plain", "huge", "small"], default="numpy")
    options = parser.parse_args()
    setting = SETTING.read_text(errors="replace") if SETTING.exists() else ""
    if not setting:
        give_up("this kernel has no transparent huge pages")
    if options.memory == "huge" and "[never]" in setting:
        give_up("huge pages are switched off here, for those who ask as well")
    array = np.empty(options.mib * MIB, np.uint8) if options.memory == "numpy" else mapped(options.memory, options.mib)
    before = resident_bytes()
    steps = options.mib * MIB // HUGE
    for step in range(1, steps + 1):
        array[(step - 1) * HUGE + PAGE] = 1
        held = resident_bytes() - before
        print(f"step {step} written_mb={step * PAGE / 1e6:.3f} resident_mb={held / 1e6:.3f} times={held / (step * PAGE):.1f}", flush=True)
    print("suspect finished", flush=True)


def mapped(memory: str, mib: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    block = mmap.mmap(-1, mib * MIB, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if memory != "plain":
        block.madvise(mmap.MADV_HUGEPAGE if memory == "huge" else mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(block, np.uint8)


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text(errors="replace").split()[1]) * mmap.PAGESIZE


if __name__ == "__main__":
    main()
