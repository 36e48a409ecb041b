"""Simulated programs: axes, a known-bad cell and the cells that die, all drawn from a seed, so that every method gets the same ones."""

from __future__ import annotations

import dataclasses
import math
import random
import zlib
from collections.abc import Callable
from typing import Any

from matrix.records import Cell, Outcome, Value
from matrix.spec import Spec

STEPS = 2000  # of a run that is not asked to be shorter or longer
START_S, STEP_S = 20.0, 0.01  # where the length is chosen: as long to start as 2,000 steps take
KINDS = ("single", "pair", "threshold")
OUTSIDE = ("product", "either but not both", "two of three", "a hole", "three causes", "any cells")
SETTINGS = {"max_runs": 500}  # hardly any program needs so many
MAIN, OTHER = "SIGABRT", "SIGSEGV"

Truth = dict[str, list[Value]]  # the values that die, of each axis that matters; a cell dies when all of them agree


@dataclasses.dataclass(frozen=True)
class World:
    """One program.  `rate`: chance of a death in a run of 2,000 steps of a cell that `dies`.

    `causes`: crash sets any of which is enough; empty when the truth cannot be said like that.  `noise`: chance per 2,000
    steps of an unrelated death with a signature of its own.  `shape`: when in a run it dies: "constant" hazard, a "step" of the
    run, or "wear" (something fills up).  `chosen`: the program can be asked for shorter and longer runs."""

    spec: Spec
    causes: tuple[Truth, ...]
    dies: Callable[[Cell], bool]
    rate: float
    noise: float = 0.0
    shape: str = "constant"
    chosen: bool = False

    def run(self, cell: Cell, rng: random.Random, max_steps: int | None = None) -> Outcome:
        """Of a run with a fixed length no seconds are told: every run costs the same, and what is counted is runs."""
        length = max_steps or STEPS
        death = self._death(rng) if self.dies(cell) else math.inf
        unrelated = _exponential(self.noise, rng)
        steps = int(min(death, unrelated, length))
        seconds = START_S + steps * STEP_S if self.chosen else 0.0
        if min(death, unrelated) < length:
            return Outcome(kind="died", steps=steps, seconds=seconds, signature=MAIN if death <= unrelated else OTHER)
        if not self.chosen and length < STEPS:
            return Outcome(kind="censored", steps=length, seconds=seconds, reason="ended by us")
        return Outcome(kind="survived", steps=length, seconds=seconds)

    def _death(self, rng: random.Random) -> float:
        if self.shape == "constant":
            return _exponential(self.rate, rng) if self.rate < 1 else rng.randrange(STEPS)
        if rng.random() >= self.rate:
            return math.inf
        return 700.0 if self.shape == "step" else max(1.0, rng.gauss(1200.0, 100.0))


def _exponential(chance: float, rng: random.Random) -> float:
    """The step of a death that comes with this chance within 2,000 steps, at a constant hazard."""
    draw = rng.random()
    return math.log1p(-draw) / math.log1p(-chance) * STEPS if 0 < chance < 1 else math.inf


def world(seed: int, kind: str, rate: float, *, axes: int = 7, levels: tuple[int, int] = (2, 4), **options: Any) -> World:
    """Half of the axes are ordered numbers, half are names; the known-bad cell is anywhere.

    `kind`: one of KINDS or OUTSIDE, "two causes", or the number of conditions ("3")."""
    rng = random.Random(f"world {seed} {kind}")
    matrix: dict[str, list[Value]] = {}
    for index in range(axes):
        count = rng.randint(*levels)
        matrix[f"x{index}"] = [2**k for k in range(count)] if index % 2 == 0 else [f"v{k}" for k in range(count)]
    bad: Cell = {name: rng.choice(values) for name, values in matrix.items()}
    if kind == "threshold" and all(len(values) < 3 for name, values in matrix.items() if _number(name)):
        matrix["x0"] = [1, 2, 4]
    if kind in OUTSIDE and kind != "three causes":
        dies = _odd(rng, kind, matrix, bad)  # first: a product sets axes of its own
        return World(_spec(matrix, bad, options), (), dies, rate, **options)
    independent = {"two causes": 2, "three causes": 3}.get(kind)
    causes = _independent(rng, independent, matrix, bad) if independent else (draw(rng, kind, matrix, bad),)
    return World(_spec(matrix, bad, options), causes, lambda cell: any(holds(cause, cell) for cause in causes), rate, **options)


def one_axis(seed: int, levels: int, rate: float) -> World:
    """A threshold on the only axis, whose largest value is known to be bad: what bisection is made for."""
    rng = random.Random(f"axis {seed}")
    values: list[Value] = list(range(levels))
    truth: Truth = {"x0": values[rng.randrange(1, levels) :]}
    return World(_spec({"x0": values}, {"x0": values[-1]}, {}), (truth,), lambda cell: holds(truth, cell), rate)


def holds(truth: Truth, cell: Cell) -> bool:
    return all(cell[axis] in values for axis, values in truth.items())


def _spec(matrix: dict[str, list[Value]], bad: Cell, options: dict[str, Any]) -> Spec:
    run = {"command": ["program"]} | ({"length": {"flag": "--max-steps"}} if options.get("chosen") else {})
    return Spec.model_validate({"run": run, "matrix": matrix, "known_bad": bad, "search": SETTINGS})


# ------------------------------------------------------------------ crash sets
def draw(rng: random.Random, kind: str, matrix: dict[str, list[Value]], bad: Cell) -> Truth:
    if kind == "single":
        axis = rng.choice(list(matrix))
        return {axis: [bad[axis]]}
    if kind == "threshold":
        axis = rng.choice([name for name, values in matrix.items() if _number(name) and len(values) > 2])
        return {axis: _threshold(rng, matrix[axis], bad[axis])}
    order = 2 if kind == "pair" else int(kind)
    return {axis: _values(rng, axis, matrix, bad) for axis in sorted(rng.sample(list(matrix), order))}


def _values(rng: random.Random, axis: str, matrix: dict[str, list[Value]], bad: Cell) -> list[Value]:
    return _threshold(rng, matrix[axis], bad[axis]) if _number(axis) and rng.random() < 0.5 else [bad[axis]]


def _threshold(rng: random.Random, values: list[Value], bad: Value) -> list[Value]:
    """At least, or at most, some value; never all of them."""
    place = values.index(bad)
    return rng.choice([values[low:] for low in range(1, place + 1)] + [values[:high] for high in range(place + 1, len(values))])


def _independent(rng: random.Random, count: int, matrix: dict[str, list[Value]], bad: Cell) -> tuple[Truth, ...]:
    return tuple({axis: _values(rng, axis, matrix, bad)} for axis in sorted(rng.sample(list(matrix), count)))


def _odd(rng: random.Random, kind: str, matrix: dict[str, list[Value]], bad: Cell) -> Callable[[Cell], bool]:
    """Crash sets that are no conjunction and no independent causes; the known-bad cell is in all of them."""
    salt = f"{rng.random()}"
    if kind == "any cells":  # half of them, without a pattern
        return lambda cell: cell == bad or zlib.crc32(f"{salt}{sorted(cell.items())}".encode()) % 2 == 0
    if kind == "product":
        matrix["x0"], matrix["x2"] = [1, 2, 4, 8], [1, 2, 4, 8]
        bad["x0"], bad["x2"] = 8, 4
        return lambda cell: int(cell["x0"]) * int(cell["x2"]) >= 16
    one, two, three = ({axis: [bad[axis]]} for axis in rng.sample(list(matrix), 3))
    if kind == "either but not both":
        (axis,) = two
        return lambda cell: holds(one, cell) != (cell[axis] != bad[axis])
    if kind == "two of three":
        return lambda cell: sum(holds(each, cell) for each in (one, two, three)) >= 2
    assert kind == "a hole"  # in the crash set of one condition: it survives where two other axes are changed
    return lambda cell: holds(one, cell) and (holds(two, cell) or holds(three, cell))


def _number(name: str) -> bool:
    return int(name[1:]) % 2 == 0
