"""Torch and FAISS in the order that is asked for: the first is imported and computes before the second is, then both by turns.

numpy and scikit-learn may come first of all.  Each of them computes too, so that each has started the threads that it brings.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

import numpy as np

os.environ.pop("KMP_DUPLICATE_LIB_OK", None)  # an override that the environment may bring would hide the answer
RANDOM = np.random.default_rng(0)


def with_numpy() -> Callable[[], float]:
    rows = RANDOM.standard_normal((600, 768), dtype=np.float32)
    return lambda: float((rows @ rows.T).trace())


def with_sklearn() -> Callable[[], float]:
    from sklearn.cluster import KMeans  # type: ignore[import-not-found, unused-ignore]

    os.environ.pop("KMP_DUPLICATE_LIB_OK", None)  # what it imports sets it, which would hide the answer too
    rows = RANDOM.standard_normal((500, 16), dtype=np.float32)
    return lambda: float(KMeans(4, n_init=1, max_iter=5).fit(rows).inertia_)


def with_torch() -> Callable[[], float]:
    import torch

    gru = torch.nn.GRU(256, 128, batch_first=True, bidirectional=True)

    def train() -> float:
        loss = gru(torch.randn(32, 1, 256))[0].square().mean()
        loss.backward()
        return float(loss)

    return train


def with_faiss() -> Callable[[], float]:
    import faiss

    bank = RANDOM.standard_normal((4000, 256), dtype=np.float32)
    index = faiss.IndexFlatIP(256)
    index.add(bank)
    return lambda: float(index.search(bank[:64], 16)[0].max())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("order", nargs="+", choices=["numpy", "sklearn", "torch", "faiss"])
    options = parser.parse_args()
    step, works = 0, {}
    for name in options.order:
        works[name] = {"numpy": with_numpy, "sklearn": with_sklearn, "torch": with_torch, "faiss": with_faiss}[name]()
        print(f"step {(step := step + 1)} {name} {works[name]():.3f}", flush=True)
    for _ in range(5):
        for name, work in works.items():
            print(f"step {(step := step + 1)} {name} {work():.3f}", flush=True)
    print("suspect finished", flush=True)


if __name__ == "__main__":
    main()
