"""What `benchmarks.search` compares with: other ways to choose the runs, on the same simulated programs."""

from __future__ import annotations

import dataclasses
import math
import random

from benchmarks.worlds import World
from matrix.records import Trial
from matrix.search import Search
from matrix.search.grid import Grid
from matrix.search.ledger import Ledger
from matrix.search.posterior import Belief
from matrix.search.space import Space

ERROR = 0.05  # that all of a peer's repeats together may make
MOST = 400  # runs after which a peer gives up


@dataclasses.dataclass(frozen=True)
class Played:
    """One program solved by one method.  `looks`: (probability, whether it was right) after each answer."""

    runs: int  # until it has its answer
    verify: int  # runs of the verification beside them
    exact: bool
    confirmed: bool = False
    looks: tuple[tuple[float, bool], ...] = ()


def adaptive(world: World, seed: int, *, looks: bool = False) -> Played:
    search, rng = Search(world.spec, seed=seed), random.Random(f"run {seed}")
    seen, verify = [], 0
    while (trial := search.ask()) is not None:
        verify += trial.purpose == "verify"
        search.tell(trial, world.run(trial.cell, rng))
        if looks and (result := search.result()).reproduced:
            seen.append((result.probability, result.culprit == world.truth))
    result = search.result()
    exact = result.culprit == world.truth
    return Played(result.runs - verify, verify, exact, result.confirmed, tuple(seen))


def one_at_a_time(world: World, seed: int) -> Played:
    """Every single change until it dies or has survived as often as the crash rate, which it is told, demands."""
    grid, rng = Grid(world.spec), random.Random(f"run {seed}")
    repeats = _repeats(world.rate, len(grid.singles))
    runs, dies = 1, {name: {grid.known_bad[name]} for name in grid.axes}
    for axis, value in grid.singles:
        for _ in range(repeats):
            runs += 1
            if world.run(grid.apply({axis: value}), rng).signature == "SIGABRT":
                dies[axis].add(value)
                break
    found = {name: [v for v in axis.values if v in dies[name]] for name, axis in grid.axes.items() if len(dies[name]) < len(axis.values)}
    return Played(runs, 0, found == world.truth)


def full(world: World, seed: int) -> Played:
    """Every cell as often as needed: nothing to simulate but the bill."""
    return Played(world.spec.size * _repeats(world.rate, world.spec.size), 0, True)


def random_design(world: World, seed: int) -> Played:
    """The posterior and the stop of the adaptive search, with cells drawn at random."""
    grid, rng = Grid(world.spec), random.Random(f"run {seed}")
    space, ledger = Space(grid, seed), Ledger(grid, strict=True)
    for number in range(1, MOST):
        bad = not ledger.tally(grid.known_bad).deaths
        cell = grid.known_bad if bad else rng.choice(space.pool)
        ledger.tell(Trial(id=number, cell=cell), world.run(cell, rng))
        if not bad and (belief := Belief(space, ledger, world.spec.search.confidence)).frozen:
            right = all(belief.best_contains(cell) == world.dies(cell) for cell in space.pool)
            return Played(number, 0, right)
    return Played(MOST, 0, False)


def _repeats(rate: float, cells: int) -> int:
    return 1 if rate >= 1 else math.ceil(math.log(ERROR / cells) / math.log(1 - rate))
