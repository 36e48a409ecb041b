"""Who sent a SIGKILL: graded, and with what was looked at and not found.

Exit status 137 proves nothing: the kernel's out-of-memory killer, a scheduler, a colleague and this tool all send the
same signal, and it leaves no trace in the program.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

from matrix.evidence.deaths import initiating
from matrix.records import Death, Memory, Observation, SignalSent

Grade = Literal[
    "kernel, proven",
    "kernel, by its counter",
    "memory at its limit",
    "our own limit",
    "limit of processor time",
    "a timer of its own",
    "its own tree",
    "another process",
    "unknown",
]
AT_LIMIT = 0.97  # of the limit: the kernel kills a little below the last sample that it would have shown
USED_UP = 0.97  # of a hard limit of processor time: the last look at it was a little before
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
    if seconds := _own_cpu_limit(observation, death):
        return Attribution(grade="limit of processor time", text=f"it had used the {seconds} s that its own hard limit of it allows")
    if by_timer(observation, "SIGKILL"):
        return Attribution(grade="a timer of its own", text=f"a timer that {who} had set (timer_create) ran out")
    looked = f"{_log_says(observation)}, {_counter_says(memory)}, {_curve_says(memory)}"
    if _at_limit(memory):
        return Attribution(grade="memory at its limit", text=looked)
    by = sender(observation)
    if by:
        grade: Grade = "its own tree" if by.inside else "another process"
        return Attribution(grade=grade, text=f"{who} was killed by {describe(by)}: {looked}")
    seen_from_kernel = any(one.from_pid == 0 for one in sent(observation, "SIGKILL"))
    if _log_is_read(observation) and memory.oom_kills == 0 and not seen_from_kernel:
        return Attribution(grade="another process", text=f"{who} was killed from outside: {looked}")
    return Attribution(grade="unknown", text=f"nothing tells who killed {who}: {looked}")


def sender(observation: Observation) -> SignalSent | None:
    """Who was seen to send the SIGKILL; None: nobody was, or the kernel itself did."""
    death = killed(observation)
    known = [one for one in sent(observation, "SIGKILL") if one.from_pid]
    return next((one for one in known if death and one.to_pid == death.pid), known[0] if known and death and not death.pid else None)


def sent(observation: Observation, name: str) -> list[SignalSent]:
    """Signals of that name to processes of the tree, but for those of this tool, the earliest first."""
    return [one for one in observation.signals_sent if one.signal == name and not one.by_tool]


def by_others(death: Observation, name: str) -> SignalSent | None:
    """abort() sends its signal to itself; a handler that has saved sends the one that it got once more."""
    first = initiating(death.deaths)
    others = [one for one in sent(death, name) if one.from_pid not in (0, one.to_pid)]
    return next((one for one in others if first and one.to_pid == first.pid), others[0] if others else None)


def by_timer(death: Observation, name: str) -> bool:
    """Whether the signal that began it was that of a timer of the process itself."""
    first = initiating(death.deaths)
    ran_out = any(one.by_timer and (first is None or one.to_pid == first.pid) for one in sent(death, name))
    return ran_out and by_others(death, name) is None


def describe(one: SignalSent) -> str:
    """For people."""
    if not one.from_pid:
        return "a timer that it had set" if one.by_timer else "the kernel"
    where = "the process itself" if one.from_pid == one.to_pid else "of its own tree" if one.inside else "from outside its tree"
    return f"pid {one.from_pid} ({one.from_name or 'unknown'}), {where}"


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


def _own_cpu_limit(observation: Observation, death: Death) -> int | None:
    """The same for a limit that the program set for itself or was started with, as read from its processes."""
    for settings in observation.settings:
        if settings.pid != death.pid and not (settings.role == death.role == "main"):
            continue
        for bound in settings.bounds:
            used = max(bound.used or 0.0, (observation.exit.cpu_s or 0.0) if death.role == "main" else 0.0)
            if bound.name == "cpu" and bound.hard is not None and used >= USED_UP * bound.hard:
                return bound.hard
    return None


def _size(count: int | None) -> str:
    if count is None:
        return "unknown size"
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / (1 << 20):.0f} MiB"
