"""Who sent a SIGKILL: graded, and with what was looked at and not found.

Exit status 137 proves nothing: the kernel's out-of-memory killer, a scheduler, a colleague and this tool all send the
same signal, and it leaves no trace in the program.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from matrix.evidence.deaths import initiating
from matrix.records import Death, Memory, Observation

Grade = Literal["kernel, proven", "kernel, by its counter", "memory at its limit", "our own limit", "another process", "unknown"]
AT_LIMIT = 0.97  # of the limit: the kernel kills a little below the last sample that it would have shown
SCARCE = 0.02  # of what the machine has; less was free
GIB = 1 << 30


@dataclasses.dataclass(frozen=True, kw_only=True)
class Attribution:
    grade: Grade
    text: str  # what was seen, and what was looked for and not seen


def attribute(observation: Observation) -> Attribution | None:
    """Who ended it, strongest evidence first; None: no SIGKILL began it, or it was ended by us for its time."""
    death = killed(observation)
    if death is None:
        return None
    who = f"{death.role} {death.pid}"
    memory = observation.memory
    if observation.exit.ended_by == "memory_watchdog":
        return Attribution(grade="our own limit", text=f"this tool ended it when the tree passed its limit of {_size(memory.limit_bytes)}")
    if death.oom and memory.oom_kills != 0:
        counted = f" and the group's counter rose to {memory.oom_kills}" if memory.oom_kills else ""
        return Attribution(grade="kernel, proven", text=f"the kernel's log says that it killed {who} for memory{counted}")
    if memory.oom_kills:
        log = _log_says(observation)
        return Attribution(grade="kernel, by its counter", text=f"the group's counter of OOM kills rose to {memory.oom_kills}; {log}")
    if seconds := _cpu_limit(observation):
        return Attribution(grade="our own limit", text=f"it had used the {seconds} s of processor time that limits.cpu_time allows")
    looked = f"{_log_says(observation)}, {_counter_says(memory)}, {_curve_says(memory)}"
    if _at_limit(memory):
        return Attribution(grade="memory at its limit", text=looked)
    if _log_is_read(observation) or memory.oom_kills == 0:
        return Attribution(grade="another process", text=f"{who} was killed from outside: {looked}")
    return Attribution(grade="unknown", text=f"nothing tells who killed {who}: {looked}")


def killed(observation: Observation) -> Death | None:
    """The SIGKILL that began it."""
    first = initiating(observation.deaths)
    if first is None and observation.exit.signal == "SIGKILL" and observation.exit.ended_by in ("itself", "memory_watchdog"):
        first = next((death for death in observation.deaths if death.role == "main"), None)
        return first or Death(pid=0, role="main", signal="SIGKILL", status=None, time_s=None)  # written by an older version
    return first if first and first.signal == "SIGKILL" else None


# ------------------------------------------------------------------ what was looked at
def _log_is_read(observation: Observation) -> bool:
    return not any(missing.what == "kernel log" for missing in observation.not_collected)


def _log_says(observation: Observation) -> str:
    if not _log_is_read(observation):
        return "the kernel log could not be read"
    return "no oom line in the kernel log names a process of it"


def _counter_says(memory: Memory) -> str:
    return "no counter of OOM kills could be read" if memory.oom_kills is None else "the group's counter of OOM kills stayed 0"


def _curve_says(memory: Memory) -> str:
    peak = memory.peak_group_bytes or memory.peak_tree_rss_bytes
    said = f"memory peaked at {_size(peak)}" + (f" of a limit of {_size(memory.limit_bytes)}" if memory.limit_bytes else "")
    return said if memory.system_available_bytes is None else f"{said} with {_size(memory.system_available_bytes)} free on the machine"


def _at_limit(memory: Memory) -> bool:
    peak = memory.peak_group_bytes or memory.peak_tree_rss_bytes or 0
    if memory.limit_bytes and peak >= AT_LIMIT * memory.limit_bytes:
        return True
    free, held = memory.system_available_bytes, memory.last_tree_rss_bytes or 0
    return free is not None and held > 0 and free < SCARCE * (free + held)


def _cpu_limit(observation: Observation) -> int | None:
    """Seconds of RLIMIT_CPU when it had used them up: at the hard limit the signal is SIGKILL."""
    used = observation.exit.cpu_s
    asked = next((limit.had for limit in observation.limits if limit.name == "cpu_time"), None)
    return asked if asked and used is not None and used >= asked else None


def _size(count: int | None) -> str:
    if count is None:
        return "unknown size"
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / (1 << 20):.0f} MiB"
