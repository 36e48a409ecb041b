"""The trainer's pairs file, read in random micro-batches through the trainer's own loader, which maps it.

--whole reads it as np.load does (it ignores mmap_mode for an npz), so that the file must fit into memory.
--truncate-at N plants the other real death: somebody rewrites the file while it is mapped, and the next read is a SIGBUS.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np

from trainer.data import Pairs


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--truncate-at", type=int, default=0)
    options = parser.parse_args()
    x, y = (read_whole if options.whole else read_mapped)(options.pairs)
    random = np.random.default_rng(0)
    for step in range(1, options.steps + 1):
        rows = random.integers(len(x), size=32)
        print(f"step {step} read {float(np.abs(x[rows]).sum() + np.abs(y[rows]).sum()):.1f}", flush=True)
        if step == options.truncate_at:
            os.truncate(options.pairs, 4096)
    print("suspect finished", flush=True)


def read_mapped(path: Path) -> tuple[Any, Any]:
    pairs = Pairs(path, dim=768, seq_len=0)
    return pairs.x_train, pairs.y_train


def read_whole(path: Path) -> tuple[Any, Any]:
    with np.load(path, mmap_mode="r") as file:
        return file["X_train"], file["Y_train"]


if __name__ == "__main__":
    main()
