"""The trainer's three-tier cache while the machine's memory counts as too full: does every vector come back as it was written?

Its threshold is put below what is in use, so that both tiers shrink at every sync; each vector that is read is compared with a copy, and
at the end the file is.  --second-writer plants another run with the same --out, --truncate-at a file that is cut while it is mapped.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from trainer.cache import EmbeddingCache

ROWS, DIM = 4000, 64
SECOND_WRITER = """
import sys
from pathlib import Path
import numpy as np
from trainer.cache import EmbeddingCache

cache = EmbeddingCache(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), l1_mb=0.1, l2_mb=0.1, batch=32)
cache.update(np.arange(int(sys.argv[2])), np.full((int(sys.argv[2]), int(sys.argv[3])), 7, np.float32))
cache.close()
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--second-writer", action="store_true")
    parser.add_argument("--truncate-at", type=int, default=0, help="step; 0: never")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        exercise(Path(folder) / "offsets.f32", options)
    print("suspect finished", flush=True)


def exercise(path: Path, options: argparse.Namespace) -> None:
    random = np.random.default_rng(0)
    expected = np.zeros((ROWS, DIM), np.float32)
    cache = EmbeddingCache(path, ROWS, DIM, l1_mb=0.3, l2_mb=0.2, batch=32, memory_limit=1e-6)
    before = (cache.l1.capacity, cache.l2.capacity)
    for step in range(1, options.steps + 1):
        rows = random.choice(ROWS, 64, replace=False)
        compare(step, rows, cache.get(rows), expected[rows])
        expected[rows] = random.standard_normal((64, DIM), dtype=np.float32)
        cache.update(rows, expected[rows])
        if step % 10 == 0:
            cache.adapt()
            cache.sync()
        if step == 15 and options.second_writer:
            subprocess.run([sys.executable, "-c", SECOND_WRITER, str(path), str(ROWS), str(DIM)], check=True)
        if step == options.truncate_at:
            os.truncate(path, 4096)
        print(f"step {step} L1 {cache.l1.capacity} L2 {cache.l2.capacity} vectors", flush=True)
    if not (cache.l1.capacity < before[0] and cache.l2.capacity < before[1]):
        sys.exit(f"error: the tiers did not shrink from {before}: {cache.summary()}")
    cache.close()
    compare(options.steps, np.arange(ROWS), np.fromfile(path, np.float32).reshape(ROWS, DIM), expected)


def compare(step: int, rows: np.ndarray[tuple[int, ...], np.dtype[np.int64]], found: object, expected: object) -> None:
    wrong = rows[(np.asarray(found) != np.asarray(expected)).any(axis=1)]
    if len(wrong):
        sys.exit(
            f"error: at step {step} {len(wrong)} of {len(rows)} vectors are not what was written last, that of row {wrong[0]} among them"
        )


if __name__ == "__main__":
    main()
