"""The form of the curve of one run: growth with its steps, a level, or one large step.  Weights are log likelihood ratios in nats."""

from __future__ import annotations

from collections.abc import Iterator

from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import finding
from matrix.diagnosis.memory_causes import ALLOCATOR, RETENTION, WORKING_SET
from matrix.records import Cell, Finding, MemoryCurve, Observation, Slope

GROWING = ("linear", "staircase")
GIB = 1 << 30
FIRST_STEPS = 5
SHORT_S, FEW_SAMPLES = 2.0, 50  # a death before that leaves too few samples and looks to tell forms or processes apart
FEW, HALF = 0.15, 0.5  # shares
GREW_BY = 0.5  # of the final size, since the first step: retention rather than one large working set
RARER = 1.1  # nats: memory that the allocator keeps looks like memory that the program keeps, and is the rarer of the two


def form(case: Case, death: Observation) -> Iterator[Finding]:
    """Growth with the steps is retention; a level, or one large step, is a working set."""
    if too_short(death):
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


def too_short(death: Observation) -> bool:
    return death.wall_s < SHORT_S and death.memory.samples < FEW_SAMPLES


def _before_steps(case: Case, death: Observation) -> bool:
    """Whether it died before the first steps that other runs take: whatever rose until then, it was not the steps."""
    return (death.progress.last_step or 0) < FIRST_STEPS and any(o.progress.last_step for o in case.observations)


def measured(case: Case, death: Observation) -> bool:
    """Whether anything tells if memory grew with the steps."""
    if too_short(death):
        return False
    memory, curve = death.memory, death.curve
    ends = death.progress.last_step is not None and memory.first_tree_rss_bytes and memory.last_tree_rss_bytes
    return bool(ends) or _before_steps(case, death) or (curve is not None and curve.shape != "unknown")


def _by_ends(case: Case, death: Observation) -> Iterator[Finding]:
    """Without a curve of its steps that is long enough: the first step against the end."""
    steps, memory = death.progress.last_step, death.memory
    if grew(case, death):
        first, last = size(memory.first_tree_rss_bytes), size(memory.last_tree_rss_bytes)
        fact = f"memory grew from {first} at the first step to {last} at step {steps}"
        yield finding(RETENTION, "form", death, 1.5, fact, "memory.csv")
        yield finding(ALLOCATOR, "form", death, 1.5 - RARER, fact, "memory.csv")
        return
    if not measured(case, death):
        return
    early = _before_steps(case, death)
    fact = "it was killed before it had taken its first steps" if early else "memory did not grow with the steps"
    yield finding(WORKING_SET, "form", death, 1.0, fact, "memory.csv")
    yield finding(RETENTION, "form", death, -1.0, fact, "memory.csv")


def grew(case: Case, death: Observation) -> bool:
    if death.curve and death.curve.shape != "unknown" and not _before_steps(case, death):
        return (death.curve.shape in GROWING and not _within_a_step(death, death.curve)) or _grew_with_steps(death, death.curve)
    first, last, steps = death.memory.first_tree_rss_bytes, death.memory.last_tree_rss_bytes, death.progress.last_step
    return bool(first and last and steps and steps >= FIRST_STEPS and last - first >= GREW_BY * last)


def rises(run: Observation) -> bool:
    """Memory that keeps its level has the same one at every death, whatever the death is of."""
    return run.curve is not None and run.curve.shape not in ("flat", "plateau", "unknown")


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
        return f"memory rose by {size(curve.stair_bytes)} about every {every}"
    if curve.per_step:
        return f"memory grew by {_slope(curve.per_step)} per step after the first {curve.warmup_s:.1f} s"
    return f"memory grew by {_slope(curve.per_s)} per second after the first {curve.warmup_s:.1f} s"


def _level(death: Observation, curve: MemoryCurve) -> str:
    limit = f", limit {size(curve.limit_bytes)}" if curve.limit_bytes else ""
    if curve.shape in GROWING:
        return f"memory rose from {size(curve.start_bytes)} to {size(curve.peak_bytes)} within one step{limit}"
    if curve.shape == "cliff":
        return f"memory stayed near {size(curve.start_bytes)} and rose by {size(curve.rise_at_end_bytes)} in the last moment{limit}"
    return f"memory did not grow with the steps ({curve.shape} at {size(curve.start_bytes)}, peak {size(curve.peak_bytes)}{limit})"


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
    text = f"memory grows there too, by {size(int(rate))} per step (attempt {fastest.attempt})"
    if curve.limit_bytes:
        steps = (fastest.progress.last_step or 0) + max(0, curve.limit_bytes - curve.end_bytes) / rate
        text += f": a run of about {steps:.0f} steps meets the limit"
    return text


def _slope(slope: Slope | None) -> str:
    if slope is None:
        return "an unknown amount"
    return f"{size(int(slope.value))} (95 % interval {size(int(slope.low))} to {size(int(slope.high))})"


def size(count: int | None) -> str:
    if count is None:
        return "unknown size"
    if abs(count) >= GIB:
        return f"{count / GIB:.1f} GiB"
    return f"{count / (1 << 20):.0f} MiB" if abs(count) >= 10 << 20 else f"{count / 1024:.0f} KiB"
