"""A library frees at exit what the program has freed already (reports: a crash after the last line of the log)."""

import ctypes

import job
import numpy as np

A = job.options(cleanup="library")
SOURCE = """
#include <stdlib.h>
static void *pool;
void open_pool(int n) { pool = malloc(n); }
void close_pool(void) { free(pool); }
static void __attribute__((destructor)) at_exit(void) { free(pool); }
void detach(void) { pool = 0; }
"""
library = ctypes.CDLL(job.native(SOURCE))
library.open_pool(4096 * 16)
random = np.random.default_rng(A.seed)
for number in range(A.steps):
    job.step(number, loss=float((random.standard_normal(A.bs) ** 2).mean()))
library.close_pool()
if A.cleanup == "program":
    library.detach()
job.finished()
