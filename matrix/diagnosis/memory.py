"""Was it memory, and why?  The kernel's own counter proves that; the form of the curve and what it scales with tell why.

A curve far below every limit clears all of it.  Weights are log likelihood ratios in nats.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from matrix.diagnosis import judge, memory_guards
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import Cause, finding, message
from matrix.diagnosis.memory_causes import ALLOCATOR, CAUSES, NAMES, RETENTION, WORKERS, WORKING_SET
from matrix.diagnosis.memory_form import HALF, form, grew, measured, size
from matrix.diagnosis.memory_holders import by_workers, huge_pages, of_huge_pages, who_held, worker_count
from matrix.evidence.memory_curve import own_limit_met
from matrix.records import Cell, Finding, Memory, Observation, Value

__all__ = ["CAUSES", "causes_of", "findings", "highest"]

FAR_BELOW = 0.7  # of the limit: a peak below this was not stopped by it
DIFFERS = 1.2  # ratio of two peaks that is no accident
LITTLE = 0.2  # of the growth that is left under another allocator
ALLOCATOR_PROBES = ("one_arena", "no_huge_pages")
BY_HUGE_PAGES = {"no_huge_pages": 0.8, "memory_x2": 0.5}  # what cures it then: another way to allocate gets the same pages
ALLOCATORS = ("MALLOC_", "PYTHONMALLOC", "LD_PRELOAD", "NUMPY_MADVISE_HUGEPAGE", "THP_MEM_ALLOC_ENABLE", "GLIBC_TUNABLES")


def findings(case: Case) -> Iterator[Finding]:
    killed = [death for death in case.deaths if case.outcomes[death.attempt].signature == "SIGKILL:memory"]
    guarded = [] if killed else memory_guards.ended(case, highest)
    harmless = memory_guards.left_alone(case, highest, max(map(highest, guarded))) if guarded else None
    yield from _guarded(guarded, harmless)
    guarded = [] if harmless else guarded
    for death in killed:
        yield from _killed(death)
    killed = killed or guarded
    for death in killed:
        yield from form(case, death)
        yield from by_workers(death)
        yield from huge_pages(death)
    if killed:
        yield from _allocator(case, killed)
        yield from _scaling(case, killed)
        yield from _given_back(case, killed)
    for death in case.deaths:
        on_device = message(death, "cuda out of memory") is not None
        if death not in killed and not on_device and (fact := _far_below(death)):
            for cause in NAMES:
                yield finding(cause, "far below", death, -5.0, fact, "memory.csv")


def _killed(death: Observation) -> Iterator[Finding]:
    memory = death.memory
    whose = "the attempt's own group" if memory.isolation.startswith("cgroup") else "the group that it ran in"  # not of our making
    proof = f"the kernel's OOM counter of {whose} rose to {memory.oom_kills}, {_limit_met(memory)}"
    if memory.oom_kills is None and any(each.oom for each in death.deaths):
        proof = "the kernel's log says that it killed a process of it for memory"
    elif not memory.oom_kills and judge.waits_for_memory(death):
        proof = f"it stood still at its memory limit ({_limit_met(memory)}): the kernel lets it wait there, for no OOM killer is allowed"
    elif not memory.oom_kills:
        proof = f"the process tree passed the limit of {size(memory.limit_bytes)} and was ended by this tool"
    holder, shown = who_held(death)
    proof += f"; {holder}" if holder else ""
    for cause in NAMES:
        yield finding(cause, "killed", death, 4.0, proof, "observation.json", form=shown)


def _guarded(deaths: list[Observation], harmless: str | None) -> Iterator[Finding]:
    """Judge deaths by a monitor of the program's own.  Without the monitor either memory would have met another limit, or nothing.

    `harmless`: the fact that memory above the level does no harm; None: nothing shows that."""
    for death in deaths:
        levels = f"{size(min(map(highest, deaths)))} and {size(max(map(highest, deaths)))}"
        fact = f"a process of its own ended it, as in all {len(deaths)} deaths, when memory was between {levels}, after however many steps"
        yield finding("watchdog_or_time_limit", "level", death, -4.0, fact)
        if harmless:
            yield finding("external_signal", "level", death, 6.5, f"{fact}; {harmless}: another process ends it by a rule of its own")
            continue
        yield finding("external_signal", "level", death, -4.0, fact)
        for cause in NAMES:
            yield finding(cause, "killed", death, 3.0, fact)


def _limit_met(memory: Memory) -> str:
    """In words: our own limit, or that of a group within ours or around it, which the high-water mark of ours gives away."""
    if own_limit_met(memory):
        return f"limit {size(memory.limit_bytes)}"
    return f"at {size(memory.peak_group_bytes)}, by the limit of a group within it or around it"


# ------------------------------------------------------------------ huge pages
def causes_of(case: Case) -> dict[str, Cause]:
    """Entries that predict something else of this case: memory in huge pages is not held by arenas."""
    if not of_huge_pages(case):
        return {}
    return {cause.name: dataclasses.replace(cause, cures_it=BY_HUGE_PAGES) for cause in CAUSES if cause.name == ALLOCATOR}


# ------------------------------------------------------------------ across attempts
def _scaling(case: Case, killed: list[Observation]) -> Iterator[Finding]:
    """What the peak follows: the number of workers, or what one step holds."""
    any_grew = any(grew(case, death) for death in killed)
    same = [death for death in killed if death.trial.cell == killed[0].trial.cell]
    contrasts = [contrast for axis in case.result.culprit if (contrast := _lower(case, same, axis))]
    after = worker_count(same[0])
    fewer = any(worker_count(survivor, least=1) < after for survivor, _ in contrasts)
    for survivor, fact in contrasts:
        before = worker_count(survivor, least=1)
        if after > before:
            fact += f"; there were {before} and {after} worker processes"
            yield finding(WORKERS, "scaling", same[0], 2.5, fact, "memory.csv")
            yield finding(WORKING_SET, "scaling", same[0], -1.0, fact, "memory.csv")
            continue
        if before and after == before and not fewer:  # else each of them may only have held less
            fact += f"; there were {before} worker processes in both"
            yield finding(WORKERS, "scaling", same[0], -4.0, fact, "memory.csv")
            for cause in (WORKING_SET, RETENTION, ALLOCATOR):  # between these it tells nothing
                yield finding(cause, "same workers", same[0], 1.5, fact, "memory.csv")
        if not any_grew and not fewer and any(measured(case, death) for death in killed):
            yield finding(WORKING_SET, "scaling", same[0], 1.5, fact, "memory.csv")


def _given_back(case: Case, killed: list[Observation]) -> Iterator[Finding]:
    """Runs that had room enough show whether what a step takes is given back: then nothing keeps it, neither program nor allocator."""
    near = [each for axis in case.result.culprit for each in _survivors_beside(case, killed[0], axis)]
    curves = [(each, curve) for each in near if (curve := each.curve) and curve.shape != "unknown"]
    back = [
        (each, curve) for each, curve in curves if curve.shape == "spike" and curve.peak_bytes - curve.end_bytes > HALF * curve.peak_bytes
    ]
    if not back or 2 * len(back) < len(curves) or any(grew(case, death) and measured(case, death) for death in killed):
        return
    survivor, curve = max(back, key=lambda pair: pair[1].peak_bytes)
    fact = f"memory rose to {size(curve.peak_bytes)} for a moment, was given back, and ended at {size(curve.end_bytes)}"
    fact += f" in attempt {survivor.attempt} (so in {len(back)} of {len(curves)} runs that survived one change away)"
    yield finding(WORKING_SET, "given back", killed[0], 1.5, fact, "memory.csv")
    for cause in (RETENTION, ALLOCATOR):
        yield finding(cause, "given back", killed[0], -1.5, fact, "memory.csv")


def _lower(case: Case, same: list[Observation], axis: str) -> tuple[Observation, str] | None:
    """The survivor with the lowest peak among those that differ from these deaths in that axis alone, and the two peaks in words."""
    others = _survivors_beside(case, same[0], axis)
    high, lows = max(map(highest, same)), [(o, highest(o)) for o in others if highest(o)]
    lower = [(o, peak) for o, peak in lows if high > DIFFERS * peak]
    if not lower:
        return None
    survivor, peak = min(lower, key=lambda pair: pair[1])
    return (
        survivor,
        f"memory peaked at {size(peak)} with {_name(survivor, axis)} and at {size(high)} or more with {_name(same[0], axis)}",
    )


def _allocator(case: Case, killed: list[Observation]) -> Iterator[Finding]:
    """Only a run that differs by nothing but its allocator can tell memory that is kept by the allocator from memory that is in use."""
    dying = killed[0]
    huge = of_huge_pages(case)
    for other in case.observations:
        setting = _allocator_setting(case, other, dying)
        if huge and not _without_huge_pages(case, other):
            continue  # it got the same pages in another way
        before, after = _rate(dying), _rate(other)
        if not setting or before is None or after is None or other is dying:
            continue
        kept, held = _left(case, other, after / before if before else 1.0)
        rule = next((f"probe {name}" for name in other.trial.probes), "another allocator")  # one fact: not also as any probe's outcome
        fact = f"with {setting} memory grew by {size(int(after))} per step instead of {size(int(before))}"
        yield finding(ALLOCATOR, rule, other, kept, fact, "memory.csv")
        yield finding(RETENTION, rule, other, held, fact, "memory.csv")


def _left(case: Case, other: Observation, left: float) -> tuple[float, float]:
    """What the growth that is left says of memory that the allocator keeps, and of memory that the program holds.  Blocks in use pin
    freed ones beside them, so another allocator saves some of it too; but what is left still kills."""
    if left < LITTLE:
        return 4.0, -3.0
    if left < HALF:
        return (-1.5, 0.5) if case.outcomes[other.attempt].kind == "died" else (2.0, -1.0)
    return -3.0, 0.5


def _allocator_setting(case: Case, other: Observation, dying: Observation) -> str | None:
    """NAME=value, or the probe, when that is all that differs; None: something else differs, or nothing."""
    if other.trial.probes:
        alone = set(other.trial.probes) <= set(ALLOCATOR_PROBES) and other.trial.cell == dying.trial.cell
        held = alone and all(result.held for result in other.probes)
        return " and ".join(result.how for result in other.probes) if held else None
    ours, theirs = case.environments.get(other.attempt, {}), case.environments.get(dying.attempt, {})
    changed = {name: ours.get(name, "") for name in set(ours) | set(theirs) if ours.get(name) != theirs.get(name)}
    axes = [axis for axis, value in other.trial.cell.items() if dying.trial.cell.get(axis) != value]
    if not changed or len(axes) > 1 or not all(name.startswith(ALLOCATORS) for name in changed):
        return None
    return ", ".join(f"{name}={value}" for name, value in sorted(changed.items()))


def _without_huge_pages(case: Case, other: Observation) -> bool:
    return "no_huge_pages" in other.trial.probes or "NUMPY_MADVISE_HUGEPAGE" in case.environments.get(other.attempt, {})


def _rate(observation: Observation) -> float | None:
    """Bytes per step; 0 for a curve that does not grow."""
    curve = observation.curve
    return max(0.0, curve.per_step.value) if curve and curve.per_step else None


def _survivors_beside(case: Case, dying: Observation, axis: str) -> list[Observation]:
    return [survivor for survivor in case.survivors if _differs_only_in(survivor.trial.cell, dying.trial.cell, axis)]


def _differs_only_in(cell: Cell, other: Cell, axis: str) -> bool:
    return cell.get(axis) != other.get(axis) and all(cell.get(name) == other.get(name) for name in {*cell, *other} - {axis})


def _name(observation: Observation, axis: str) -> str:
    value: Value = observation.trial.cell[axis]
    return f"{axis}={value}"


def highest(observation: Observation) -> int:
    """What the limit counts, as far as it is known, without file cache."""
    curve, memory = observation.curve, observation.memory
    stopped = memory.oom_kills or judge.waits_for_memory(observation)
    if stopped and memory.limit_bytes and own_limit_met(memory):
        return memory.limit_bytes
    if curve and curve.series == "group":
        return curve.peak_bytes
    return memory.peak_tree_pss_bytes or memory.peak_tree_rss_bytes or 0


# ------------------------------------------------------------------ when it was not memory
def _far_below(death: Observation) -> str | None:
    memory, curve = death.memory, death.curve
    room = _room(memory)
    if memory.oom_kills != 0 or not room:
        return None
    free = f"the {size(memory.system_available_bytes)} that were free"
    free = f"the limit of {size(memory.limit_bytes)}" if memory.limit_bytes else free
    peak = memory.peak_group_bytes or memory.peak_tree_rss_bytes
    if peak and peak < FAR_BELOW * room:
        return f"memory peaked at {size(memory.peak_tree_rss_bytes or peak)}, far below {free}, and the kernel counted no OOM kill"
    if curve and curve.series == "group" and curve.peak_bytes < FAR_BELOW * room:
        return f"memory without file cache peaked at {size(curve.peak_bytes)}, far below {free}, and the kernel counted no OOM kill"
    return None


def _room(memory: Memory) -> int | None:
    """The limit, or what the machine had."""
    return memory.limit_bytes or (memory.system_available_bytes and memory.system_available_bytes + (memory.last_tree_rss_bytes or 0))
