"""A stand-in accelerator whose command buffer overruns when much is accumulated before a flush (reports: crashes on one backend only)."""

import ctypes

import job
import numpy as np

A = job.options(device="npu", accum=16)
SOURCE = """
#include <stdio.h>
#include <stdlib.h>
static double buffer[512]; static long used;
void enqueue(const double *x, int n) { for (int i = 0; i < n; i++) *(volatile double *)(buffer + used++) = x[i]; }
double flush(void) { double s = 0; for (long i = 0; i < used; i++) s += buffer[i]; used = 0; return s; }
"""
library = ctypes.CDLL(job.native(SOURCE)) if A.device == "npu" else None
if library:
    library.flush.restype = ctypes.c_double
    library.enqueue.argtypes = [ctypes.c_void_p, ctypes.c_int]
random = np.random.default_rng(A.seed)
total, since = 0.0, 0
for number in range(A.steps * 8):
    x = np.ascontiguousarray(random.standard_normal(A.bs * 64))
    if library:
        library.enqueue(x.ctypes.data, len(x) if A.accum >= 8 else 8)
    since += 1
    if since == A.accum:
        total, since = (library.flush() if library else float(x.sum())), 0
    if number % 8 == 7:
        job.step(number // 8, loss=total / A.bs)
job.finished()
