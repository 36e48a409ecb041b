"""Suspect: the order in which torch and FAISS are imported and first used, and what was used before both."""

from __future__ import annotations

import importlib.util

import pytest

from reproducers.stand import Stand, Suspect, threads_of_their_own


def suspect(order: str, env: dict[str, str] | None = None) -> Suspect:
    return Suspect(
        name=f"the order {order.replace(' ', ', ')}",
        asks=f"does it die when {order.replace(' ', ', then ')} are imported and used, and then all by turns?",
        program="import_order",
        arguments=tuple(order.split()),
        env={**threads_of_their_own(), **(env or {})},
        cure="the order that is cleared; then look at the OpenMP suspect: each library may bring a runtime of its own",
    )


@pytest.mark.parametrize(
    "order", ["torch faiss", "faiss torch", "numpy torch faiss", "numpy faiss torch", "sklearn torch faiss", "sklearn faiss torch"]
)
def test_an_order_is_cleared(stand: Stand, order: str) -> None:
    first = order.split()[0]
    stand.clears(suspect(order), missing=None if importlib.util.find_spec(first) else f"{first} is not installed (and need not be)")


@pytest.mark.control
@pytest.mark.parametrize(
    ("order", "first", "step"), [("torch faiss", "torch", 1), ("faiss torch", "torch", 1), ("numpy faiss torch", "numpy", 1)]
)
def test_a_runtime_of_its_own_in_each_of_two_libraries_is_seen_where_the_second_is_first_used(
    stand: Stand, order: str, first: str, step: int
) -> None:
    observation, report = stand.convicts(suspect(order, stand.plant("omp-conflict", when="mining", first=first)))
    assert (observation.exit.signal, observation.progress.last_step) == ("SIGABRT", step)
    assert "OMP: Error #15" in report
