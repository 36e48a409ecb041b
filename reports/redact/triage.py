"""Which lines of a text are worth a closer look.

A log of 10 MB is mostly progress bars.  Its different words are few, whatever their digits are, and looking at each word once is
twenty times faster than running every pattern over every line.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator

from reports.redact import glance, identity, phrases, rules
from reports.redact.edges import edges
from reports.redact.entropy import LONG_WORD, looks_random
from reports.redact.glance import KNOWN_WORDS, blurred
from reports.redact.named import CLUES, NAMES, strength_of

LINES_AFTER = 4  # a key that is wrapped goes on there
_SIGNS = "\"'`:=,;"
_DULL = re.compile(r"[\W\d_]*[A-Za-z]{0,3}[\W\d_]*")
_KEY_BEGIN, _KEY_END = "-----BEGIN ", "-----END "


def segments(text: str, names: Collection[str]) -> Iterator[tuple[int, int]]:
    """Spans of whole lines that may hold something; `names` are words that always matter."""
    lines = blurred(text).splitlines(keepends=True)
    different = set(lines)
    telling = set(filter(_matters, set("\n".join(different).split())))
    cut = {edge.start for edge in edges(text)}
    names = [name for name in names if name in text]
    if not telling and not cut and not names:
        return
    told = {line for line in different if not telling.isdisjoint(line.split())}
    first, last = -1, -1
    for start, end in _telling_lines(text, lines, told, cut, names):
        if first >= 0 and start <= last:
            last = max(last, end)
            continue
        if first >= 0:
            yield first, last
        first, last = start, end
    if first >= 0:
        yield first, last


@functools.lru_cache(KNOWN_WORDS)
def _matters(word: str) -> bool:
    """Whether a blurred word may hold a secret or a name, or tell of one."""
    if word in phrases.COMMAND_WORDS or word.strip(_SIGNS) in phrases.COMMAND_WORDS:
        return True
    if len(word) < 5 and "@" not in word and "-" not in word and "_" not in word:
        return word.lower().strip(_SIGNS) in ("key", "pwd", "pw", "user", "host", "node", "auth", "pass")
    if identity.has_trace(word):
        return True
    if phrases.TRACES.search(word):
        return True
    if _DULL.fullmatch(word) and not CLUES.search(word.lower()):
        return False
    return bool(
        (CLUES.search(word.lower()) and any(strength_of(found[0]) for found in NAMES.finditer(word)))
        or glance.has_trace(word)
        or rules.has_keyword(word.lower())
        or any(looks_random(found[0]) for found in LONG_WORD.finditer(word))
    )


def _telling_lines(text: str, lines: list[str], told: set[str], cut: set[int], names: Collection[str]) -> Iterator[tuple[int, int]]:
    """Each with the lines after it that a wrapped key, or the rest of a private key, may take."""
    position, end_of_key = 0, -1
    for line in lines:
        start, position = position, position + len(line)
        if start in cut or line in told or any(text.find(name, start, position) >= 0 for name in names):
            end = position
            for _ in range(LINES_AFTER):
                end = text.find("\n", end) + 1 or len(text)
            if _KEY_BEGIN in line and start >= end_of_key:
                found = text.find(_KEY_END, position)
                end_of_key = end = max(end, text.find("\n", found) + 1 or len(text)) if found >= 0 else min(len(text), position + 20_000)
            yield start, end
