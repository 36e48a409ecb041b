"""The words for what the records hold as identifiers: grades, kinds of fix, ways to end.  Those of a cause come with the verdict."""

from __future__ import annotations

from matrix.records import Ranked, RuledOut


def title(entry: Ranked | RuledOut) -> str:
    """Of a cause; from a verdict that has none for it, its name."""
    return entry.title or entry.cause.replace("_", " ").capitalize()


def clause(entry: Ranked) -> str:
    return entry.clause or f"of {entry.cause.replace('_', ' ')}"


GRADES = {
    "confirmed": "the failure was produced with the cause and was absent without it, with the same signature, and fresh runs that were not "
    "used to find it agree",
    "supported": "several facts speak for it, but the decisive contrast is missing: no survival without the cause, or no fresh runs",
    "suspected": "it fits what was seen, and so do other causes",
}

STATUSES = {  # label, tone
    "diagnosed": ("Cause found", "bad"),
    "suspected": ("Cause suspected", "warn"),
    "not_reproduced": ("Not reproduced", "calm"),
    "healthy": ("Healthy", "good"),
    "inconclusive": ("Inconclusive", "warn"),
}

FIXES = {
    "cures": "removes the cause",
    "avoids": "keeps clear of the cause, which is still there",
    "hides": "hides the failure without removing the cause",
}

ISOLATION = {
    "cgroup-v2": "a memory cgroup (v2) of its own for each run: its limit and its counters are the kernel's",
    "cgroup-v1": "a memory cgroup (v1) of its own for each run: its limit and its counters are the kernel's",
    "watchdog": "no cgroup could be made; a watchdog read memory from outside and ended what passed the limit",
    "none": "no cgroup and no memory limit",
}

PURPOSES = {
    "calibrate": "to measure how the job behaves",
    "find": "to find the cause",
    "verify": "to verify a fix, on fresh runs",
    "control": "without instruments, to see whether watching changes the result",
}
