"""FAISS and torch by turns in one process, with the threads that both take by themselves: GRU, backward, search.

This is also the program for two OpenMP runtimes: numpy, torch and FAISS each compute, so each initialises its own.  An
override that the environment may bring (KMP_DUPLICATE_LIB_OK) is taken away first, because it would hide the answer.
"""

from __future__ import annotations

import argparse
import os

os.environ.pop("KMP_DUPLICATE_LIB_OK", None)

import faiss
import numpy as np
import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    torch.manual_seed(0)
    gru = torch.nn.GRU(768, 384, batch_first=True, bidirectional=True)
    bank = np.random.default_rng(0).standard_normal((4000, 768), dtype=np.float32)
    index = faiss.IndexFlatIP(768)
    index.add(bank)
    for step in range(1, options.steps + 1):
        output, _ = gru(torch.randn(32, 1, 768))
        output.square().mean().backward()
        print(f"step {step} trained", flush=True)
        scores, _ = index.search(output[:, 0].detach().numpy(), 128)
        blas = float((bank[:64] @ bank[:64].T).trace())
        print(f"step {step} mined {scores.max():.3f} numpy {blas:.0f}", flush=True)
    print("suspect finished", flush=True)


if __name__ == "__main__":
    main()
