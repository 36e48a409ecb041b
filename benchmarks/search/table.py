"""Who solves which programs: the rows of the table, and the parts that it is measured in."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.record import RESULTS
from benchmarks.search import peers, players
from benchmarks.search.players import Played
from benchmarks.search.worlds import KINDS, OUTSIDE, World, one_axis, world

PARTS = RESULTS / "tmp" / "search"  # one file a part, one line a program
HERE = Path(__file__).parent
SEARCH = HERE.parents[1] / "matrix" / "search"
LEVELS = 32  # of the ordered axis that bisection gets

METHODS: dict[str, Callable[[World, int], Played]] = {
    "adaptive": players.adaptive,
    "random design, same posterior": players.random_design,
    "our one_at_a_time": functools.partial(players.strategy, name="one_at_a_time"),
    "our pairwise": functools.partial(players.strategy, name="pairwise"),
    "one at a time": peers.one_at_a_time,
    "one at a time, 3 repeats": peers.one_at_a_time_thrice,
    "ddmin and sweep": peers.ddmin,
    "pairwise and Ochiai": peers.pairwise_ochiai,
    "full factorial": peers.full,
    "git_bayesect": peers.git_bayesect,
    **{name: functools.partial(players.suspected, quality=quality) for name, quality in players.SUSPECTED.items()},
}
OURS = ("adaptive", "random design, same posterior", "our one_at_a_time", "our pairwise", *players.SUSPECTED)
EVERY = tuple(name for name in METHODS if name != "git_bayesect" and name not in players.SUSPECTED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """Programs of one sort.  `kinds`: each has as many programs as are asked for; `options` go to the world."""

    name: str
    kinds: tuple[str, ...]
    rate: float = 1.0
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict, hash=False)
    methods: tuple[str, ...] = ("adaptive",)
    runs_wanted: int | None = None  # median, at most
    exact_wanted: float | None = None  # share, at least

    def program(self, kind: str, number: int) -> World:
        if kind == "one axis":
            return one_axis(number, LEVELS, self.rate)
        if kind == "like the prior":
            return _like_the_prior(number)
        return world(number, KINDS[number % len(KINDS)] if kind == "mixed" else kind, self.rate, **self.options)


def _like_the_prior(number: int) -> World:
    """One condition mostly, two or three at times; three in four crashes come every time, the others at any rate down to 0.15."""
    rng = random.Random(f"prior {number}")
    kind = rng.choices(["single", "threshold", "pair", "3"], [0.34, 0.34, 0.25, 0.07])[0]
    rate = 1.0 if rng.random() < 0.75 else 0.0
    while not 0.15 <= rate <= 1.0:
        rate = rng.betavariate(0.5, 0.5)
    return world(number, kind, rate)


MIXED = ("mixed",)
TRADING = ("product", "a hole")  # what survives is a corner of two axes
NOTHING = tuple(kind for kind in OUTSIDE if kind not in TRADING)
CHOSEN = {"chosen": True}
ROWS = [
    Row(name="fixed length, p=1", kinds=KINDS, rate=1.0, methods=EVERY, runs_wanted=5, exact_wanted=0.97),
    Row(name="fixed length, p=0.5", kinds=KINDS, rate=0.5, methods=EVERY, runs_wanted=21, exact_wanted=0.97),
    Row(name="fixed length, p=0.2", kinds=KINDS, rate=0.2, methods=EVERY, runs_wanted=68, exact_wanted=0.97),
    Row(name="length chosen, p=0.5", kinds=MIXED, rate=0.5, options=CHOSEN, runs_wanted=14, exact_wanted=0.97),
    Row(name="length chosen, p=0.2", kinds=MIXED, rate=0.2, options=CHOSEN, runs_wanted=20, exact_wanted=0.97),
    Row(name="length chosen, p=0.05", kinds=MIXED, rate=0.05, options=CHOSEN, runs_wanted=60, exact_wanted=0.97),
    Row(name="length chosen, dies at one step, p=0.5", kinds=MIXED, rate=0.5, options={**CHOSEN, "shape": "step"}, exact_wanted=0.97),
    Row(name="length chosen, something fills up, p=1", kinds=MIXED, options={**CHOSEN, "shape": "wear"}, exact_wanted=0.97),
    Row(name="10 % unrelated crashes, p=1", kinds=MIXED, options={"noise": 0.1}, exact_wanted=0.97),
    Row(name="10 % unrelated crashes, p=0.5", kinds=MIXED, rate=0.5, options={"noise": 0.1}, exact_wanted=0.97),
    Row(name="three conditions, p=1", kinds=("3",), exact_wanted=0.95),
    Row(name="four conditions, p=1", kinds=("4",), exact_wanted=0.90),
    Row(name="two causes, p=1", kinds=("two causes",), exact_wanted=0.90),
    Row(name="two axes trade off, p=1", kinds=TRADING, exact_wanted=0.90),
    Row(name="two axes trade off, p=0.5", kinds=TRADING, rate=0.5),
    Row(name="no hypothesis, p=1", kinds=NOTHING),
    Row(name="no hypothesis, p=0.5", kinds=NOTHING, rate=0.5),
    Row(name="axes suspected, p=0.5", kinds=MIXED, rate=0.5, methods=("adaptive", *players.SUSPECTED)),
    Row(name="like the prior", kinds=("like the prior",)),
    *(Row(name=f"one axis of {LEVELS}, p={p:g}", kinds=("one axis",), rate=p, methods=("adaptive", "git_bayesect")) for p in (1, 0.5, 0.2)),
]


@dataclasses.dataclass(frozen=True)
class Part:
    """One cell of the table: a method on programs of one row and kind."""

    row: Row
    kind: str
    method: str

    @property
    def path(self) -> Path:
        """Of its answers.  The name has a hash of the code that gave them: a change of that code starts over."""
        words = "-".join((self.row.name, self.kind, self.method)).replace(" ", "_").replace("%", "").replace(",", "")
        return PARTS / f"{words}-{_code(self.method in OURS)}.jsonl"

    def solve(self, number: int) -> Played:
        return METHODS[self.method](self.row.program(self.kind, number), number)

    def done(self) -> dict[int, Played]:
        if not self.path.exists():
            return {}
        lines = filter(None, map(_line, self.path.read_text().splitlines()))
        return {line.pop("number"): Played(**line) for line in lines}

    def keep(self, number: int, played: Played) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as sink:
            sink.write(json.dumps({"number": number, **dataclasses.asdict(played)}) + "\n")


def _line(text: str) -> dict[str, Any] | None:
    """None: a line that was cut off when the benchmark was killed; its program is played again."""
    try:
        line: dict[str, Any] = json.loads(text)
    except ValueError:
        return None
    return line


Task = tuple[Part, int]


def solve(task: Task) -> tuple[Part, int, Played]:
    part, number = task
    return part, number, part.solve(number)


@functools.cache
def _code(ours: bool) -> str:
    paths = [HERE / "worlds.py", *([HERE / "players.py", *sorted(SEARCH.glob("*.py"))] if ours else [HERE / "peers.py"])]
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()[:8]


def parts(rows: list[str], methods: list[str]) -> list[Part]:
    """Every part whose row contains one of the texts, and whose method is among the named ones; no text: all."""
    chosen = [row for row in ROWS if not rows or any(text in row.name for text in rows)]
    cells = [Part(row, kind, method) for row in chosen for kind in row.kinds for method in row.methods]
    return [cell for cell in cells if not methods or cell.method in methods]
