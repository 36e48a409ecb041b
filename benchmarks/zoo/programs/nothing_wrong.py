"""A control: nothing is wrong."""

import job
import numpy as np

A = job.options()
random = np.random.default_rng(A.seed)
for number in range(A.steps):
    job.step(number, loss=float((random.standard_normal(A.bs) ** 2).mean()))
job.finished()
