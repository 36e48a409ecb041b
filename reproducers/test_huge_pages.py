"""Suspect: transparent huge pages.  A few rows of a large array are written to; how much memory do they take?

Where the kernel's setting is `always` or `madvise`, NumPy's arrays of 4 MiB and more get huge pages, so that a row takes 2 MiB: there
a conviction is the truth about the machine.  It matters to tables that are filled here and there, not to those that are filled whole.
"""

from __future__ import annotations

import pytest

from reproducers import printed
from reproducers.stand import Stand, Suspect, one_thread

pytestmark = pytest.mark.quick
TIMES = 8.0  # memory for each byte of a touched page; a huge page has 512 times as much


def suspect(what: str, *further: str, env: dict[str, str] | None = None) -> Suspect:
    return Suspect(
        name=f"huge pages under {what}",
        asks=f"do a few rows of {what} take the memory of all of it?",
        program="huge_pages",
        arguments=further,
        env={**one_thread(), **(env or {})},
        rules=(printed.last("times", TIMES, "{} times as much memory as the pages that were written to"),),
        cure="NUMPY_MADVISE_HUGEPAGE=0 in the environment; or echo madvise > /sys/kernel/mm/transparent_hugepage/enabled where it says "
        "always; or rows that are used together stored together",
    )


@pytest.mark.parametrize(("what", "memory"), [("a NumPy array", "numpy"), ("ordinary memory", "plain")], ids=["numpy", "plain"])
def test_sparse_rows_take_the_memory_of_their_pages(stand: Stand, what: str, memory: str) -> None:
    stand.clears(suspect(what, "--memory", memory))


@pytest.mark.control
def test_memory_that_asks_for_huge_pages_is_seen(stand: Stand) -> None:
    _, report = stand.convicts(suspect("memory that asks for them", "--memory", "huge"))
    assert "NUMPY_MADVISE_HUGEPAGE=0" in report


@pytest.mark.control
def test_memory_that_forbids_huge_pages_is_cleared_by_the_same_rule(stand: Stand) -> None:
    _, judgement = stand.asks(suspect("memory that forbids them", "--memory", "small"))
    assert judgement.kind in {"cleared", "could not run"}  # the latter where the kernel has no huge pages at all
