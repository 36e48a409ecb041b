"""How long a run may be asked to be, and what it then costs and stands.

Longer than its natural end only where the specification says how to ask for that (`run.length`): bits per step are about the same,
so a longer run saves starts.  Shorter only where the deaths show that nearly all of them come early.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from matrix.search.hazard import Hazard
from matrix.search.hypotheses import Floats

if TYPE_CHECKING:
    from matrix.spec import Spec

LONGER = (2, 4, 8, 16)  # times the natural length
SHORTER = 8  # times the latest death: an axis such as the batch size changes how much is done in a step, and so the step of death
EARLY = 0.9  # share of the deaths that a shorter run must keep
OF_WALL = 0.5  # of the limit on one attempt's time: no run is asked for that may need more
POINTS = 9  # of a survival curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class Length:
    """A length that a run may be asked for.  `max_steps` None: to the program's natural end."""

    max_steps: int | None
    survived_s: float  # of a run that survives
    died_s: float  # of a run that dies
    deadly: Floats  # P(a run of a cell of the crash set dies), by the rates that were asked for
    background: Floats  # the same by the rates outside


def lengths(spec: Spec, hazard: Hazard, natural_s: tuple[float, float], rates: tuple[Floats, Floats], likely: Floats) -> list[Length]:
    """The natural length first.  `natural_s`: seconds of a natural run that survives, and of one that dies; `rates`: inside and outside
    of the crash set; `likely`: how likely each of the former is."""
    found = [Length(max_steps=None, survived_s=natural_s[0], died_s=natural_s[1], deadly=rates[0], background=rates[1])]
    if hazard.natural is None or not hazard.pace.step_s:
        return found
    others = [*_shorter(hazard, rates[0]), *_longer(spec, hazard, hazard.natural)]
    usual = _death_step(hazard, hazard.natural, rates[0], likely) if others else 0.0
    for steps in others:
        seconds = hazard.pace.seconds(steps)
        later = hazard.pace.step_s * (_death_step(hazard, steps, rates[0], likely) - usual)
        deadly, background = (1 - hazard.survival(steps, seconds, each) for each in rates)
        found.append(
            Length(max_steps=steps, survived_s=seconds, died_s=max(0.0, natural_s[1] + later), deadly=deadly, background=background)
        )
    return found


def _longer(spec: Spec, hazard: Hazard, natural: float) -> list[int]:
    if spec.run.length is None:
        return []
    limit = spec.limits.wall_s
    steps = [round(times * natural) for times in LONGER]
    return [each for each in steps if limit is None or hazard.pace.seconds(each) <= OF_WALL * limit]


def _shorter(hazard: Hazard, rates: Floats) -> list[int]:
    if hazard.latest is None or hazard.natural is None:
        return []
    steps = math.ceil(SHORTER * hazard.latest)
    kept = (1 - hazard.survival(steps, hazard.pace.seconds(steps), rates)) / rates
    return [steps] if steps < hazard.natural / 2 and kept[len(rates) // 2] >= EARLY else []


def _death_step(hazard: Hazard, steps: float, rates: Floats, likely: Floats) -> float:
    """Mean step of the deaths in a run of this length."""
    places = np.linspace(0.0, steps, POINTS)
    curve = np.array([hazard.survival(place, hazard.pace.seconds(place), rates) @ likely for place in places])
    dying = curve[0] - curve
    before = float((dying[1:] + dying[:-1]).mean() / 2)  # of the run, by trapezoids
    return float(steps * (1 - before / dying[-1])) if dying[-1] > 0 else steps / 2
