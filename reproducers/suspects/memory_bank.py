"""The trainer's ring of recent documents, in the trainer's own loss: does it keep its size, and nothing of the graph?

--unbounded keeps every document instead, --attached keeps what the tower made with the graph behind it: what people write by hand.
"""

from __future__ import annotations

import argparse
import os
import time

import torch

from trainer.loss import FifoBank, info_nce
from trainer.model import QueryTower

PAUSE_S = 0.02  # in each step: on a quick machine too it lasts long enough for its memory to be sampled


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--unbounded", action="store_true")
    parser.add_argument("--attached", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    tower = QueryTower(hidden=32)
    bank = FifoBank(512, 768, torch.device("cpu"))
    kept = []
    for step in range(1, options.steps + 1):
        rows = torch.arange(step * 128, (step + 1) * 128)
        documents = torch.nn.functional.normalize(torch.randn(128, 768), dim=1)
        queries = tower(documents[:, None] + 0.1 * torch.randn(128, 1, 768))
        loss = info_nce(queries, documents, [bank.cosines(queries, rows)], tau=0.05, margin=0.03)
        loss.backward()  # type: ignore[no-untyped-call]
        bank.push(queries if options.attached else documents, rows)
        if options.unbounded:
            kept.append(documents)
        tower.zero_grad()
        time.sleep(PAUSE_S)
        print(f"step {step} loss {loss.item():.4f}", flush=True)
    print("suspect finished", flush=True)
    os._exit(0)  # memory that is given back piece by piece as the interpreter ends looks like a fall on a busy machine


if __name__ == "__main__":
    main()
