"""The query tower alone: a bidirectional GRU 768 -> 512, Linear 1024 -> 768, L2 norm; random input, AdamW, no data, no FAISS.

The trainer's AdamW: making one of torch's class imports 800 more modules, which takes as long as everything else here.

With --accum 1 it is the framework's recurrent cell that is on the stand, with more it is gradient accumulation, with --sequence
100 it is the length of the queries.  On a device with a
caching allocator --empty-cache gives the cache back after each micro-batch, which is what people try first.
"""

from __future__ import annotations

import argparse

import torch

from reproducers.suspects import give_up
from trainer.optim import AdamW


class Tower(torch.nn.Module):
    """(batch, sequence, 768) -> (batch, 768), rows of length one; 4,725,504 parameters with a GRU."""

    def __init__(self, cell: str) -> None:
        super().__init__()
        self.recurrent = {"gru": torch.nn.GRU, "lstm": torch.nn.LSTM}[cell](768, 512, batch_first=True, bidirectional=True)
        self.project = torch.nn.Linear(1024, 768)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        _, state = self.recurrent(inputs)
        last = state[0] if isinstance(state, tuple) else state  # an LSTM has a cell state as well
        return torch.nn.functional.normalize(self.project(torch.cat([last[0], last[1]], dim=1)), dim=1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--cell", default="gru", choices=["gru", "lstm"])
    parser.add_argument("--steps", type=int, default=100, help="micro-batches")
    parser.add_argument("--accum", type=int, default=1)
    parser.add_argument("--bs", type=int, default=32)
    parser.add_argument("--sequence", type=int, default=1)
    parser.add_argument("--empty-cache", action="store_true")
    options = parser.parse_args()
    if (options.device == "cuda" and not torch.cuda.is_available()) or (options.device == "mps" and not torch.backends.mps.is_available()):
        give_up(f"torch {torch.__version__} sees no {options.device} device here")
    train(options)
    print("suspect finished", flush=True)


def train(options: argparse.Namespace) -> None:
    device, accum = torch.device(options.device), options.accum
    torch.manual_seed(0)
    tower = Tower(options.cell).to(device)
    optimiser = AdamW(list(tower.parameters()), weight_decay=0.01)
    for step in range(1, options.steps + 1):
        queries = torch.randn(options.bs, options.sequence, 768, device=device)
        answers = torch.nn.functional.normalize(torch.randn(options.bs, 768, device=device), dim=1)
        scores = tower(queries) @ answers.T / 0.05
        loss = torch.nn.functional.cross_entropy(scores, torch.arange(options.bs, device=device)) / accum
        loss.backward()
        if step % accum == 0:
            optimiser.step(lr=5e-5)
        if options.empty_cache:
            getattr(torch.get_device_module(device), "empty_cache", lambda: None)()  # a CPU has no such cache
        print(f"step {step} loss {loss.item() * accum:.4f}", flush=True)


if __name__ == "__main__":
    main()
