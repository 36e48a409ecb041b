"""Was it memory, and why?  The kernel's own counter proves that; the form of the curve and what it scales with tell why.

A curve far below every limit clears all of it.  Weights are log likelihood ratios in nats.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from matrix.diagnosis import memory_guards
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import Cause, finding, message, remedy
from matrix.evidence.memory_curve import own_limit_met
from matrix.records import Cell, Death, Finding, Memory, MemoryCurve, Observation, ProcessMemory, Slope, Value

WORKING_SET, RETENTION, WORKERS, ALLOCATOR = NAMES = (
    "memory_working_set",
    "memory_retention",
    "memory_worker_multiplication",
    "memory_allocator_retention",
)
CAUSES = (
    Cause(
        name=WORKING_SET,
        title="One step needs more memory than there is",
        clause="the memory that one step needs, which grows with the batch and not with the number of steps, does not fit below the limit",
        every_time=0.95,
        remedies=(
            remedy("axis", "smaller batches with more accumulation", "speed"),
            remedy("limit", "a higher memory limit"),
            remedy("code", "lower precision, or activation checkpointing", "accuracy or speed"),
        ),
        cures_it={"memory_x2": 0.75},
    ),
    Cause(
        name=RETENTION,
        title="Memory kept from step to step",
        clause="something keeps data or graphs of earlier steps alive, so that memory grows with every step until it reaches the limit",
        every_time=0.95,
        remedies=(
            remedy("axis", "the setting under which it is not kept"),
            remedy("code", "keep numbers, not tensors (.item(), .detach()); bound caches and histories"),
            remedy("limit", "a higher memory limit", "only postpones it"),
        ),
        references=("PyTorch FAQ: my model reports out of memory",),
        cures_it={"memory_x2": 0.4, "one_arena": 0.05},
    ),
    Cause(
        name=WORKERS,
        title="Every worker holds its own copy",
        clause="each worker process holds its own copy of data or caches, so that memory grows with the number of workers past the limit",
        every_time=0.9,
        remedies=(
            remedy("axis", "fewer workers", "loading speed"),
            remedy("code", "data in arrays or files that workers share, instead of Python objects"),
            remedy("limit", "a higher memory limit"),
        ),
        references=("PyTorch issue 13246: DataLoader and copy-on-write of Python objects",),
        cures_it={"memory_x2": 0.75},
    ),
    Cause(
        name=ALLOCATOR,
        title="Freed memory is not given back",
        clause="the allocator keeps memory that the program has freed (per-thread arenas, fragmentation, huge pages), and the process "
        "grows to the limit although little is in use",
        every_time=0.85,
        remedies=(
            remedy("environment", "MALLOC_ARENA_MAX=1 or 2, or another allocator by LD_PRELOAD", "contention between threads"),
            remedy("environment", "MALLOC_MMAP_THRESHOLD_=32768 where blocks are freed or shrunk between others that stay", "speed"),
            remedy("environment", "NUMPY_MADVISE_HUGEPAGE=0 where huge pages are kept", "speed"),
            remedy("axis", "fewer threads"),
        ),
        references=("man 3 mallopt, M_ARENA_MAX",),
        cures_it={"one_arena": 0.9, "no_huge_pages": 0.4, "memory_x2": 0.5, "one_thread": 0.3},
    ),
)
GROWING = ("linear", "staircase")
GIB = 1 << 30
FAR_BELOW = 0.7  # of the limit: a peak below this was not stopped by it
FIRST_STEPS = 5
SHORT_S, FEW_SAMPLES = 2.0, 50  # a death before that leaves too few samples and looks to tell forms or processes apart
GREW_BY = 0.5  # of the final size, since the first step: retention rather than one large working set
MOST, FEW = 0.5, 0.15  # of the tree's memory in its workers
DIFFERS = 1.2  # ratio of two peaks that is no accident
RARER = 1.1  # nats: memory that the allocator keeps looks like memory that the program keeps, and is the rarer of the two
LITTLE, HALF = 0.2, 0.5  # of the growth that is left under another allocator
ALLOCATOR_PROBES = ("one_arena", "no_huge_pages")
BY_HUGE_PAGES = {"no_huge_pages": 0.8, "memory_x2": 0.5}  # what cures it then: another way to allocate gets the same pages
ALLOCATORS = ("MALLOC_", "PYTHONMALLOC", "LD_PRELOAD", "NUMPY_MADVISE_HUGEPAGE", "THP_MEM_ALLOC_ENABLE", "GLIBC_TUNABLES")


def findings(case: Case) -> Iterator[Finding]:
    killed = [death for death in case.deaths if case.outcomes[death.attempt].signature == "SIGKILL:memory"]
    guarded = [] if killed else memory_guards.ended(case, highest)
    yield from _guarded(guarded)
    for death in killed:
        yield from _killed(death)
    killed = killed or guarded
    for death in killed:
        yield from _form(case, death)
        yield from _workers(death)
        yield from _huge_pages(death)
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
    elif not memory.oom_kills:
        proof = f"the process tree passed the limit of {_size(memory.limit_bytes)} and was ended by this tool"
    for cause in NAMES:
        yield finding(cause, "killed", death, 4.0, proof, "observation.json")


def _guarded(deaths: list[Observation]) -> Iterator[Finding]:
    """By the program's own monitor, which is no limit of time and no stranger."""
    for death in deaths:
        levels = f"{_size(min(map(highest, deaths)))} and {_size(max(map(highest, deaths)))}"
        fact = f"a process of its own ended it, as in all {len(deaths)} deaths, when memory was between {levels}, after however many steps"
        for cause in NAMES:
            yield finding(cause, "killed", death, 3.0, fact)
        for cause in ("watchdog_or_time_limit", "external_signal"):
            yield finding(cause, "level", death, -4.0, fact)


def _limit_met(memory: Memory) -> str:
    """In words: our own limit, or that of a group within ours or around it, which the high-water mark of ours gives away."""
    if own_limit_met(memory):
        return f"limit {_size(memory.limit_bytes)}"
    return f"at {_size(memory.peak_group_bytes)}, by the limit of a group within it or around it"


# ------------------------------------------------------------------ the form of the curve
def _form(case: Case, death: Observation) -> Iterator[Finding]:
    """Growth with the steps is retention; a level, or one large step, is a working set."""
    if _too_short(death):
        return
    curve = death.curve
    if curve is None or curve.shape == "unknown" or _before_steps(case, death):
        yield from _by_ends(case, death)
        return
    if (curve.shape in GROWING and not _within_a_step(death, curve)) or _grew_with_steps(death, curve):
        fact = _growth(curve)
        per_step = curve.per_step is not None and curve.per_step.low > 0
        yield finding(RETENTION, "form", death, 2.0 if per_step else 1.0, fact, "memory.csv")
        yield finding(ALLOCATOR, "form", death, (2.0 if per_step else 1.0) - RARER, fact, "memory.csv")
        yield finding(WORKING_SET, "form", death, -2.0 if per_step else -1.0, fact, "memory.csv")
        if met := _forecast_met(death, curve):
            yield finding(RETENTION, "forecast", death, 1.0, met, "memory.csv")
            yield finding(ALLOCATOR, "forecast", death, 1.0, met, "memory.csv")
        return
    fact = _level(death, curve)
    yield finding(WORKING_SET, "form", death, 1.5, fact, "memory.csv")
    yield finding(RETENTION, "form", death, -2.0, fact, "memory.csv")
    yield finding(ALLOCATOR, "form", death, -1.0, fact, "memory.csv")


def _too_short(death: Observation) -> bool:
    return death.wall_s < SHORT_S and death.memory.samples < FEW_SAMPLES


def _before_steps(case: Case, death: Observation) -> bool:
    """Whether it died before the first steps that other runs take: whatever rose until then, it was not the steps."""
    return (death.progress.last_step or 0) < FIRST_STEPS and any(o.progress.last_step for o in case.observations)


def _measured(case: Case, death: Observation) -> bool:
    """Whether anything tells if memory grew with the steps."""
    if _too_short(death):
        return False
    memory, curve = death.memory, death.curve
    ends = death.progress.last_step is not None and memory.first_tree_rss_bytes and memory.last_tree_rss_bytes
    return bool(ends) or _before_steps(case, death) or (curve is not None and curve.shape != "unknown")


def _by_ends(case: Case, death: Observation) -> Iterator[Finding]:
    """Without a curve of its steps that is long enough: the first step against the end."""
    steps, memory = death.progress.last_step, death.memory
    if _grew(case, death):
        first, last = _size(memory.first_tree_rss_bytes), _size(memory.last_tree_rss_bytes)
        fact = f"memory grew from {first} at the first step to {last} at step {steps}"
        yield finding(RETENTION, "form", death, 1.5, fact, "memory.csv")
        yield finding(ALLOCATOR, "form", death, 1.5 - RARER, fact, "memory.csv")
        return
    if not _measured(case, death):
        return
    early = _before_steps(case, death)
    fact = "it was killed before it had taken its first steps" if early else "memory did not grow with the steps"
    yield finding(WORKING_SET, "form", death, 1.0, fact, "memory.csv")
    yield finding(RETENTION, "form", death, -1.0, fact, "memory.csv")


def _grew(case: Case, death: Observation) -> bool:
    if death.curve and death.curve.shape != "unknown" and not _before_steps(case, death):
        return (death.curve.shape in GROWING and not _within_a_step(death, death.curve)) or _grew_with_steps(death, death.curve)
    first, last, steps = death.memory.first_tree_rss_bytes, death.memory.last_tree_rss_bytes, death.progress.last_step
    return bool(first and last and steps and steps >= FIRST_STEPS and last - first >= GREW_BY * last)


def _grew_with_steps(death: Observation, curve: MemoryCurve) -> bool:
    """Whether its steps account for most of the growth, whatever the last moment looked like."""
    steps, slope = death.progress.last_step, curve.per_step
    if slope is None or steps is None or slope.low <= 0:
        return False
    grown = curve.end_bytes - curve.start_bytes
    return steps * slope.value >= GREW_BY * grown and steps * slope.low >= FEW * curve.end_bytes


def _within_a_step(death: Observation, curve: MemoryCurve) -> bool:
    """Whether it rose while no step ended: then one step needs that much, and nothing shows that earlier ones left it behind."""
    last_s = death.progress.last_step_s
    return last_s is not None and last_s <= curve.warmup_s + FEW * (death.wall_s - curve.warmup_s)


def _growth(curve: MemoryCurve) -> str:
    if curve.shape == "staircase":
        every = f"{curve.stair_steps:.0f} steps" if curve.stair_steps else f"{curve.stair_s:.1f} s"
        return f"memory rose by {_size(curve.stair_bytes)} about every {every}"
    if curve.per_step:
        return f"memory grew by {_slope(curve.per_step)} per step after the first {curve.warmup_s:.1f} s"
    return f"memory grew by {_slope(curve.per_s)} per second after the first {curve.warmup_s:.1f} s"


def _level(death: Observation, curve: MemoryCurve) -> str:
    limit = f", limit {_size(curve.limit_bytes)}" if curve.limit_bytes else ""
    if curve.shape in GROWING:
        return f"memory rose from {_size(curve.start_bytes)} to {_size(curve.peak_bytes)} within one step{limit}"
    if curve.shape == "cliff":
        return f"memory stayed near {_size(curve.start_bytes)} and rose by {_size(curve.rise_at_end_bytes)} in the last moment{limit}"
    return f"memory did not grow with the steps ({curve.shape} at {_size(curve.start_bytes)}, peak {_size(curve.peak_bytes)}{limit})"


def _forecast_met(death: Observation, curve: MemoryCurve) -> str | None:
    """Whether the first half of the curve told when it would die."""
    forecast = curve.forecast
    if forecast is None or forecast.limit_s is None or forecast.low_s is None:
        return None
    slack = 0.1 * (forecast.limit_s - forecast.made_s)  # the limit counts a little more than the curve does
    if not forecast.low_s - slack <= death.wall_s <= (forecast.high_s or forecast.limit_s) + slack:
        return None
    return f"its first half said that the limit would be met after {forecast.limit_s:.1f} s; it died after {death.wall_s:.1f} s"


def still_grows(case: Case, cell: Cell) -> str | None:
    """What a change that only keeps clear of the limit leaves to be known: memory grows there too, and the run ended before it met it."""
    survivors = case.survivors_of(cell)
    grown = [
        (curve.per_step.value, curve, survivor)
        for survivor in survivors
        if (curve := survivor.curve) and curve.per_step and not _within_a_step(survivor, curve) and _grew_with_steps(survivor, curve)
    ]
    if not grown or len(grown) * 2 < len(survivors):
        return None
    rate, curve, fastest = max(grown, key=lambda each: each[0])
    text = f"memory grows there too, by {_size(int(rate))} per step (attempt {fastest.attempt})"
    if curve.limit_bytes:
        steps = (fastest.progress.last_step or 0) + max(0, curve.limit_bytes - curve.end_bytes) / rate
        text += f": a run of about {steps:.0f} steps meets the limit"
    return text


# ------------------------------------------------------------------ who held it
def _workers(death: Observation) -> Iterator[Finding]:
    processes = death.memory.processes
    if not processes:
        return
    workers = _pool(processes)
    if not workers:
        if _too_short(death) or _unread_deaths(death):
            return
        yield finding(WORKERS, "workers", death, -4.0, "there was no worker process", "memory.csv")
        return
    if any(map(_unread, workers)):  # gone before the first look: they held nobody knows how much
        return
    held, whole = _held_by(workers, processes, death.memory.peak_group_bytes)
    of_its_own = "" if workers[0].role == "worker" else ", programs of their own,"
    fact = f"{len(workers)} worker process{'es' if len(workers) > 1 else ''}{of_its_own} held {_size(held)} of {_size(whole)}"
    weight = 2.5 if held > MOST * whole and len(workers) > 1 else -2.0 if held < FEW * whole else 0.0
    if weight:
        yield finding(WORKERS, "workers", death, weight, fact, "memory.csv")
    if weight > 0:  # what grew, or was large, was not one process
        for cause in (RETENTION, ALLOCATOR, WORKING_SET):
            yield finding(cause, "workers", death, -1.5, fact, "memory.csv")


def _held_by(workers: list[ProcessMemory], processes: list[ProcessMemory], counted: int | None) -> tuple[int, int]:
    """What these workers held, and the whole tree.  Where forked pages are counted once for every process that has them, it is at most
    what all of them were charged with together, less what the others have."""
    held, whole = sum(map(_own, workers)), sum(map(_own, processes))
    if not counted or whole <= counted or all(worker.uss_bytes is not None for worker in workers):
        return held, whole
    mine = {worker.pid for worker in workers}
    others = sum(max(_own(process), process.anon_bytes) for process in processes if process.pid not in mine)
    return min(held, max(0, counted - others)), counted


def _unread(process: ProcessMemory) -> bool:
    """Whether only its size was seen, and not what of it is its own."""
    return process.uss_bytes is None and not process.anon_bytes + process.file_bytes + process.shmem_bytes


def _own(process: ProcessMemory) -> int:
    """What would be free without it: pages of its own, else anonymous ones."""
    return process.anon_bytes + process.shmem_bytes if process.uss_bytes is None else max(process.uss_bytes, 0)


def _pool(processes: list[ProcessMemory], *, least: int = 2) -> list[ProcessMemory]:
    """The workers; where there are none, several helpers that are programs of their own and hold about as much as each other: whoever
    starts one for each core or file has a pool, also without multiprocessing."""
    workers = [process for process in processes if process.role == "worker"]
    helpers = [process for process in processes if process.role == "other"]
    largest = max(map(_own, helpers), default=0)
    alike = [process for process in helpers if largest and _own(process) >= HALF * largest]
    large = sum(map(_own, alike)) >= FEW * sum(map(_own, processes))
    return workers or (alike if large and _at_once(alike) >= least else [])


def _worker_count(observation: Observation, *, least: int = 2) -> int:
    """Most workers at one time, and those whose deaths alone are known.  `least`: of programs of their own; one alone is none, but what
    is left of a pool."""
    return _at_once(_pool(observation.memory.processes, least=least)) + len(_unread_deaths(observation))


def _unread_deaths(observation: Observation) -> list[Death]:
    """Workers that were gone before anybody read what they held."""
    read = {process.pid for process in observation.memory.processes}
    return [death for death in observation.deaths if death.role == "worker" and death.pid not in read]


def _at_once(workers: list[ProcessMemory]) -> int:
    return max((sum(each.first_s <= other.last_s and other.first_s <= each.last_s for other in workers) for each in workers), default=0)


# ------------------------------------------------------------------ huge pages
def causes_of(case: Case) -> dict[str, Cause]:
    """Entries that predict something else of this case: memory in huge pages is not held by arenas."""
    if not _of_huge_pages(case):
        return {}
    return {cause.name: dataclasses.replace(cause, cures_it=BY_HUGE_PAGES) for cause in CAUSES if cause.name == ALLOCATOR}


def _huge_pages(death: Observation) -> Iterator[Finding]:
    """Dense data lies in huge pages as well: that they hold the memory is no evidence, but reason enough to ask what it is without them."""
    if held := _in_huge_pages(death):
        huge, whole = held
        fact = f"{_size(huge)} of the {_size(whole)} that one process held were huge pages: who touches a byte of one has all of it"
        yield finding(ALLOCATOR, "huge pages", death, RARER, fact)


def _of_huge_pages(case: Case) -> bool:
    """Whether that is so in half of the deaths, or more."""
    of_huge = sum(_in_huge_pages(death) is not None for death in case.deaths)
    return of_huge > 0 and 2 * of_huge >= len(case.deaths)


def _in_huge_pages(death: Observation) -> tuple[int, int] | None:
    """(bytes in huge pages, bytes) of the largest process, when most of what it had for itself lay in huge pages."""
    largest = max(death.memory.processes, key=_own, default=None)
    if largest is None or not largest.uss_bytes or (largest.huge_bytes or 0) <= HALF * largest.uss_bytes:
        return None
    return largest.huge_bytes or 0, largest.uss_bytes


# ------------------------------------------------------------------ across attempts
def _scaling(case: Case, killed: list[Observation]) -> Iterator[Finding]:
    """What the peak follows: the number of workers, or what one step holds."""
    grew = any(_grew(case, death) for death in killed)
    same = [death for death in killed if death.trial.cell == killed[0].trial.cell]
    contrasts = [contrast for axis in case.result.culprit if (contrast := _lower(case, same, axis))]
    after = _worker_count(same[0])
    fewer = any(_worker_count(survivor, least=1) < after for survivor, _ in contrasts)
    for survivor, fact in contrasts:
        before = _worker_count(survivor, least=1)
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
        if not grew and not fewer and any(_measured(case, death) for death in killed):
            yield finding(WORKING_SET, "scaling", same[0], 1.5, fact, "memory.csv")


def _given_back(case: Case, killed: list[Observation]) -> Iterator[Finding]:
    """Runs that had room enough show whether what a step takes is given back: then nothing keeps it, neither program nor allocator."""
    near = [each for axis in case.result.culprit for each in _survivors_beside(case, killed[0], axis)]
    curves = [(each, curve) for each in near if (curve := each.curve) and curve.shape != "unknown"]
    back = [
        (each, curve) for each, curve in curves if curve.shape == "spike" and curve.peak_bytes - curve.end_bytes > HALF * curve.peak_bytes
    ]
    if not back or 2 * len(back) < len(curves) or any(_grew(case, death) and _measured(case, death) for death in killed):
        return
    survivor, curve = max(back, key=lambda pair: pair[1].peak_bytes)
    fact = f"memory rose to {_size(curve.peak_bytes)} for a moment, was given back, and ended at {_size(curve.end_bytes)}"
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
        f"memory peaked at {_size(peak)} with {_name(survivor, axis)} and at {_size(high)} or more with {_name(same[0], axis)}",
    )


def _allocator(case: Case, killed: list[Observation]) -> Iterator[Finding]:
    """Only a run that differs by nothing but its allocator can tell memory that is kept by the allocator from memory that is in use."""
    dying = killed[0]
    huge = _of_huge_pages(case)
    for other in case.observations:
        setting = _allocator_setting(case, other, dying)
        if huge and not _without_huge_pages(case, other):
            continue  # it got the same pages in another way
        before, after = _rate(dying), _rate(other)
        if not setting or before is None or after is None or other is dying:
            continue
        kept, held = _left(case, other, after / before if before else 1.0)
        rule = next((f"probe {name}" for name in other.trial.probes), "another allocator")  # one fact: not also as any probe's outcome
        fact = f"with {setting} memory grew by {_size(int(after))} per step instead of {_size(int(before))}"
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
    if memory.oom_kills and memory.limit_bytes and own_limit_met(memory):
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
    free = f"the {_size(memory.system_available_bytes)} that were free"
    free = f"the limit of {_size(memory.limit_bytes)}" if memory.limit_bytes else free
    peak = memory.peak_group_bytes or memory.peak_tree_rss_bytes
    if peak and peak < FAR_BELOW * room:
        return f"memory peaked at {_size(memory.peak_tree_rss_bytes or peak)}, far below {free}, and the kernel counted no OOM kill"
    if curve and curve.series == "group" and curve.peak_bytes < FAR_BELOW * room:
        return f"memory without file cache peaked at {_size(curve.peak_bytes)}, far below {free}, and the kernel counted no OOM kill"
    return None


def _room(memory: Memory) -> int | None:
    """The limit, or what the machine had."""
    return memory.limit_bytes or (memory.system_available_bytes and memory.system_available_bytes + (memory.last_tree_rss_bytes or 0))


def _slope(slope: Slope | None) -> str:
    if slope is None:
        return "an unknown amount"
    return f"{_size(int(slope.value))} (95 % interval {_size(int(slope.low))} to {_size(int(slope.high))})"


def _size(count: int | None) -> str:
    if count is None:
        return "unknown size"
    if abs(count) >= GIB:
        return f"{count / GIB:.1f} GiB"
    return f"{count / (1 << 20):.0f} MiB" if abs(count) >= 10 << 20 else f"{count / 1024:.0f} KiB"
