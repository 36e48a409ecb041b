"""The limits that were asked for, beside what the child really had: one that did not take hold is said, never silently dropped."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from matrix.records import Limit, NotCollected

KEYS = {"RLIMIT_NOFILE": "nofile", "RLIMIT_STACK": "stack", "RLIMIT_CORE": "core", "RLIMIT_CPU": "cpu_time"}  # as in the specification


def of_process(asked: Mapping[str, tuple[int, int]], cpus: Sequence[int] | None, had: Mapping[str, Sequence[int]]) -> list[Limit]:
    """Limits of the main process, which all its children inherit.  `had` is what was read from it after its start."""
    found = [
        Limit(name=KEYS.get(name, name), asked=soft, had=had[name][0] if name in had else None, by="rlimit")
        for name, (soft, _) in asked.items()
    ]
    if cpus:
        found.append(Limit(name="cpus", asked=len(cpus), had=len(had["cpus"]) if "cpus" in had else None, by="affinity"))
    return found


def not_held(limits: Sequence[Limit], *, started: bool) -> list[NotCollected]:
    """What to say about each limit that is not the one that was asked for; nothing when no child was started."""
    missed = [limit for limit in limits if started and limit.had != limit.asked]
    return [NotCollected(what=f"limit {limit.name}: {limit.asked}", why=_why(limit)) for limit in missed]


def _why(limit: Limit) -> str:
    if limit.had is not None:
        return f"the child had {limit.had}: this user may not have more"
    if limit.by == "cgroup":
        return "no pids cgroup can be made here, and RLIMIT_NPROC would count every process of the user"
    return f"{sys.platform} does not show it or does not have it"
