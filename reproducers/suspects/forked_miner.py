"""The miner in a process of its own, after the parent has used FAISS: does it ever answer?"""

from __future__ import annotations

import faiss
import numpy as np

from reproducers.suspects.answering import main


def search(seed: int) -> float:
    """Best inner product of 64 random queries in a random bank."""
    random = np.random.default_rng(seed)
    bank = random.standard_normal((4000, 64), dtype=np.float32)
    index = faiss.IndexFlatIP(64)
    index.add(bank)
    scores, _ = index.search(bank[:64], 8)
    return float(scores.max())


if __name__ == "__main__":
    main(search, "search")
