"""What is wrong with a specification: every problem at once, each with its place and its remedy."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable
from pathlib import Path

Key = str | int
Where = tuple[Key, ...]  # keys and indices from the top of the file: ("matrix", "bs", "values", 2)


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that must change before the specification can be used."""

    line: int | None  # from 1; None: it has no line (built in Python, or the file cannot be read)
    column: int | None  # from 1
    where: str  # "limits.memory"; "" for the file as a whole
    what: str
    hint: str  # what is allowed, or what to do


class SpecError(Exception):
    """A specification that cannot be used; its text lists every problem, one a line, as `file:line:column: where: what; hint`."""

    def __init__(self, problems: Iterable[Problem], source: Path | str | None = None) -> None:
        self.problems = list(problems)
        self.source = source
        super().__init__("\n".join(self._line(problem) for problem in self.problems))

    def _line(self, problem: Problem) -> str:
        place = [str(part) for part in (self.source, problem.line, problem.column) if part is not None]
        parts = [":".join(place), problem.where, problem.what]
        return ": ".join(part for part in parts if part) + (f"; {problem.hint}" if problem.hint else "")

    def __reduce__(self) -> tuple[type[SpecError], tuple[list[Problem], Path | str | None]]:
        return SpecError, (self.problems, self.source)  # the text is made from these, so Exception's own way would fail


@dataclasses.dataclass(frozen=True)
class Complaint:
    """A problem that does not know its line yet."""

    where: Where
    what: str
    hint: str = ""
    at_key: bool = False  # it stands at the last key, not at its value
    quotes_key: bool = False  # `what` names the last key, so the place in words is the mapping that holds it
    place: tuple[int, int] | None = None  # line and column where `where` alone would mislead: the second of two equal keys

    @property
    def shown(self) -> str:
        """The place in words."""
        return dotted(self.where[:-1] if self.quotes_key else self.where)


def wrong_key(where: Where, what: str, hint: str = "", place: tuple[int, int] | None = None) -> Complaint:
    """A complaint about the last key of a path itself."""
    return Complaint(where, what, hint, at_key=True, quotes_key=True, place=place)


class Refused(ValueError):
    """A single value is not acceptable; whoever validates it knows where it stands."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"{what}; {hint}" if hint else what)
        self.what = what
        self.hint = hint


def dotted(where: Where) -> str:
    """`matrix.bs.values[2]`."""
    text = ""
    for part in where:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def suggest(word: str, allowed: Iterable[str], label: str) -> str:
    """`did you mean 'accum'? (axes: accum, bs)`; without a near match only what is allowed."""
    names = list(allowed)
    folded = {name.lower().replace("-", "_"): name for name in names}
    near = difflib.get_close_matches(word.lower().replace("-", "_"), folded, n=1, cutoff=0.6 if len(word) > 3 else 0.5)
    listed = f"{label}: {', '.join(names)}"
    return f"did you mean '{folded[near[0]]}'? ({listed})" if near else listed


def describe(value: object) -> str:
    """A value as it is named in a message: `the word 'abc'`, `the number 3`, `a list`."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the word {value if len(value) <= 60 else value[:57] + '...'!r}"
    return "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, (list, tuple)) else f"a {type(value).__name__}"
