"""Two independent faults: a double free on one path, an index without a check on another (reports: two crashes in one job)."""

import ctypes

import job
import numpy as np

A = job.options(augment=1, mining=1)
SOURCE = """
#include <stdlib.h>
void augment(int n) { char *volatile p = malloc(64 * n); free(p); if (n == 32) free(p); }
double gather(const double *x, long at) { return x[at]; }
"""
library = ctypes.CDLL(job.native(SOURCE))
library.gather.restype, library.gather.argtypes = ctypes.c_double, [ctypes.c_void_p, ctypes.c_long]
random = np.random.default_rng(A.seed)
for number in range(A.steps):
    x = random.standard_normal(A.bs)
    if A.augment and number == 30:
        library.augment(32)
    at = 1 << 36 if A.mining and number == 18 else 3
    job.step(number, loss=library.gather(x.ctypes.data, at))
job.finished()
