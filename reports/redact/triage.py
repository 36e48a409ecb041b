"""Which lines of a text are worth a closer look.

A log of 10 MB is mostly progress bars.  Its different words are few, and looking at each word once is twenty times faster
than running every pattern over every line.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from reports.redact.edges import edges
from reports.redact.entropy import LONG_WORD, looks_random
from reports.redact.identity import TRACES
from reports.redact.named import CLUES, NAMES, strength_of
from reports.redact.shapes import ANY_PREFIX
from reports.redact.shapes import TRACES as FORM_TRACES

LINES_AFTER = 4  # a key that is wrapped goes on there
_DULL = re.compile(r"[\W\d_]*[A-Za-z]{0,3}[\W\d_]*")
_KEY_BEGIN, _KEY_END = "-----BEGIN ", "-----END "


def segments(text: str, names: Collection[str]) -> Iterator[tuple[int, int]]:
    """Spans of whole lines that may hold something; `names` are words that always matter."""
    telling = {word for word in set(text.split()) if _matters(word)}
    cut = {edge.start for edge in edges(text)}
    if not telling and not cut and not any(name in text for name in names):
        return
    first, last = -1, -1
    for start, end in _telling_lines(text, telling, cut, names):
        if first >= 0 and start <= last:
            last = max(last, end)
            continue
        if first >= 0:
            yield first, last
        first, last = start, end
    if first >= 0:
        yield first, last


def _matters(word: str) -> bool:
    if len(word) < 5 and "@" not in word and "-" not in word and "_" not in word:
        return word.lower() in ("key", "pwd", "user", "host", "node", "auth", "pass")
    if _DULL.fullmatch(word) and not TRACES.search(word):
        return False
    return bool(
        (CLUES.search(word.lower()) and any(strength_of(found[0]) for found in NAMES.finditer(word)))
        or ANY_PREFIX.search(word)
        or TRACES.search(word)
        or FORM_TRACES.search(word)
        or any(looks_random(found[0]) for found in LONG_WORD.finditer(word))
    )


def _telling_lines(text: str, telling: set[str], cut: set[int], names: Collection[str]) -> Iterator[tuple[int, int]]:
    """Each with the lines after it that a wrapped key, or the rest of a private key, may take."""
    position, end_of_key = 0, -1
    for line in text.splitlines(keepends=True):
        start, position = position, position + len(line)
        if start in cut or not telling.isdisjoint(line.split()) or any(name in line for name in names):
            end = position
            for _ in range(LINES_AFTER):
                end = text.find("\n", end) + 1 or len(text)
            if _KEY_BEGIN in line and start >= end_of_key:
                found = text.find(_KEY_END, position)
                end_of_key = end = max(end, text.find("\n", found) + 1 or len(text)) if found >= 0 else min(len(text), position + 20_000)
            yield start, end
