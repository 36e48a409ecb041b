from __future__ import annotations

import pytest
import torch

from trainer.optim import AdamW, cosine_lr


def test_the_update_is_the_one_of_torch() -> None:
    ours, theirs = ([torch.nn.Parameter(torch.full((3, 2), 0.5)), torch.nn.Parameter(torch.ones(4))] for _ in range(2))
    optimizer, reference = AdamW(list(ours), weight_decay=0.1), torch.optim.AdamW(theirs, weight_decay=0.1)
    for step in range(5):
        reference.param_groups[0]["lr"] = lr = 0.01 * (step + 1)
        for mine, other in zip(ours, theirs, strict=True):
            mine.grad = torch.randn_like(mine)
            other.grad = mine.grad.clone()
        optimizer.step(lr)
        reference.step()
        torch.testing.assert_close(ours, theirs)
        assert [parameter.grad for parameter in ours] == [None, None]


def test_the_learning_rate_goes_from_its_start_to_the_floor() -> None:
    rates = [cosine_lr(update, 11, 1e-3, 1e-6) for update in range(11)]
    assert rates[0] == pytest.approx(1e-3)
    assert rates[5] == pytest.approx((1e-3 + 1e-6) / 2)
    assert rates[10] == pytest.approx(1e-6)
    assert rates == sorted(rates, reverse=True)


def test_a_single_update_uses_the_learning_rate() -> None:
    assert cosine_lr(0, 1, 1e-3, 1e-6) == pytest.approx(1e-3)
