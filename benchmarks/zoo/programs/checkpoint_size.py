"""A limit on the size of files is met by a growing checkpoint (reports: "File size limit exceeded")."""

import os
import resource

import job
import numpy as np

A = job.options(history="all", limit_mb=8)
if A.limit_mb:
    resource.setrlimit(resource.RLIMIT_FSIZE, (A.limit_mb << 20, A.limit_mb << 20))
import signal

signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it; native writers do not
path = f"/tmp/checkpoint-size-{os.getpid()}.bin"
kept: list[np.ndarray] = []
try:
    for number in range(A.steps):
        kept = kept + [np.full(A.bs * 2048, number, "f8")] if A.history == "all" else [np.full(A.bs * 2048, number, "f8")]
        with open(path, "wb") as sink:
            [sink.write(part.tobytes()) for part in kept]
        job.step(number, loss=1.0 / (number + 1))
finally:
    if os.path.exists(path):
        os.unlink(path)
job.finished()
