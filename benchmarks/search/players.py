"""How the search itself solves a program: through ask, tell and result, as its users do."""

from __future__ import annotations

import dataclasses
import importlib
import random
import resource
import time
from typing import Any

from benchmarks.search.worlds import World, world
from matrix.records import Cell, Outcome, Trial, Value
from matrix.search import Result, Search

MOST = 400  # runs after which a random design gives up
SUSPICION = 4.0
MANY = 5000  # cells that are compared with an answer
SUSPECTED = {"suspects right": 1.0, "suspects right in 4 of 5": 0.8, "suspects wrong": 0.0}  # how often the true axes are among them
SIZES: dict[str, dict[str, Any]] = {"7 axes": {"axes": 7, "levels": (2, 4)}, "20 axes of 4": {"axes": 20, "levels": (4, 4)}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Played:
    """One program solved by one method."""

    runs: int  # until the answer: for a posterior, until it first reached the asked confidence
    exact: bool  # the final answer is the crash set, neither more nor less
    verify: int = 0  # runs after that, of the verification
    exact_then: bool | None = None  # the answer when the posterior reached the confidence; None: as `exact`
    reproduced: bool = True
    confirmed: bool = False
    looks: tuple[tuple[float, bool], ...] = ()  # after each answer: the probability that was said, and whether it was right
    cost_s: float = 0.0  # simulated seconds of all runs
    decisions: int = 0
    decisions_cpu_s: float = 0.0  # of tell, result and ask
    slowest_cpu_s: float = 0.0


def adaptive(world: World, seed: int) -> Played:
    return play(world, Search(world.spec, seed=seed), seed)


def strategy(world: World, seed: int, name: str) -> Played:
    """Another strategy of the tool, read by the same decoder."""
    options = world.spec.search.model_copy(update={"strategy": name})
    return play(world, Search(world.spec.model_copy(update={"search": options}), seed=seed), seed)


def play(world: World, search: Search, seed: int) -> Played:
    rng, looks = random.Random(f"run {seed}"), list[tuple[float, bool]]()
    taken, runs, cost, reached = list[float](), 0, 0.0, None
    trial = search.ask()
    while trial is not None:
        outcome = world.run(trial.cell, rng, trial.max_steps)
        trial, result, seconds = _answer(search, trial, outcome)
        taken.append(seconds)
        runs, cost = runs + 1, cost + outcome.seconds
        if result.reproduced:
            looks.append((round(result.probability, 4), named(world, result)))
            if reached is None and result.probability >= world.spec.search.confidence:
                reached = runs
    result, until = search.result(), reached or runs
    return Played(
        runs=until,
        verify=runs - until,
        exact=right(world, result),
        exact_then=looks[until - runs - 1][1] if reached else False,
        reproduced=result.reproduced,
        confirmed=result.confirmed,
        looks=tuple(looks),
        cost_s=cost,
        decisions=len(taken),
        decisions_cpu_s=sum(taken),
        slowest_cpu_s=max(taken),
    )


def suspected(world: World, seed: int, quality: float) -> Played:
    """With what single deaths may tell: the axes of the truth and one more weigh four times as much as the rest before anything
    is run; with the chance 1 - quality it is as many others instead."""
    draw, (truth,) = random.Random(f"suspects {seed}"), world.causes
    others = [axis.name for axis in world.spec.axes if axis.name not in truth]
    draw.shuffle(others)
    named = [*truth, others[0]] if draw.random() < quality else others[: len(truth) + 1]
    search = Search(world.spec, seed=seed)
    search.suspect_axes(dict.fromkeys(named, SUSPICION))
    return play(world, search, seed)


def _answer(search: Search, trial: Trial, outcome: Outcome) -> tuple[Trial | None, Result, float]:
    """The next trial, the result before it is asked, and the processor seconds of both."""
    began = time.process_time()
    search.tell(trial, outcome)
    result = search.result()
    return search.ask(), result, time.process_time() - began


def random_design(world: World, seed: int) -> Played:
    """The decoder and the stop of the adaptive search, told of cells drawn at random."""
    search, rng = Search(world.spec, seed=seed), random.Random(f"run {seed}")
    drawn = random.Random(f"cells {seed}")
    result = search.result()
    for number in range(1, MOST + 1):
        cell = {axis.name: drawn.choice(axis.values) for axis in world.spec.axes} if result.reproduced else world.spec.known_bad
        search.tell(Trial(id=number, cell=cell, purpose="find" if result.reproduced else "calibrate"), world.run(cell, rng))
        result = search.result()
        if result.reproduced and result.probability >= world.spec.search.confidence:
            return Played(runs=number, exact=right(world, result))
    return Played(runs=MOST, exact=False, reproduced=result.reproduced)


def right(world: World, result: Result) -> bool:
    """Whether the crash set is named, neither more nor less; of several causes, whether the fix names and removes them all; of what is
    no list of values, whether the answer in full is right about every cell."""
    if len(world.causes) == 1:
        return result.culprit == world.causes[0]
    if not world.causes:
        return bool(result.crash_set) and all(result.dies(cell) == world.dies(cell) for cell in _cells(world))
    if result.fix is None:
        return False
    axes = {axis for cause in world.causes for axis in cause}
    named = any(set(each.axes) == axes for each in result.interactions)
    return named and not result.culprit and set(result.fix.set) == axes and not world.dies(result.fix.cell)


def named(world: World, result: Result) -> bool:
    """What the probability of an answer is about: whether it names what single changes do."""
    if world.causes:
        return right(world, result)
    bad, died = world.spec.known_bad, dict[str, list[Value]]()
    for axis in world.spec.axes:
        values = [value for value in axis.values if world.dies({**bad, axis.name: value})]
        if len(values) < len(axis.values):
            died[axis.name] = values
    return result.culprit == died


def _cells(world: World) -> list[Cell]:
    """All of them, or as many drawn at random."""
    if world.spec.size <= MANY:
        return list(world.spec.cells())
    rng = random.Random("cells that are compared")
    return [{axis.name: rng.choice(axis.values) for axis in world.spec.axes} for _ in range(MANY)]


def decision_times(size: str) -> tuple[dict[str, float], int]:
    """Processor milliseconds of `tell`, `result` and `ask` in one search, the first of which builds the hypotheses, and the
    most memory in MiB that this process ever had."""
    importlib.import_module("matrix.search.choose")  # with numpy: once a process, whatever is searched
    program = world(0, "pair", 1.0, **SIZES[size])
    search, rng, taken = Search(program.spec, seed=0), random.Random(0), list[float]()
    trial = search.ask()
    while trial is not None:
        trial, _, seconds = _answer(search, trial, program.run(trial.cell, rng, trial.max_steps))
        taken.append(seconds * 1e3)
    later = sorted(taken[1:]) or taken
    times = {"first": round(taken[0], 1), "median": round(later[len(later) // 2], 1), "max": round(later[-1], 1)}
    return times, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
