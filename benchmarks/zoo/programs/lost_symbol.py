"""An extension was built against a newer library than the one that is loaded (reports: "undefined symbol")."""

import ctypes

import job
import numpy as np

A = job.options(build="new")
OLD = "double norm(const double *x, int n) { double s = 0; for (int i = 0; i < n; i++) s += x[i] * x[i]; return s; }"
NEW = "double norm_v2(const double *, int);\ndouble norm(const double *x, int n) { return norm_v2(x, n); }"
random = np.random.default_rng(A.seed)
for number in range(A.steps):
    x = random.standard_normal(A.bs)
    loss = float((x**2).sum())
    if number >= 5:
        library = ctypes.CDLL(job.native(NEW if A.build == "new" else OLD), mode=2)
        library.norm.restype, library.norm.argtypes = ctypes.c_double, [ctypes.c_void_p, ctypes.c_int]
        loss = library.norm(x.ctypes.data, len(x))
    job.step(number, loss=loss / A.bs)
job.finished()
