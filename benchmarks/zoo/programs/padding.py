"""Native code pads every row to a multiple of eight and writes behind its buffer (reports: "corrupted size vs. prev_size")."""

import ctypes

import job
import numpy as np

A = job.options(seq=30, pad=1)
SOURCE = """
#include <stdlib.h>
#include <string.h>
double pad_rows(const double *x, int rows, int length, int pad) {
    int to = pad ? (length + 7) / 8 * 8 : length;
    double s = 0;
    double *out = malloc(sizeof(double) * rows * length);
    for (int r = 0; r < rows; r++) { memcpy(out, x + r * length, sizeof(double) * length); s += out[0]; }
    for (int i = 0; i < rows * to; i++) *(volatile double *)(out + i) = 0.0;
    free(out);
    return s;
}
"""
library = ctypes.CDLL(job.native(SOURCE))
library.pad_rows.restype, library.pad_rows.argtypes = ctypes.c_double, [ctypes.c_void_p] + [ctypes.c_int] * 3
random = np.random.default_rng(A.seed)
for number in range(A.steps):
    x = np.ascontiguousarray(random.standard_normal((A.bs, A.seq)))
    job.step(number, loss=library.pad_rows(x.ctypes.data, A.bs, A.seq, A.pad) / A.bs)
job.finished()
