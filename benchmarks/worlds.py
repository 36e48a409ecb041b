"""Simulated programs for `benchmarks.search`: axes, a known-bad cell and a crash set, drawn from a seed."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

from matrix.records import Cell, Outcome, Value
from matrix.spec import Spec

STEPS = 2000  # of a run that survives
KINDS = ("single", "pair", "threshold")
SETTINGS = {"max_runs": 500}  # no program of the figures needs so many


@dataclasses.dataclass(frozen=True)
class World:
    """`truth`: the values that die, of each axis that matters; a cell dies (with `rate` per run) when all of them agree.

    `noise`: chance per run of an unrelated death, with a signature of its own."""

    spec: Spec
    truth: dict[str, list[Value]]
    kind: str
    rate: float
    noise: float = 0.0

    def dies(self, cell: Cell) -> bool:
        return all(cell[axis] in values for axis, values in self.truth.items())

    def run(self, cell: Cell, rng: random.Random) -> Outcome:
        """Every run costs the same second, so that what is counted is runs."""
        if rng.random() < self.noise:
            return Outcome(kind="died", steps=rng.randrange(STEPS), seconds=1.0, signature="SIGSEGV")
        if self.dies(cell) and rng.random() < self.rate:
            return Outcome(kind="died", steps=rng.randrange(STEPS), seconds=1.0, signature="SIGABRT")
        return Outcome(kind="survived", steps=STEPS, seconds=1.0)


def world(seed: int, kind: str, rate: float, *, axes: int = 7, levels: tuple[int, int] = (2, 4), noise: float = 0.0) -> World:
    """Half of the axes are ordered numbers, half are names; the known-bad cell is anywhere.  `kind`: see KINDS; a number is an order."""
    rng = random.Random(f"world {seed} {kind}")
    matrix: dict[str, Any] = {}
    for index in range(axes):
        count = rng.randint(*levels)
        matrix[f"x{index}"] = [2**k for k in range(count)] if index % 2 == 0 else [f"v{k}" for k in range(count)]
    bad: Cell = {name: rng.choice(values) for name, values in matrix.items()}
    if kind == "threshold" and all(len(values) < 3 for name, values in matrix.items() if _number(name)):
        matrix["x0"] = [1, 2, 4]
    truth = _truth(rng, kind, matrix, bad)
    spec = Spec.model_validate({"run": {"command": ["program"]}, "matrix": matrix, "known_bad": bad, "search": SETTINGS})
    return World(spec, truth, kind, rate, noise)


def _truth(rng: random.Random, kind: str, matrix: dict[str, list[Value]], bad: Cell) -> dict[str, list[Value]]:
    if kind == "single":
        axis = rng.choice(list(matrix))
        return {axis: [bad[axis]]}
    if kind == "threshold":
        axis = rng.choice([name for name, values in matrix.items() if _number(name) and len(values) > 2])
        return {axis: _threshold(rng, matrix[axis], bad[axis])}
    order = 2 if kind == "pair" else int(kind)
    chosen = sorted(rng.sample(list(matrix), order))
    return {axis: _threshold(rng, matrix[axis], bad[axis]) if _number(axis) and rng.random() < 0.5 else [bad[axis]] for axis in chosen}


def _threshold(rng: random.Random, values: list[Value], bad: Value) -> list[Value]:
    """At least, or at most, some value; never all of them."""
    place = values.index(bad)
    return rng.choice([values[low:] for low in range(1, place + 1)] + [values[:high] for high in range(place + 1, len(values))])


def _number(name: str) -> bool:
    return int(name[1:]) % 2 == 0
