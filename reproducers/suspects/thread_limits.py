"""The threads of a training job: torch and FAISS start theirs, and as many again are started for each worker that would.

Threads are counted as the kernel counts them.  Those of the workers are started in this process: a limit on the user or on the
container counts them alike, and idle threads cost next to nothing.
"""

from __future__ import annotations

import argparse
import os
import threading

import faiss
import numpy as np
import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=8)
    options = parser.parse_args()
    compute()
    own = len(os.listdir("/proc/self/task"))  # noqa: PTH208
    print(f"step 1 threads={own} of torch and FAISS in one process", flush=True)
    done = threading.Event()
    for step in range(2, options.workers + 2):
        for _ in range(own):
            threading.Thread(target=done.wait, daemon=True).start()
        print(f"step {step} threads={len(os.listdir('/proc/self/task'))}", flush=True)  # noqa: PTH208
    done.set()
    print("suspect finished", flush=True)


def compute() -> None:
    """Both libraries start their threads at their first work that is large enough."""
    rows = torch.randn(2000, 256)
    (rows @ rows.T).sum().item()
    vectors = np.ascontiguousarray(rows.numpy())
    faiss.knn(vectors, vectors, 4)


if __name__ == "__main__":
    main()
