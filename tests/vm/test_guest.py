"""The same tests as elsewhere, on a machine where cgroup version 2 holds the controllers."""

from __future__ import annotations

import re

import pytest

from tests.vm import machine, suites

TIMEOUT_S = 3000

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(bool(machine.why_not()), reason=machine.why_not() or "-")]


@pytest.fixture(scope="module", autouse=True)
def kernel() -> None:
    try:
        machine.unpacked()
    except RuntimeError as problem:
        pytest.skip(f"the guest's kernel cannot be had: {problem}")


@pytest.mark.parametrize("suite", suites.SUITES)
def test_with_version_2_all_that_a_group_takes_part_in_holds(suite: str) -> None:
    ran = machine.run(suites.command(suite), timeout_s=TIMEOUT_S)
    assert ran.rc == 0, ran.output[-6000:] or ran.console[-3000:]
    assert re.search(r"^\d+ passed", ran.output, re.M), ran.output[-2000:]
    assert "no memory cgroup" not in ran.output and "version 2 holds no memory" not in ran.output  # as a reason to skip


def test_the_guest_leaves_nothing_here_and_writes_nothing_that_stays() -> None:
    before = (machine.ROOT / "README.md").read_bytes()
    ran = machine.run("grep -c memory /sys/fs/cgroup/cgroup.controllers; echo x >README.md; cat README.md; exit 7", timeout_s=600)
    assert (ran.rc, ran.output) == (7, "1\nx\n"), ran.console[-3000:]
    assert (machine.ROOT / "README.md").read_bytes() == before
