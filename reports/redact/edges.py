"""Line ends where a terminal or a log of fixed width broke a line within a word."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from reports.redact.named import CLUES, NAMES, strength_of
from reports.redact.shapes import ANY_PREFIX, TRACES

NARROWEST_TERMINAL = 40
LONGEST_WRAPPED = 600
LONGEST_PLAIN_WORD = 16


class Edge(NamedTuple):
    """A line from `start` to its line end at `end`, and where the lines that may be the rest of it stop."""

    start: int
    end: int
    stop: int


def edges(text: str) -> Iterator[Edge]:
    """Where the parts of a word on both sides of a line end make a name or the form of a key together.

    What follows such a break is never longer than the line before it, and goes on past the next line end only when it is just as long.
    """
    start = 0
    while (end := text.find("\n", start)) >= 0:
        width = end - start - (text[end - 1] == "\r")
        if width >= NARROWEST_TERMINAL and not text[start + width - 1].isspace() and _length(text, end + 1) <= width:
            last = text[max(start, start + width - LONGEST_WRAPPED) : start + width].split()[-1]
            first = text[end + 1 : end + 1 + min(width, LONGEST_WRAPPED)]
            if first and not first[0].isspace() and _says(last + first.split()[0]):
                yield Edge(start, end, _stop(text, end + 1, width))
        start = end + 1


def _length(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) - start if end < 0 else end - start - (text[end - 1] == "\r")


def _stop(text: str, start: int, width: int) -> int:
    """The end of the last line that may belong to the one that was broken."""
    most = start + LONGEST_WRAPPED
    while True:
        end = text.find("\n", start)
        if end < 0:
            return len(text)
        if _length(text, start) != width or start > most or not _goes_on(text[end + 1 : end + 1 + LONGEST_WRAPPED]):
            return end
        start = end + 1


def _goes_on(text: str) -> bool:
    """Whether a line begins with more of a key, and not with a word of its own."""
    line = text.partition("\n")[0].rstrip()
    first = line.partition(" ")[0]
    return first == line or len(first) >= LONGEST_PLAIN_WORD or is_more(first)


def is_more(word: str) -> bool:
    """Letters and digits mixed, as no word and no number has them."""
    return len(word) >= 6 and len(re.findall(r"[A-Za-z]+|\d+", word)) >= 4


@functools.lru_cache(maxsize=4096)
def _says(word: str) -> bool:
    named = CLUES.search(word.lower()) and any(strength_of(found[0]) for found in NAMES.finditer(word))
    return bool(named or ANY_PREFIX.search(word) or TRACES.search(word))
