"""A native solver iterates until an error that it cannot reach (reports: one core at 100 % and no progress)."""

import ctypes

import job

A = job.options(tolerance=0.0)
SOURCE = """
double root(double x, double tolerance) {
    double r = x;
    do r = 0.5 * (r + x / r); while (!(r * r - x <= tolerance && x - r * r <= tolerance));
    return r;
}
"""
library = ctypes.CDLL(job.native(SOURCE))
library.root.restype, library.root.argtypes = ctypes.c_double, [ctypes.c_double] * 2
for number in range(A.steps):
    value = 4.0 if number < 7 else 2.0
    job.step(number, loss=library.root(value, A.tolerance))
job.finished()
