from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from trainer.loss import FifoBank, hard_cosines, info_nce

CPU = torch.device("cpu")


def unit(*shape: int) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape), dim=-1)


def test_the_loss_is_the_formula() -> None:
    queries, documents, extra = unit(3, 5), unit(3, 5), unit(2, 5)
    expected = 0.0
    for i in range(3):
        cosines = [float(queries[i] @ documents[j]) - (0.1 if i == j else 0.0) for j in range(3)]
        cosines += [float(queries[i] @ extra[j]) for j in range(2)]
        expected -= math.log(math.exp(cosines[i] / 0.2) / sum(math.exp(cosine / 0.2) for cosine in cosines)) / 3
    assert info_nce(queries, documents, [queries @ extra.T], 0.2, 0.1).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("size", [1, 7, 12, 40])
def test_the_ring_holds_what_a_concatenated_queue_holds(size: int) -> None:
    bank = FifoBank(size, 4, CPU)
    naive, naive_rows = torch.empty(0, 4), torch.empty(0, dtype=torch.int64)
    queries, documents = unit(2, 4), unit(2, 4)
    for step, count in enumerate([5, 5, 3, 9, 1, 5, 12, 4]):
        vectors, rows = unit(count, 4), torch.arange(count) + 100 * step
        bank.push(vectors, rows)
        naive, naive_rows = torch.cat([naive, vectors])[-size:], torch.cat([naive_rows, rows])[-size:]
        oldest_first = [(bank.head - bank.filled + i) % size for i in range(bank.filled)]
        torch.testing.assert_close(bank.vectors[oldest_first], naive)
        torch.testing.assert_close(bank.rows[oldest_first], naive_rows)
        nobody = torch.tensor([-7, -7])
        ring_loss = info_nce(queries, documents, [bank.cosines(queries, nobody)], 0.05, 0.03)
        torch.testing.assert_close(ring_loss, info_nce(queries, documents, [queries @ naive.T], 0.05, 0.03))


def test_a_query_meets_every_document_of_the_bank_but_its_own() -> None:
    bank = FifoBank(10, 4, CPU)
    vectors = unit(3, 4)
    bank.push(vectors, torch.tensor([7, 8, 9]))
    queries = unit(2, 4)
    expected = queries @ vectors.T
    expected[0, 1] = expected[1, 2] = -torch.inf
    torch.testing.assert_close(bank.cosines(queries, torch.tensor([8, 9])), expected)


def test_an_absent_hard_negative_changes_neither_loss_nor_gradient() -> None:
    queries, documents = unit(2, 4).requires_grad_(), unit(2, 4)
    hard = unit(2, 3, 4)
    present = torch.tensor([[True, False, False], [False, False, False]])
    with_absent = info_nce(queries, documents, [hard_cosines(queries, hard, present)], 1.0, 0.03)
    own = torch.stack([queries[0] @ hard[0, 0], torch.tensor(-torch.inf)])[:, None]
    without = info_nce(queries, documents, [own], 1.0, 0.03)
    assert with_absent.item() == pytest.approx(without.item())
    assert with_absent.item() > info_nce(queries, documents, [], 1.0, 0.03).item()
    gradients = [torch.autograd.grad(loss, queries, retain_graph=True)[0] for loss in (with_absent, without)]
    assert torch.isfinite(gradients[0]).all()
    torch.testing.assert_close(*gradients)
