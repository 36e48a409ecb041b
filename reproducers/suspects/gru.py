"""The query tower alone: a bidirectional GRU 768 -> 512, Linear 1024 -> 768, L2 norm; random input, AdamW, no data, no FAISS.

With --accum 1 it is the framework's GRU that is on the stand, with more it is gradient accumulation.  On a device with a
caching allocator --empty-cache gives the cache back after each micro-batch, which is what people try first.
"""

from __future__ import annotations

import argparse
import sys

import torch

COULD_NOT_RUN = 77  # the last line of output says why


class Tower(torch.nn.Module):
    """(batch, sequence, 768) -> (batch, 768), rows of length one; 4,725,504 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = torch.nn.GRU(768, 512, batch_first=True, bidirectional=True)
        self.project = torch.nn.Linear(1024, 768)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        _, last = self.gru(inputs)
        return torch.nn.functional.normalize(self.project(torch.cat([last[0], last[1]], dim=1)), dim=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=100, help="micro-batches")
    parser.add_argument("--accum", type=int, default=1)
    parser.add_argument("--bs", type=int, default=32)
    parser.add_argument("--sequence", type=int, default=1)
    parser.add_argument("--empty-cache", action="store_true")
    options = parser.parse_args()
    if (options.device == "cuda" and not torch.cuda.is_available()) or (options.device == "mps" and not torch.backends.mps.is_available()):
        print(f"torch {torch.__version__} sees no {options.device} device here")
        sys.exit(COULD_NOT_RUN)
    train(options)
    print("suspect finished", flush=True)


def train(options: argparse.Namespace) -> None:
    torch.manual_seed(0)
    tower = Tower().to(options.device)
    optimiser = torch.optim.AdamW(tower.parameters(), lr=5e-5, weight_decay=0.01, fused=options.device != "mps")
    for step in range(1, options.steps + 1):
        queries = torch.randn(options.bs, options.sequence, 768, device=options.device)
        answers = torch.nn.functional.normalize(torch.randn(options.bs, 768, device=options.device), dim=1)
        scores = tower(queries) @ answers.T / 0.05
        loss = torch.nn.functional.cross_entropy(scores, torch.arange(options.bs, device=options.device)) / options.accum
        loss.backward()
        if step % options.accum == 0:
            optimiser.step()
            optimiser.zero_grad(set_to_none=False)  # the same memory again: page faults cost more than zeroing
        if options.empty_cache:
            {"cuda": torch.cuda.empty_cache, "mps": torch.mps.empty_cache}.get(options.device, lambda: None)()
        print(f"step {step} loss {loss.item() * options.accum:.4f}", flush=True)


if __name__ == "__main__":
    main()
