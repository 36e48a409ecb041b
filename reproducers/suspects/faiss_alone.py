"""FAISS alone: inner-product searches through an index and on plain arrays; torch is never imported."""

from __future__ import annotations

import argparse

import faiss
import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    bank = random.standard_normal((4000, 768), dtype=np.float32)
    index = faiss.IndexFlatIP(768)
    index.add(bank)
    for step in range(1, options.steps + 1):
        queries = random.standard_normal((64, 768), dtype=np.float32)
        _, by_index = index.search(queries, 128)
        _, by_array = faiss.knn(queries, bank, 128, metric=faiss.METRIC_INNER_PRODUCT)
        same = float((by_index == by_array).mean())
        print(f"step {step} agree {same:.3f}", flush=True)
    print("suspect finished", flush=True)


if __name__ == "__main__":
    main()
