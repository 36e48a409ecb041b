"""Accumulation with the trainer's tower and loss: is anything of a micro-batch's graph kept once it has been used?

--keep-graphs plants what a list of losses does when somebody needs the graph twice: backward with retain_graph, and no item().
"""

from __future__ import annotations

import argparse
import os
import time

import torch

from trainer.loss import info_nce
from trainer.model import QueryTower
from trainer.optim import AdamW

PAUSE_S = 0.04  # in each step: on a quick machine too it lasts long enough for its memory to be sampled


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=64)
    parser.add_argument("--accum", type=int, default=16)
    parser.add_argument("--keep-graphs", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    tower = QueryTower(dim=256, hidden=64)
    optimiser = AdamW(list(tower.parameters()), weight_decay=0.01)
    losses: list[float | torch.Tensor] = []
    for step in range(1, options.steps + 1):
        documents = torch.nn.functional.normalize(torch.randn(64, 256), dim=1)
        queries = tower(documents[:, None] + 0.1 * torch.randn(64, 12, 256))
        loss = info_nce(queries, documents, [], tau=0.05, margin=0.03)
        (loss / options.accum).backward(retain_graph=options.keep_graphs)
        if step % options.accum == 0:
            optimiser.step(lr=5e-5)
        losses.append(loss if options.keep_graphs else loss.item())
        time.sleep(PAUSE_S)
        print(f"step {step} mean loss {float(sum(losses)) / step:.4f}", flush=True)
    print("suspect finished", flush=True)
    os._exit(0)  # memory that is given back piece by piece as the interpreter ends looks like a fall on a busy machine


if __name__ == "__main__":
    main()
