"""A launcher with ranks: one dies in native code, the launcher ends the others and exits with 1 (reports: "exitcode: -11")."""

import ctypes
import os
import subprocess
import sys
import time

import job
import numpy as np

A = job.options(world=2, negatives=9)
SOURCE = """
double pick(const double *x, const long *at, int n) { double s = 0; for (int i = 0; i < n; i++) s += x[at[i] * 512]; return s; }
"""


def rank(number_of_rank: int) -> None:
    library = ctypes.CDLL(job.native(SOURCE))
    library.pick.restype, library.pick.argtypes = ctypes.c_double, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    random = np.random.default_rng(A.seed + number_of_rank)
    for number in range(A.steps):
        x = random.standard_normal(512 * 8)
        at = np.arange(8, dtype="i8")
        if number_of_rank == A.world - 1 and number == 14 and A.negatives > 8 and A.world > 1:
            at[-1] = 1 << 40  # a neighbour that the index did not have
        print(f"[rank {number_of_rank}] ", end="")
        job.step(number, loss=library.pick(x.ctypes.data, at.ctypes.data, 8))
        time.sleep(0.01)


if "RANK" in os.environ:
    rank(int(os.environ["RANK"]))
    sys.exit(0)
job.native(SOURCE)
ranks = [
    subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, "RANK": str(n), "WORLD_SIZE": str(A.world)}) for n in range(A.world)
]
while any(child.poll() is None for child in ranks):
    failed = [child for child in ranks if child.poll()]
    if failed:
        [child.terminate() for child in ranks if child.poll() is None]
        print(f"a rank failed (exitcode: {failed[0].returncode}), see its log", file=sys.stderr)
        sys.exit(1)
    time.sleep(0.05)
job.finished()
