"""Two threads push into one native queue that has no lock (reports: rare crashes once prefetching was moved to a thread)."""

import ctypes
import threading

import job
import numpy as np

A = job.options(prefetch="thread")
SOURCE = """
#include <stdlib.h>
#include <string.h>
static double *data; static volatile long size, room;
void push(const double *x, int n) {
    for (int i = 0; i < n; i++) {
        if (size + 1 > room) { room = room ? room * 2 : 8; data = realloc(data, room * sizeof(double)); }
        data[size] = x[i]; size = size + 1;
        if (size > 20000) { free(data); data = 0; size = room = 0; }
    }
}
"""
library = ctypes.CDLL(job.native(SOURCE))
library.push.argtypes = [ctypes.c_void_p, ctypes.c_int]
x = np.ascontiguousarray(np.random.default_rng(A.seed).standard_normal(200_000))
ends = threading.Event()


def fill() -> None:
    while not ends.is_set():
        library.push(x.ctypes.data, len(x))


other = threading.Thread(target=fill, daemon=True)
if A.prefetch == "thread":
    other.start()
for number in range(A.steps):
    for _ in range(20):
        library.push(x.ctypes.data, len(x))
    job.step(number, loss=1.0 / (number + 1))
ends.set()
job.finished()
