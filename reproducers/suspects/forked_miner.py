"""The miner in a process of its own, after the parent has used FAISS: does it ever answer?"""

from __future__ import annotations

import argparse

import faiss
import numpy as np

from reproducers.suspects.answering import ask


def search(seed: int) -> float:
    """Best inner product of 64 random queries in a random bank."""
    random = np.random.default_rng(seed)
    bank = random.standard_normal((4000, 64), dtype=np.float32)
    index = faiss.IndexFlatIP(64)
    index.add(bank)
    scores, _ = index.search(bank[:64], 8)
    return float(scores.max())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--start", default="fork", choices=["fork", "spawn", "forkserver"])
    parser.add_argument("--hold-lock", action="store_true", help="plant a lock that is held at the moment of the fork")
    options = parser.parse_args()
    print(f"step 1 the parent's own search {search(0):.3f}", flush=True)
    ask(search, start=options.start, rounds=options.steps, hold_lock=options.hold_lock)
    print("suspect finished", flush=True)


if __name__ == "__main__":
    main()
