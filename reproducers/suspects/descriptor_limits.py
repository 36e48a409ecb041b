"""Batches of a DataLoader that are kept: with torch's usual way of sharing, each tensor from a worker holds an open descriptor.

Validation does so: it collects what it has computed of every batch.  Each batch here has two small tensors.
"""

from __future__ import annotations

import argparse
import os

import torch
from torch.utils.data import DataLoader, Dataset


class Pairs(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.full((4,), float(index)), torch.tensor(index)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--sharing", default="", help="of torch.multiprocessing; absent: torch's own choice")
    options = parser.parse_args()
    if options.sharing:
        torch.multiprocessing.set_sharing_strategy(options.sharing)  # type: ignore[no-untyped-call]
    kept = []
    for step, batch in enumerate(DataLoader(Pairs(4 * options.batches), batch_size=4, num_workers=options.workers), start=1):
        kept.append(batch)
        if step % 10 == 0 or step == options.batches:
            print(f"step {step} descriptors={len(os.listdir('/proc/self/fd'))}", flush=True)  # noqa: PTH208
    print("suspect finished", flush=True)


if __name__ == "__main__":
    main()
