"""When does it die?  At a step, at an edge of the optimizer step or the epoch, after a time, at a memory level, or at any moment alike.

Every law is a test with a p-value under "the moment is arbitrary"; small samples are handled exactly or by simulation with a
fixed seed, since five deaths are all that people usually have.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from matrix.records import CrashPattern, Law

FEW = 3  # deaths below which no law is told
ALPHA = 0.01  # several laws are tried on the same deaths
SIMULATED = 24_000  # numbers drawn for a p-value, as that is what takes time: it is asked after every attempt
LISTED = 4096  # ways in which the phases can fall up to which all are counted, instead of drawing some
SPREAD = 0.05  # relative: times or levels within it are the same
NEAR = 1  # steps within it are the same: counted from 0 or from 1
LATER = 2.0  # ratio of two spreads from which the smaller one is the law

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Edge = tuple[str, int, str]  # name of the law, its period in steps, what it is in words


@dataclasses.dataclass(frozen=True, kw_only=True)
class Death:
    """One death; None: not known."""

    step: int | None = None
    wall_s: float | None = None
    memory_bytes: int | None = None


def find(
    deaths: Sequence[Death],
    *,
    accum: int | None = None,
    epoch_steps: int | None = None,
    periods: Mapping[str, int] | None = None,
    survived_steps: Sequence[int] = (),
) -> CrashPattern:
    """The pattern of some deaths.  `accum`: micro-batches of an optimizer step; `periods`: other numbers of steps that something may
    happen after, by name (the whole numbers that a specification varies); `survived_steps`: of runs that did not die.

    Raises ValueError for an accum or epoch_steps below 1, or a step below 0."""
    for name, number in (("accum", accum), ("epoch_steps", epoch_steps)):
        if number is not None and number < 1:
            raise ValueError(f"{name} must be 1 or more, not {number}")
    steps = [death.step for death in deaths if death.step is not None]
    if any(step < 0 for step in steps):
        raise ValueError("a step cannot be below 0")
    edges = [
        *([("optimizer step", accum, f"the optimizer step (every {accum} batches)")] if accum else []),
        *([("epoch edge", epoch_steps, f"the edge of an epoch (every {epoch_steps} steps)")] if epoch_steps else []),
        *((f"multiples of {name}", number, f"multiples of {name}={number}") for name, number in (periods or {}).items()),
    ]
    laws = _all_laws(deaths, steps, [edge for edge in edges if edge[1] > 1], survived_steps)
    return CrashPattern(laws=laws, text=_sentence(steps, laws), steps=steps)


def _all_laws(deaths: Sequence[Death], steps: list[int], edges: Sequence[Edge], survived_steps: Sequence[int]) -> list[Law]:
    laws = []
    constant = _constant(deaths, steps)
    laws += constant
    if len(steps) >= FEW and not any(law.holds and law.name == "constant step" for law in constant):
        laws += [_edges(edge, steps, ALPHA / len(edges)) for edge in edges]
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
        same_step = name == "constant step" and max(values[name]) - min(values[name]) <= NEAR
        holds = same_step or (name != "constant step" and spread <= SPREAD and alone)
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
def _edges(edge: Edge, steps: Sequence[int], alpha: float) -> Law:
    """Whether deaths gather at one phase of a period, whichever it is; `alpha` is the share of this one among those that are tried.

    The statistic is the mean resultant length of the phases (Rayleigh); its p-value is simulated with the phases that are
    possible, because the usual formula is for angles and for more deaths.  Steps may be counted from 0 or 1: the phase is free."""
    name, period, what = edge
    if why := _untold(steps, period, alpha):
        return Law(name=name, p=None, holds=False, text=f"a relation to {what} cannot be told {why}")
    phases = np.asarray(steps, dtype=np.int64) % period
    p = _gathering(phases, period)
    listed = ", ".join(map(str, phases))
    if p < alpha:
        return Law(name=name, p=p, holds=True, text=f"deaths gather at one phase of {what} (phases {listed}; p = {p:.2g})")
    return Law(name=name, p=p, holds=False, text=f"no relation to {what} (phases {listed}; p = {p:.2g})")


def _untold(steps: Sequence[int], period: int, alpha: float) -> str | None:
    """Why no phases of these deaths could show a relation, or all would; None: they can be tested."""
    if max(steps) - min(steps) < period:
        return f"from {len(steps)} deaths within {max(steps) - min(steps) + 1} batches"  # near each other, hence at near phases
    if float(period) ** (1 - len(steps)) > alpha:  # the chance that all phases are equal
        return f"from {len(steps)} deaths"
    return None


def _gathering(phases: Ints, period: int) -> float:
    """Chance that phases anywhere gather as much as these."""
    ways = float(period) ** (len(phases) - 1)
    seen = _resultant(phases[None, :], period)[0] - 1e-9
    if ways <= LISTED:  # the first phase at 0, as the statistic does not change when all are turned
        others = np.unravel_index(np.arange(int(ways)), (period,) * (len(phases) - 1))
        return float(np.mean(_resultant(np.stack([np.zeros_like(others[0]), *others], axis=1), period) >= seen))
    draws = np.random.default_rng(0).integers(0, period, size=(_rows(len(phases)), len(phases)))
    return float((np.count_nonzero(_resultant(draws, period) >= seen) + 1) / (len(draws) + 1))


def _rows(deaths: int) -> int:
    """How often that many deaths are drawn: enough to tell ALPHA, and no more than takes some milliseconds."""
    return max(int(8 / ALPHA), SIMULATED // deaths)


def _resultant(phases: Ints, period: int) -> Floats:
    """Mean resultant length, (rows,): 1 when all phases are equal, near 0 when they are spread."""
    angles = 2 * math.pi / period * phases
    found: Floats = np.hypot(np.cos(angles).mean(axis=1), np.sin(angles).mean(axis=1))
    return found


# ------------------------------------------------------------------ hazard
def _hazard(steps: Sequence[int], survived: Sequence[int]) -> Law:
    """Is the chance of death the same at every step?  The score of a Weibull shape at 1, p-value by simulation on both sides.

    Where the longest runs survived, deaths are drawn from those before their end: later ones would not have been seen."""
    died = np.maximum(np.asarray(steps, dtype=np.float64), 0.5)
    alive = np.asarray([step for step in survived if step > 0], dtype=np.float64)
    mean = (died.sum() + alive.sum()) / len(died)
    longest = alive.max(initial=0.0)
    seen_share = -math.expm1(-longest / mean) if longest >= died.max() else 1.0
    chances = np.random.default_rng(0).random((_rows(len(died)), len(died)))
    scores = _score(-mean * np.log1p(-chances * seen_share), alive)
    score = _score(died[None, :], alive)[0]
    above, below = (int(np.count_nonzero(side)) + 1 for side in (scores >= score - 1e-9, scores <= score + 1e-9))
    p = min(1.0, 2 * min(above, below) / (len(scores) + 1))
    shape = _shape(died, alive)
    if p >= ALPHA:
        text = f"consistent with a constant hazard, one death in about {mean:.0f} steps (Weibull shape {shape:.1f}, p = {p:.2g})"
        return Law(name="hazard", p=p, holds=False, text=text)
    grows = (
        "grows with the steps: something wears out or fills up"
        if above < below
        else "falls with the steps: who survives the start lives long"
    )
    return Law(name="hazard", p=p, holds=True, text=f"the chance of death {grows} (Weibull shape {shape:.1f}, p = {p:.2g})")


def _score(died: Floats, alive: Floats) -> Floats:
    """Derivative of the Weibull log likelihood by the shape, at shape 1; `died` is (rows, deaths), the answer (rows,)."""
    count, logs = died.shape[1], np.log(died)
    mean = (died.sum(axis=1) + alive.sum()) / count
    weighted = (died * logs).sum(axis=1) + (alive * np.log(alive)).sum()
    found: Floats = count + logs.sum(axis=1) - weighted / mean
    return found


def _shape(died: Floats, alive: Floats) -> float:
    """Maximum likelihood shape, from a grid: it is only told to one decimal."""
    scaled = np.concatenate([died, alive]) / max(died.max(), alive.max(initial=0.0))
    shapes = np.exp(np.linspace(math.log(0.2), math.log(50.0), 120))
    powers = (scaled[None, :] ** shapes[:, None]).sum(axis=1)
    logs = len(died) * np.log(shapes / powers) + (shapes - 1) * np.log(scaled[: len(died)]).sum()
    return float(shapes[np.argmax(logs)])


# ------------------------------------------------------------------ words
def _sentence(steps: Sequence[int], laws: Sequence[Law]) -> str:
    if not laws:
        return f"{len(steps)} death{'s' if len(steps) != 1 else ''} with a known step: no pattern can be told from fewer than {FEW}."
    holding = [law for law in laws if law.holds]
    if holding:
        return f"{_upper(holding[0].text)}."
    telling = [law for law in laws if not law.name.startswith("constant")]
    return f"{_upper(', '.join(law.text for law in telling))}." if telling else "No pattern."


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
