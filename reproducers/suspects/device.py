"""One device: does a training step of the trainer's tower on it give what a CPU gives, and do tensors survive the way there and back?

--flip-bit plants what a bad memory cell does: one bit of one weight on the device.
"""

from __future__ import annotations

import argparse
import copy
import sys

import torch

from reproducers.suspects import give_up
from trainer.loss import info_nce
from trainer.model import QueryTower

TOLERANCE = 2e-3  # of a gradient's norm: TF32 and other orders of summation stay below it


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("device")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--flip-bit", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)
    if not torch.get_device_module(device).is_available():
        give_up(f"torch {torch.__version__} sees no {options.device} device here")
    torch.manual_seed(0)
    reference = QueryTower(dim=256, hidden=64)
    there = copy.deepcopy(reference).to(device)
    if options.flip_bit:
        with torch.no_grad():
            bits = there.project.weight.view(torch.int32)
            bits[3, 5] ^= 1 << 30  # the highest bit of the exponent
    for step in range(1, options.steps + 1):
        x = torch.randn(16, 8, 256)
        if not torch.equal(x, x.to(device).cpu()):
            sys.exit(f"error: at step {step} a tensor did not come back from {device} as it was sent")
        here, remote = gradients(reference, x), gradients(there, x.to(device))
        apart = float((here - remote).norm() / here.norm())
        if not apart < TOLERANCE:
            sys.exit(f"error: at step {step} the gradients of cpu and {device} are {apart:.2g} of their norm apart")
        print(f"step {step} gradients are {apart:.2g} of their norm apart", flush=True)
    print("suspect finished", flush=True)


def gradients(tower: QueryTower, x: torch.Tensor) -> torch.Tensor:
    """All of them in one row, on the CPU."""
    tower.zero_grad()
    documents = torch.nn.functional.normalize(x.mean(dim=1), dim=1)
    info_nce(tower(x), documents, [], tau=0.05, margin=0.03).backward()  # type: ignore[no-untyped-call]
    return torch.cat([parameter.grad.flatten().cpu() for parameter in tower.parameters() if parameter.grad is not None])


if __name__ == "__main__":
    main()
