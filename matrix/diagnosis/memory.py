"""Was it memory?  The kernel's own counter proves it; a curve far below every limit clears it."""

from __future__ import annotations

from collections.abc import Iterator

from matrix.diagnosis.case import Case
from matrix.records import Finding, Memory, Observation

CAUSES = ("memory_working_set", "memory_retention", "memory_worker_multiplication", "memory_allocator_retention")
GIB = 1 << 30
FAR_BELOW = 0.7  # of the limit: a peak below this was not stopped by it
GREW_BY = 0.5  # of the final size, since the first step: retention rather than one large working set


def findings(case: Case) -> Iterator[Finding]:
    for death in case.deaths:
        memory = death.memory
        if case.outcomes[death.attempt].signature == "SIGKILL:memory":
            yield from _killed(death)
        elif memory.oom_kills == 0 and (share := _share(memory)) is not None and share < FAR_BELOW:
            for cause in CAUSES:
                yield Finding(cause=cause, rule="far below", weight=-5.0, fact=_far_below(memory), attempt=death.attempt, file="memory.csv")


def _killed(death: Observation) -> Iterator[Finding]:
    memory = death.memory
    proof = f"the kernel's OOM counter of the attempt's own group rose to {memory.oom_kills}, limit {_size(memory.limit_bytes)}"
    if not memory.oom_kills:
        proof = f"the process tree passed the limit of {_size(memory.limit_bytes)} and was ended by this tool"
    grew = _growth(death)
    likely = "memory_retention" if grew else "memory_working_set"
    yield Finding(cause=likely, rule="killed", weight=5.0, fact=proof, attempt=death.attempt, file="observation.json")
    for cause in set(CAUSES) - {likely}:
        yield Finding(cause=cause, rule="killed", weight=3.0, fact=proof, attempt=death.attempt, file="observation.json")
    if grew:
        yield Finding(cause=likely, rule="grew", weight=1.0, fact=grew, attempt=death.attempt, file="memory.csv")


def _growth(death: Observation) -> str | None:
    first, last, steps = death.memory.first_tree_rss_bytes, death.memory.last_tree_rss_bytes, death.progress.last_step
    if not first or not last or not steps or steps < 5 or (last - first) < GREW_BY * last:
        return None
    return f"memory grew from {_size(first)} at the first step to {_size(last)} at step {steps}"


def _share(memory: Memory) -> float | None:
    """Peak as a share of the limit, or of what the machine had; None when neither is known."""
    peak = memory.peak_group_bytes or memory.peak_tree_rss_bytes
    room = memory.limit_bytes or (memory.system_available_bytes and memory.system_available_bytes + (memory.last_tree_rss_bytes or 0))
    return peak / room if peak and room else None


def _far_below(memory: Memory) -> str:
    peak = memory.peak_tree_rss_bytes or memory.peak_group_bytes
    room = (
        f"the limit of {_size(memory.limit_bytes)}" if memory.limit_bytes else f"the {_size(memory.system_available_bytes)} that were free"
    )
    return f"memory peaked at {_size(peak)}, far below {room}, and the kernel counted no OOM kill"


def _size(count: int | None) -> str:
    if count is None:
        return "unknown size"
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / (1 << 20):.0f} MiB"
