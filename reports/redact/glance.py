"""Quick looks at much text.  They may say yes for nothing, and never no when there is something.

Most words of a run are numbers that differ from each other, and what a number is worth decides nothing here: with every digit the
same, thousands of files have a few thousand different words, and each is looked at once.
"""

from __future__ import annotations

import functools
import re

from reports.redact.shapes import FORMS, LONG_KINDS, NOT_WITHIN, PREFIXES, TRACES, tree

KNOWN_WORDS = 1 << 16
_DIGITS = bytes.maketrans(b"023456789", b"1" * 9)
_CUTTING = b"\\\r\n"


def blurred(text: str) -> str:
    """The text with a 1 for every digit; every character stays where it is."""
    return text.encode(errors="surrogatepass").translate(_DIGITS).decode(errors="surrogatepass")


_BLURRED_PREFIX = re.compile(tree((blurred(prefix) for prefix, _, _ in PREFIXES), NOT_WITHIN))
_WORD_FORMS = [(clue, form) for kind, clue, form in FORMS if kind not in LONG_KINDS]
_LONG_CLUES = [clue.encode() for kind, clue, _ in FORMS if kind in LONG_KINDS]


def has_trace(word: str) -> bool:
    """Whether a blurred word may be part of something that has the form of a key."""
    return bool(_BLURRED_PREFIX.search(word) or TRACES.search(word))


def may_hold_a_form(data: bytes) -> bool:
    """Whether a text may hold something that has the form of a key."""
    return any(clue in data for clue in _LONG_CLUES) or any(map(_has_form, set(data.translate(_DIGITS).split())))


@functools.lru_cache(KNOWN_WORDS)
def _has_form(word: bytes) -> bool:
    text = word.decode(errors="surrogateescape")
    if _BLURRED_PREFIX.search(text):
        return True
    return bool(TRACES.search(text)) and any(clue in text and form.search(text) for clue, form in _WORD_FORMS)


def flat(data: bytes) -> bytes:
    """Without line ends and what escapes them: what a line end cuts in two is whole in it."""
    return data.translate(None, _CUTTING)
