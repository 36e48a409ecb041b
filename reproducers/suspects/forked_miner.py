"""The miner in a process of its own, after the parent has used FAISS: does it ever answer?

--hold-lock plants the fault for certain, on every machine that can fork: a thread of the parent holds a lock at the moment of
the fork, the miner inherits the lock as held, and the thread that would give it back does not exist over there.
"""

from __future__ import annotations

import argparse
import multiprocessing
import queue
import sys
import threading
from typing import Any

import faiss
import numpy as np

COULD_NOT_RUN = 77  # the last line of output says why
lock = threading.Lock()


def search(seed: int) -> float:
    """Best inner product of 64 random queries in a random bank."""
    random = np.random.default_rng(seed)
    bank = random.standard_normal((4000, 64), dtype=np.float32)
    index = faiss.IndexFlatIP(64)
    index.add(bank)
    scores, _ = index.search(bank[:64], 8)
    return float(scores.max())


def mine(rounds: int, answers: Any) -> None:
    for seed in range(rounds):
        with lock:
            answers.put(search(seed))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--start", default="fork", choices=["fork", "spawn", "forkserver"])
    parser.add_argument("--hold-lock", action="store_true")
    options = parser.parse_args()
    if options.start not in multiprocessing.get_all_start_methods():
        print(f"this platform has no start method {options.start}")
        sys.exit(COULD_NOT_RUN)
    print(f"step 1 the parent's own search {search(0):.3f}", flush=True)
    context = multiprocessing.get_context(options.start)
    answers: Any = context.Queue()
    miner = context.Process(target=mine, args=(options.steps, answers), name="miner", daemon=True)
    if options.hold_lock:
        start_while_another_thread_holds_the_lock(miner)
    else:
        miner.start()
    for step in range(2, options.steps + 2):
        print(f"step {step} the miner's answer {next_answer(answers, miner):.3f}", flush=True)
    miner.join()
    print("suspect finished", flush=True)


def start_while_another_thread_holds_the_lock(miner: Any) -> None:
    held, started = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            started.wait()

    threading.Thread(target=hold).start()
    held.wait()
    miner.start()
    started.set()


def next_answer(answers: Any, miner: Any) -> float:
    """Waits for as long as the miner lives, as the trainers of this world do."""
    while True:
        try:
            return float(answers.get(timeout=1.0))
        except queue.Empty:
            if not miner.is_alive():
                sys.exit(f"the miner ended with exit code {miner.exitcode} before it answered")


if __name__ == "__main__":
    main()
