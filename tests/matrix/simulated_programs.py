"""Programs that exist only as a predicate: they stand in for the process, so that the search is tested without one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from matrix.records import Cell, Outcome, Trial
from matrix.search import Search
from matrix.spec import Spec

AXES: dict[str, Any] = {
    "bs": [8, 16, 32, 64, 128],
    "accum": [1, 4, 16],
    "threads": [1, 2],
    "mining": ["off", "sync", "thread"],
    "shuffle": ["shuffled", "sequential"],
    "workers": [0, 2],
}
BAD: Cell = {"bs": 64, "accum": 16, "threads": 2, "mining": "sync", "shuffle": "shuffled", "workers": 2}

Program = Callable[[Trial, random.Random], Outcome]


def make_spec(matrix: dict[str, Any] | None = None, known_bad: Cell | None = None, **sections: Any) -> Spec:
    sections.setdefault("search", {"max_runs": 200})
    sections.setdefault("run", {"command": ["program"]})
    return Spec.model_validate({"matrix": matrix or AXES, "known_bad": known_bad or BAD, **sections})


def survived(steps: int = 40) -> Outcome:
    return Outcome(kind="survived", steps=steps, seconds=2.0)


def died(signature: str = "SIGABRT", steps: int = 5) -> Outcome:
    return Outcome(kind="died", steps=steps, seconds=1.0, signature=signature)


def crashing(where: Callable[[Cell], bool], rate: float = 1.0) -> Program:
    """Dies with `rate` per run in the cells that `where` names."""
    return lambda trial, rng: died() if where(trial.cell) and rng.random() < rate else survived()


def play(search: Search, program: Program, *, seed: int = 0, most: int = 10_000) -> Search:
    """Runs one trial after another until the search is done, or `most` were run."""
    rng = random.Random(f"world {seed}")
    for _ in range(most):
        trial = search.ask()
        if trial is None:
            assert search.done
            break
        search.tell(trial, program(trial, rng))
    return search


def cells_run(search: Search) -> list[Cell]:
    return [trial.cell for trial, _ in search.log]
