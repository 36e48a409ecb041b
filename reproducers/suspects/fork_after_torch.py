"""A forked process that computes with torch after its parent has: does it ever answer?"""

from __future__ import annotations

import argparse

import torch

from reproducers.suspects.answering import ask


def train(seed: int) -> float:
    """The gradient's norm of one step, large enough that torch divides it among its threads."""
    torch.manual_seed(seed)
    weight = torch.randn(512, 512, requires_grad=True)
    (torch.randn(512, 512) @ weight).tanh().sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    return float(weight.grad.norm())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--start", default="fork", choices=["fork", "spawn", "forkserver"])
    parser.add_argument("--hold-lock", action="store_true", help="plant a lock that is held at the moment of the fork")
    options = parser.parse_args()
    print(f"step 1 the parent's own work {train(0):.3f}", flush=True)
    ask(train, start=options.start, rounds=options.steps, hold_lock=options.hold_lock)
    print("suspect finished", flush=True)


if __name__ == "__main__":
    main()
