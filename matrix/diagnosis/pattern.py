"""When does it die?  At a step, at an edge of the optimizer step or the epoch, after a time, at a memory level, or at any moment alike.

Every law is a test with a p-value under "the moment is arbitrary"; small samples are handled exactly or by simulation with a
fixed seed, since five deaths are all that people usually have.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from matrix.records import CrashPattern, Law

FEW = 3  # deaths below which no law is told
ALPHA = 0.01  # several laws are tried on the same deaths
SIMULATED = 4000
SPREAD = 0.05  # relative: times, steps or levels within it are the same
LATER = 2.0  # ratio of two spreads from which the smaller one is the law

Floats = np.typing.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Death:
    """One death; None: not known."""

    step: int | None = None
    wall_s: float | None = None
    memory_bytes: int | None = None


def find(
    deaths: Sequence[Death], *, accum: int | None = None, epoch_steps: int | None = None, survived_steps: Sequence[int] = ()
) -> CrashPattern:
    """The pattern of some deaths.  `accum`: micro-batches of an optimizer step; `survived_steps`: of runs that did not die.

    Raises ValueError for an accum or epoch_steps below 1, or a step below 0."""
    for name, number in (("accum", accum), ("epoch_steps", epoch_steps)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be 1 or more, not {number}")
    steps = [death.step for death in deaths if death.step is not None]
    if any(step < 0 for step in steps):
        raise ValueError("a step cannot be below 0")
    laws = _all_laws(deaths, steps, accum, epoch_steps, survived_steps)
    return CrashPattern(laws=laws, text=_sentence(steps, laws), steps=steps)


def _all_laws(
    deaths: Sequence[Death], steps: list[int], accum: int | None, epoch_steps: int | None, survived_steps: Sequence[int]
) -> list[Law]:
    laws = []
    constant = _constant(deaths, steps)
    laws += constant
    if len(steps) >= FEW and not any(law.holds and law.name == "constant step" for law in constant):
        if accum and accum > 1:
            laws.append(_edges("optimizer step", steps, accum, f"the optimizer step (every {accum} batches)"))
        if epoch_steps and epoch_steps > 1:
            laws.append(_edges("epoch edge", steps, epoch_steps, f"the edge of an epoch (every {epoch_steps} steps)"))
        if not any(law.holds for law in constant):
            laws.append(_hazard(steps, survived_steps))
    return laws


# ------------------------------------------------------------------ one value that is always the same
def _constant(deaths: Sequence[Death], steps: list[int]) -> list[Law]:
    """Which of step, time and memory is the same in all deaths, while the others are not."""
    values = {
        "constant step": [float(step) for step in steps],
        "constant time": [death.wall_s for death in deaths if death.wall_s is not None],
        "constant memory": [float(death.memory_bytes) for death in deaths if death.memory_bytes is not None],
    }
    spreads = {name: _spread(found) for name, found in values.items() if len(found) >= FEW}
    laws = []
    for name, spread in spreads.items():
        others = [other for key, other in spreads.items() if key != name]
        alone = not others or max(others) >= LATER * max(spread, SPREAD / LATER)
        holds = spread <= SPREAD and (alone or name == "constant step")
        seen = _range(name, values[name])
        text = f"{_what(name)} is always the same ({seen})" if holds else f"{_what(name)} varied by {spread:.0%} ({seen})"
        laws.append(Law(name=name, p=None, holds=holds, text=text))
    return laws


def _spread(values: Sequence[float]) -> float:
    """Standard deviation as a share of the mean."""
    mean = sum(values) / len(values)
    return float(np.std(values)) / mean if mean else 0.0


def _what(name: str) -> str:
    return {"constant step": "the step of death", "constant time": "the time of death", "constant memory": "the memory at death"}[name]


def _range(name: str, values: Sequence[float]) -> str:
    low, high = min(values), max(values)
    if name == "constant time":
        return f"{low:.1f} to {high:.1f} s"
    return f"{low / (1 << 20):.0f} to {high / (1 << 20):.0f} MiB" if name == "constant memory" else f"{low:.0f} to {high:.0f}"


# ------------------------------------------------------------------ edges
def _edges(name: str, steps: Sequence[int], period: int, what: str) -> Law:
    """Whether deaths gather at one phase of a period, whichever it is.

    The statistic is the mean resultant length of the phases (Rayleigh); its p-value is simulated with the phases that are
    possible, because the usual formula is for angles and for more deaths.  Steps may be counted from 0 or 1: the phase is free."""
    phases = np.asarray(steps, dtype=np.float64) % period
    seen = _resultant(phases[None, :], period)[0]
    draws = np.random.default_rng(0).integers(0, period, size=(SIMULATED, len(steps))).astype(np.float64)
    p = float((np.count_nonzero(_resultant(draws, period) >= seen - 1e-12) + 1) / (SIMULATED + 1))
    listed = ", ".join(f"{phase:.0f}" for phase in phases)
    if p < ALPHA:
        return Law(name=name, p=p, holds=True, text=f"deaths gather at one phase of {what} (phases {listed}; p = {p:.2g})")
    return Law(name=name, p=p, holds=False, text=f"no relation to {what} (phases {listed}; p = {p:.2g})")


def _resultant(phases: Floats, period: int) -> Floats:
    """Mean resultant length, (rows,): 1 when all phases are equal, near 0 when they are spread."""
    found: Floats = np.abs(np.exp(2j * math.pi * phases / period).mean(axis=1))
    return found


# ------------------------------------------------------------------ hazard
def _hazard(steps: Sequence[int], survived: Sequence[int]) -> Law:
    """Is the chance of death the same at every step?  Weibull shape against 1, likelihood ratio, p-value by simulation."""
    died = np.maximum(np.asarray(steps, dtype=np.float64), 0.5)
    alive = np.asarray([step for step in survived if step > 0], dtype=np.float64)
    shape, ratio = _weibull(died, alive)
    generator = np.random.default_rng(0)
    mean = (died.sum() + alive.sum()) / len(died)
    drawn = [_weibull(generator.exponential(mean, len(died)), alive)[1] for _ in range(SIMULATED // 10)]
    p = (sum(value >= ratio for value in drawn) + 1) / (len(drawn) + 1)
    if p >= ALPHA:
        text = f"consistent with a constant hazard, one death in about {mean:.0f} steps (Weibull shape {shape:.1f}, p = {p:.2g})"
        return Law(name="hazard", p=p, holds=False, text=text)
    grows = (
        "grows with the steps: something wears out or fills up" if shape > 1 else "falls with the steps: who survives the start lives long"
    )
    return Law(name="hazard", p=p, holds=True, text=f"the chance of death {grows} (Weibull shape {shape:.1f}, p = {p:.2g})")


def _weibull(died: Floats, alive: Floats) -> tuple[float, float]:
    """Maximum likelihood shape, and twice the log likelihood ratio against shape 1; a grid is exact enough for a test."""
    times = np.concatenate([died, alive])
    scaled = times / times.max()
    shapes = np.exp(np.linspace(math.log(0.2), math.log(50.0), 120))
    powers = (scaled[None, :] ** shapes[:, None]).sum(axis=1)
    logs = len(died) * (np.log(shapes) + np.log(len(died) / powers)) + (shapes - 1) * np.log(died / times.max()).sum() - len(died)
    exponential = len(died) * math.log(len(died) / scaled.sum()) - len(died)
    best = int(np.argmax(logs))
    return float(shapes[best]), max(0.0, 2 * float(logs[best] - exponential))


# ------------------------------------------------------------------ words
def _sentence(steps: Sequence[int], laws: Sequence[Law]) -> str:
    if not laws:
        return f"{len(steps)} death{'s' if len(steps) != 1 else ''} with a known step: no pattern can be told from fewer than {FEW}."
    holding = [law for law in laws if law.holds]
    if holding:
        return f"{_upper(holding[0].text)}."
    telling = [law for law in laws if law.p is not None]
    return f"{_upper(', '.join(law.text for law in telling))}." if telling else "No pattern."


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
