"""A heartbeat ends the process when a step takes too long, and a validation pass does (reports: "Timeout (0:00:..)!" of faulthandler)."""

import faulthandler
import time

import job
import numpy as np

A = job.options(heartbeat=1.0, validate=1)
random = np.random.default_rng(A.seed)
for number in range(A.steps):
    if A.heartbeat:
        faulthandler.dump_traceback_later(A.heartbeat, exit=True)
    job.step(number, loss=float((random.standard_normal(A.bs) ** 2).mean()))
    time.sleep(0.02)
    if A.validate and number == 20:
        time.sleep(2.5)
faulthandler.cancel_dump_traceback_later()
job.finished()
