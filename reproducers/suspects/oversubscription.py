"""Workers that each compute with as many threads as there are processors, against the same work with one thread each.

Threads of OpenMP that wait for each other spin for a while before they sleep.  With more threads than processors those that spin keep
the ones that they wait for from running, and processor time goes into waiting.  Only processor time is compared: the same work takes
as much of it on a busy machine as on an idle one, unless it is spent on waiting.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time

import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=0, help="of each worker; 0: one for each processor")
    parser.add_argument("--regions", type=int, default=100, help="parallel regions in a round")
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    threads = options.threads or len(os.sched_getaffinity(0))
    alone = sum(used_by(options.workers, 1, options.regions))
    together = 0.0
    for step in range(1, options.rounds + 1):
        together += sum(used_by(options.workers, threads, options.regions))
        print(f"step {step} threads={options.workers * threads} times={together / step / alone:.2f}", flush=True)
    print("suspect finished", flush=True)


def used_by(workers: int, threads: int, regions: int) -> list[float]:
    """Seconds of processor time that each worker spends on its work.  Forked: this process has torch, and no threads of it."""
    context = multiprocessing.get_context("fork")
    with context.Pool(workers) as pool:
        return pool.starmap(work, [(threads, regions)] * workers, chunksize=1)


def work(threads: int, regions: int) -> float:
    torch.set_num_threads(threads)
    rows = torch.ones(1 << 18)
    torch.sin(rows)  # starts the threads
    before = time.process_time()
    for _ in range(regions):
        torch.sin(rows)
    return time.process_time() - before


if __name__ == "__main__":
    main()
