"""Many tests are skipped where the tool says that something cannot be had here.

Where the machine has it all the same, the tool is wrong, and these tests fail instead of all those being skipped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from matrix.evidence import cores, signals
from matrix.evidence.exits import ExitWatch
from matrix.runner import cgroup
from matrix.runner.probes import machine
from reproducers.faults import FAULTS
from tests.matrix import machine_needs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks what Linux has")
Reason = Callable[[], str | None]


def process_events() -> str:
    watch = ExitWatch()
    watch.close()
    return watch.why_not


def no_pids_limit() -> str:
    return "" if cgroup.can_limit_pids() else "cannot"


def no_cpu_limit() -> str:
    return "" if cgroup.can_limit_cpu() else "cannot"


def no_debug_library() -> str:
    return "" if machine.malloc_debug_library() else "none"


SAID: dict[str, tuple[Reason, Reason]] = {
    "memory groups": (machine_needs.memory_groups, cgroup.why_not),
    "pids groups": (machine_needs.pids_groups, no_pids_limit),
    "cpu groups": (machine_needs.cpu_groups, no_cpu_limit),
    "mounts": (machine_needs.mounts, machine.why_no_mount),
    "process events": (machine_needs.process_events, process_events),
    "signal trace": (machine_needs.signal_trace, lambda: signals.watch().why_not),
    "core files": (machine_needs.core_files, lambda: cores.plan(Path("/tmp")).why_not),
    "debug library": (machine_needs.debug_library, no_debug_library),
}


@pytest.mark.parametrize("what", SAID)
def test_the_tool_can_have_what_the_machine_has(what: str) -> None:
    lacking, said = SAID[what]
    if reason := lacking():
        pytest.skip(reason)
    assert not said()


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_planted_where_there_is_a_compiler(name: str) -> None:
    needs = FAULTS[name].needs
    lacking = {"C": machine_needs.compiler, "root": machine_needs.mounts}
    for word, reason in lacking.items():
        if word in needs.replace("+", " ").split() and (why := reason()):
            pytest.skip(why)
    assert FAULTS[name].why_not() is None
