"""A wheel built for a processor with a matrix unit, on one without (reports: "Illegal instruction (core dumped)" after an upgrade)."""

import ctypes

import job
import numpy as np

A = job.options(kernels="tuned")
SOURCE = """
double dot_plain(const float *a, const float *b, int n) { double s = 0; for (int i = 0; i < n; i++) s += a[i] * b[i]; return s; }
double dot_tuned(const float *a, const float *b, int n) {
    __asm__ volatile(".byte 0xc4, 0xe2, 0x78, 0x49, 0xc0");  /* tilerelease: processors with AMX only */
    return dot_plain(a, b, n);
}
"""
library = ctypes.CDLL(job.native(SOURCE))
dot = getattr(library, f"dot_{A.kernels}")
dot.restype, dot.argtypes = ctypes.c_double, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
random = np.random.default_rng(A.seed)
for number in range(A.steps):
    x = random.standard_normal(A.bs * 64).astype("f4")
    loss = float((x**2).mean()) if number < 3 else dot(x.ctypes.data, x.ctypes.data, len(x)) / len(x)
    job.step(number, loss=loss)
job.finished()
