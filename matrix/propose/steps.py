"""The pattern of a program's progress, found in its log: lines that are alike but for a number that grows."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from matrix.evidence.digits import whole
from matrix.evidence.progress import ProgressParser

LEAST_LINES = 3
MOST_LINES = 20_000
LONGEST = 300
PREFIX_CHARS = 40
FIGURE = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|\bnan\b|\binf\b", re.IGNORECASE)
WHOLE = re.compile(r"(?<![\w.:-])\d{1,9}(?![\w:]|\.\d)")
STAMP = re.compile(r"^\W*(?:\d{4}-\d\d-\d\d[ T])?\d\d?:\d\d(?::\d\d(?:[.,]\d+)?)?\W*|^\W*\d{4}-\d\d-\d\d\W*")
TOTAL = re.compile(r"\s*(?:/|of)\s*(\d+)\b")


def pattern_of(lines: Iterable[str]) -> tuple[str, tuple[str, ...]] | None:
    """(regular expression with a group named step, lines that it matches); None: nothing in the lines grows."""
    groups: dict[str, list[str]] = {}
    for line in list(lines)[-MOST_LINES:]:
        if len(line) <= LONGEST and any(character.isdigit() for character in line):
            groups.setdefault(FIGURE.sub("#", STAMP.sub("", line)), []).append(line)
    ranked = sorted((group for group in groups.values() if len(group) >= LEAST_LINES), key=len, reverse=True)
    for group in ranked:
        places = [list(WHOLE.finditer(line, _after_stamp(line))) for line in group]
        if len({len(found) for found in places}) != 1:
            continue
        for column in zip(*places, strict=True):
            if _grows([whole(match[0]) for match in column]):
                pattern = _expression(group[-1], column[-1], _total(group, column))
                if _is_read(pattern, group):
                    return pattern, (group[0], *group[-2:])
    return None


def _after_stamp(line: str) -> int:
    match = STAMP.match(line)
    return match.end() if match else 0


def _grows(numbers: list[int]) -> bool:
    """Never back, and mostly forward.  What starts over with each epoch does not, and needs a person."""
    steps = [after - before for before, after in itertools.pairwise(numbers)]
    return all(step >= 0 for step in steps) and sum(step > 0 for step in steps) >= 0.8 * len(steps)


def _total(group: list[str], column: tuple[re.Match[str], ...]) -> str:
    """What joins the number to its total, "/" or " of "; "": no total follows."""
    found = [TOTAL.match(line, match.end()) for line, match in zip(group, column, strict=True)]
    return next((re.escape(match[0][: match.start(1) - match.start()]) for match in found if match), "") if all(found) else ""


def _expression(line: str, number: re.Match[str], joint: str) -> str:
    """The words in front of the number as they are, other numbers among them as any number."""
    start = max(_after_stamp(line), number.start() - PREFIX_CHARS)
    prefix = line[start : number.start()]
    parts = re.split(f"({FIGURE.pattern})", prefix, flags=re.IGNORECASE)
    shown = "".join(re.escape(part) if index % 2 == 0 else r"\S+" for index, part in enumerate(parts))
    shown = re.sub(r"(?:\\ )+", r"\\s+", shown) if prefix.strip() else r"^\s*"
    return shown + r"(?P<step>\d+)" + (joint + r"(?P<total>\d+)" if joint else r"\b")


def _is_read(pattern: str, group: list[str]) -> bool:
    """The tool's own reader finds the steps with it."""
    parser = ProgressParser(pattern)
    parser.feed("log", "\n".join([*group[-200:], ""]).encode(), 0.0)
    return parser.last_step is not None and parser.last_step > 1
