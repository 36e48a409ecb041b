"""A bank of vectors is mapped by the trainer while the indexer writes a new one (reports: bus errors of np.memmap readers)."""

import os
import subprocess
import sys

import job
import numpy as np

A = job.options(refresh="in_place", rows=40000)
path = f"/tmp/rewritten-bank-{os.getpid()}.f4"
np.zeros((A.rows, 64), "f4").tofile(path)
bank = np.memmap(path, dtype="f4", mode="r", shape=(A.rows, 64))
random = np.random.default_rng(A.seed)
WRITER = {
    "in_place": "import sys, time; open(sys.argv[1], 'wb').close(); time.sleep(3)",
    "renamed": "import os, sys, numpy as n; new = sys.argv[1] + '.new'; "
    "n.zeros((40000, 64), 'f4').tofile(new); os.replace(new, sys.argv[1])",
}
writer = None
try:
    for number in range(A.steps):
        if number == 12 and A.refresh != "off":
            writer = subprocess.Popen([sys.executable, "-c", WRITER[A.refresh], path])
            while A.refresh == "in_place" and os.path.getsize(path):
                pass
        rows = random.integers(0, A.rows, A.bs)
        job.step(number, loss=float(bank[rows].mean()))
finally:
    if writer:
        writer.wait()
    os.unlink(path)
job.finished()
