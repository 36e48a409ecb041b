"""Each probe on a real child.  A probe that is unavailable fails its test where the machine has what the probe needs.

What a probe needs is found here without the tool's own code: a tool that is wrong about its needs must not skip its own test.
"""

from __future__ import annotations

import dataclasses
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrix.runner.patience import Limits
from matrix.runner.probes import NAMES
from tests.matrix import machine_needs
from tests.matrix.conftest import Observe

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
CHILDREN = Path(__file__).parents[1] / "children"
TELLS = [sys.executable, str(CHILDREN / "tells_what_it_has.py")]
WORKER = [sys.executable, str(CHILDREN / "starts_a_worker.py")]
WAITS = [sys.executable, "-S", "-c", "import time; time.sleep(0.5)"]
BURNS = [sys.executable, "-S", "-c", "import time\nwhile time.process_time() < 0.3: pass"]
MIB = 1 << 20


# ------------------------------------------------------------------ one row for each probe
@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    needs: Callable[[], str] = machine_needs.nothing
    setting: str = ""
    command: list[str] = dataclasses.field(default_factory=lambda: TELLS)
    more: dict[str, Any] = dataclasses.field(default_factory=dict)


def tight(name: str, soft: int) -> dict[str, Any]:
    """A soft limit below the hard one that the machine has."""
    hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[1]
    return {"rlimits": {f"RLIMIT_{name}": (soft, hard)}}


def preloaded() -> dict[str, Any]:
    found = sorted(Path("/").glob("lib*/*/libc_malloc_debug.so.0"))
    return {"env": {"LD_PRELOAD": str(found[0])}} if found else {}


ROWS = {
    "one_thread": Row(),
    "one_core": Row(needs=machine_needs.two_processors),
    "slower_clock": Row(needs=machine_needs.cpu_groups, setting="0.04", command=BURNS),
    "larger_stacks": Row(),
    "memory_x2": Row(more={"memory": 256 * MIB}),
    "memory_half": Row(more={"memory": 512 * MIB}),
    "raised_nofile": Row(more=tight("NOFILE", 100)),
    "raised_pids": Row(more=tight("NPROC", 20_000)),
    "raised_address_space": Row(more=tight("AS", 4 << 30)),
    "raised_cpu_time": Row(more=tight("CPU", 600)),
    "bigger_shm": Row(needs=machine_needs.mounts, setting=str(32 * MIB), command=WAITS),
    "bigger_temp": Row(needs=machine_needs.mounts, setting=str(32 * MIB), command=WAITS),
    "poisoned_heap": Row(),
    "checked_heap": Row(needs=machine_needs.debug_library),
    "one_arena": Row(),
    "no_huge_pages": Row(command=WAITS),
    "plain_instructions": Row(),
    "start_spawn": Row(command=[*WORKER, "fork"]),
    "start_forkserver": Row(command=[*WORKER, "default"]),
    "runtime_override": Row(),
    "clean_preload": Row(needs=machine_needs.debug_library, more=preloaded()),
    "own_session": Row(),
    "ignore_sighup": Row(command=WAITS),
    "ignore_sigpipe": Row(command=["sleep", "0.5"]),
    "default_sigpipe": Row(),
    "cuda_launch_blocking": Row(needs=machine_needs.device),
    "no_cuda_caching": Row(needs=machine_needs.device),
    "nccl_debug": Row(needs=machine_needs.device),
    "valgrind": Row(needs=machine_needs.valgrind, command=["sleep", "2"]),
    "who_ended_it": Row(needs=machine_needs.strace, command=WAITS),
}


def test_the_table_has_a_row_for_every_probe() -> None:
    assert tuple(ROWS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_probe_takes_hold_of_a_real_child(
    observe: Observe, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    row = ROWS[name]
    if lacking := row.needs():
        pytest.skip(lacking)
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(variable, raising=False)
    seen = observe(row.command, probes={name: row.setting}, limits=Limits(wall_s=300), **row.more)
    (result,) = seen.probes
    assert result.held is True, result.how
    assert seen.exit.returncode == 0
