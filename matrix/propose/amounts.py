"""Numbers that a command gives to options whose names say nothing: which are worth varying, and why the others are not.

The rule looks at the number, at what --help says of the option, and at how the name is made; it knows no programs.
"""

from __future__ import annotations

import dataclasses
import re

from matrix.propose.roles import ASIDE, plain_name
from matrix.propose.settings import Setting

SMALL_COUNT = 64
REAL = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+(?:\.\d*)?[eE][-+]?\d+)")
WHOLE = re.compile(r"[-+]?\d{1,12}")
# What names a thing or a degree of talk: half of a port is another port.
NAMES_A_THING = re.compile(r"(?:^|_)(?:port|ranks?_id|rank|id|ids|idx|index|version|level|verbose|verbosity|year)(?:_|$)")
# What speaks of how a program runs: such a number decides what there is beside the main process, and what is held in memory.
HOW_IT_RUNS = re.compile(
    r"process|worker|thread|rank|reader|loader|prefetch|queue|buffer|cache|parallel|concurren|pool|shard|fork|batch|micro"
    r"|chunk|memory|mining|async|gpu|device|node|stream|jobs?\b|replica|in.flight|ahead|hist",
    re.IGNORECASE,
)
# The same, of an option that the command leaves at its default: only what --help says plainly.
STARTS_OTHERS = re.compile(r"process|worker|thread|reader|prefetch|queue|parallel|concurren|\bpool|fork|in.flight", re.IGNORECASE)
SHAPE = re.compile(
    r"(?:^|_)n?(?:layers?|heads?|dims?|hid|hidden|embd?|emb_?size|em_?size|embedding|vocab|channels?|width|depth|classes|features)(?:_|$)"
)
SCHEDULE = re.compile(r"(?:^|_)(?:lr|learning|decay|warmup|schedule|momentum|patience)(?:_|$)")
REAL_WHY = "real numbers: rates and weights change what is learned, not how it runs"
THING_WHY = "a number that names something, not an amount"
NEGATIVE_WHY = "negative: a mark, not an amount"
SCHEDULE_WHY = "of the learning rate's schedule"
LENGTH_WHY = "the length of the run"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Levels:
    """The values that a whole number is worth varying in."""

    values: list[int]
    weight: int
    why: str


def number_levels(setting: Setting) -> Levels | None:
    """Return the values to try for a whole number; None: the setting is not one, or `why_fixed` says why it stays."""
    count = setting.number
    if count is None or setting.role is not None or why_fixed(setting):
        return None
    text = setting.option.text if setting.option else ""
    name = plain_name(setting.name)
    if setting.is_default:
        return _levels_of_a_default(count, name, text)
    runs = bool(HOW_IT_RUNS.search(f"{name} {text}"))
    if count == 0:
        return Levels(values=[0, 1], weight=-8, why="a count of zero")
    if count > SMALL_COUNT:
        return Levels(values=[count // 2, count], weight=_weight(25, name, runs), why="an amount: half of it")
    least = 0 if count == 1 or runs else 1
    values = sorted({least, max(1, count // 2), count})
    return Levels(values=values, weight=_weight(30, name, runs), why="a small number: fewer of them")


def _levels_of_a_default(count: int, name: str, text: str) -> Levels | None:
    if not 1 <= count <= SMALL_COUNT or ASIDE.search(name) or not STARTS_OTHERS.search(f"{name} {text}"):
        return None
    values = sorted({0, max(1, count // 2), count})
    return Levels(values=values, weight=20, why="a small number: fewer of them")


def _weight(base: int, name: str, runs: bool) -> int:
    """The place among other axes: in front what decides how the program runs, behind the shape of a model."""
    if ASIDE.search(name):
        return -10  # how often it reports or evaluates
    if SHAPE.search(name):
        return -9  # another model
    return base + 25 if runs else base


def why_fixed(setting: Setting) -> str | None:
    """Return why a number of the command is not varied; None: it may be, or it is no number."""
    value = setting.value or ""
    if setting.role in ("steps", "epochs") and WHOLE.fullmatch(value):
        return LENGTH_WHY
    if REAL.fullmatch(value):
        return REAL_WHY
    if setting.role is not None or not WHOLE.fullmatch(value):
        return None
    if value.startswith("-"):
        return NEGATIVE_WHY
    name = plain_name(setting.name)
    if SCHEDULE.search(name):
        return SCHEDULE_WHY
    return THING_WHY if NAMES_A_THING.search(name) else None
