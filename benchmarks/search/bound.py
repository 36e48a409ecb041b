"""How few runs could be enough: what there is to be learnt over what one run can teach."""

from __future__ import annotations

import math
import random
from collections import Counter

from benchmarks.search.worlds import KINDS, draw, world


def entropy(kind: str, *, worlds: int = 10, draws: int = 3000) -> float:
    """Bits of the distribution that truths of this kind are drawn from ("all": any of KINDS), the axes and the known-bad cell known."""
    total = 0.0
    for seed in range(worlds):
        program = world(seed, "threshold", 1.0)
        matrix = {axis.name: list(axis.values) for axis in program.spec.axes}
        rng = random.Random(f"entropy {seed}")
        drawn = (draw(rng, rng.choice(KINDS) if kind == "all" else kind, matrix, program.spec.known_bad) for _ in range(draws))
        counts = Counter(str(truth) for truth in drawn)
        total -= sum(count / draws * math.log2(count / draws) for count in counts.values())
    return total / worlds


def capacity(rate: float) -> float:
    """Bits of one run at best: a Z-channel, since outside the crash set nothing dies."""
    miss = 1 - rate
    return 1.0 if miss <= 0 else math.log2(1 + rate * miss ** (miss / rate))
