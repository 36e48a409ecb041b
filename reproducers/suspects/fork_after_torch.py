"""A forked process that computes with torch after its parent has: does it ever answer?"""

from __future__ import annotations

import torch

from reproducers.suspects.answering import main


def train(seed: int) -> float:
    """The gradient's norm of one step, large enough that torch divides it among its threads."""
    torch.manual_seed(seed)
    weight = torch.randn(512, 512, requires_grad=True)
    (torch.randn(512, 512) @ weight).tanh().sum().backward()  # type: ignore[no-untyped-call]
    assert weight.grad is not None
    return float(weight.grad.norm())


if __name__ == "__main__":
    main(train, "work")
