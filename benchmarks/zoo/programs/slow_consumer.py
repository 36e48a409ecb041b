"""A bounded queue whose reader has ended (reports: training stands still at the same step every time)."""

import queue
import threading

import job
import numpy as np

A = job.options(prefetch=4, reader="stops")
box: "queue.Queue[np.ndarray]" = queue.Queue(A.prefetch)


def read() -> None:
    for number in range(10**9):
        box.get()
        if A.reader == "stops" and number == 9:
            return


threading.Thread(target=read, daemon=True).start()
random = np.random.default_rng(A.seed)
for number in range(A.steps):
    x = random.standard_normal(A.bs)
    if A.prefetch:
        box.put(x)
    job.step(number, loss=float((x**2).mean()))
job.finished()
