"""Which value became which token: the same value the same token, everywhere in one package."""

from __future__ import annotations

import html
import json
import re
import urllib.parse
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import AnyStr

from reports.redact.glance import flat

MARK = "REDACTED"
IDENTITIES = frozenset({"user", "host", "ip", "mac", "email"})  # the other kinds are secrets
TOKEN = re.compile(rf"{MARK}[- ][a-z0-9-]+-\d+(?:-é)?")
SHORTEST_TWO_CLASSES, SHORTEST_ONE_CLASS = 6, 12  # a shorter value may be an ordinary word, so it is only replaced where it was recognised
FEW_NEEDLES = 200  # more of them are looked up by their first letters
SHORTEST_LINE = 20  # of a secret of several lines: shorter lines of it mean nothing alone
_MARKDOWN = re.compile(r"([\\`*\[\]<|~$])")
_CLASSES = tuple(map(re.compile, ("[a-z]", "[A-Z]", "[0-9]", "[^A-Za-z0-9]")))


class Vault:
    """Values and their tokens.  Tokens are numbered by first sight, so equal input gives equal output."""

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()
        self._needles: dict[str, str] | None = None
        self._flat: list[bytes] = []
        self._spared_text, self._spared_words = "", frozenset[str]()

    def token(self, kind: str, value: str) -> str:
        """The token of a value.  A space and non-ASCII characters stay visible in it: programs die of them."""
        if value not in self._tokens:
            self._numbers[kind] += 1
            join = " " if any(map(str.isspace, value)) and kind in IDENTITIES else "-"
            mark = "" if value.isascii() else "-é"
            self._tokens[value] = f"{MARK}{join}{kind}-{self._numbers[kind]}{mark}"
            self._needles = None
        return self._tokens[value]

    @property
    def secrets(self) -> list[str]:
        """What is recognised wherever it stands, the longest first; no identities, which the finder knows by their surroundings."""
        found = [value for value, token in self._tokens.items() if kind_of(token) not in IDENTITIES and self.is_unmistakable(value)]
        return sorted(found, key=lambda value: (-len(value), value))

    def spare(self, text: str, words: Iterable[str] = ()) -> None:
        """Take note of our own text and of the names in a program: a value that stands there is an ordinary word elsewhere too."""
        self._spared_text += text + "\n"
        self._spared_words |= frozenset(words)
        self._needles = None

    def is_ordinary(self, value: str) -> bool:
        """Return True for a value that also is a word of our own texts or a name in the program, such as `python3`."""
        return value in self._spared_words or value in self._spared_text

    def is_unmistakable(self, value: str) -> bool:
        """Return True for a value that may be replaced wherever it stands."""
        return is_unlike_a_word(value) and not self.is_ordinary(value)

    @property
    def needles(self) -> dict[str, str]:
        """Every spelling of every secret -> its token, the longest first: a secret that holds another one goes whole."""
        if self._needles is None:
            found = {spelling: self._tokens[value] for value in self.secrets for spelling in spellings(value)}
            self._needles = dict(sorted(found.items(), key=lambda pair: (-len(pair[0]), pair[0])))
            smooth = {flat(needle.encode(errors="surrogateescape")) for needle in self._needles}
            self._flat = sorted(smooth - {b""})
        return self._needles

    def may_be_in(self, data: bytes) -> bool:
        """Whether a file may hold one of the needles, whole or cut by line ends.  No where only terminal codes cut it."""
        if not self.needles:
            return False
        return any(True for _ in places_of(self._flat, flat(data)))


def places_of(needles: Collection[AnyStr], text: AnyStr) -> Iterator[tuple[int, AnyStr]]:
    """Yield each place of each needle.  Time grows with the text and the places, also where there are thousands of needles."""
    if len(needles) <= FEW_NEEDLES:
        for needle in needles:
            position = text.find(needle)
            while position >= 0:
                yield position, needle
                position = text.find(needle, position + len(needle))
        return
    width = min(map(len, needles))
    by_start: dict[AnyStr, list[AnyStr]] = {}
    for needle in needles:
        by_start.setdefault(needle[:width], []).append(needle)
    for position in range(len(text)):
        for needle in by_start.get(text[position : position + width], ()):
            if text.startswith(needle, position):
                yield position, needle


def kind_of(token: str) -> str:
    """The kind that a token names."""
    return token[len(MARK) + 1 :].removesuffix("-é").rpartition("-")[0]


def is_unlike_a_word(value: str) -> bool:
    """Return True for a long value, or a shorter one of several kinds of characters."""
    classes = sum(bool(found.search(value)) for found in _CLASSES)
    return len(value) >= (SHORTEST_TWO_CLASSES if classes > 1 else SHORTEST_ONE_CLASS)


def spellings(value: str) -> list[str]:
    """A value as it may stand in JSON, HTML, markdown, a URL or a shell script; of a value of several lines also each long line."""
    page = html.escape(value, quote=False)
    found = {
        value,
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        page,
        html.escape(value),
        page.replace("'", "&#39;").replace('"', "&#34;"),  # as Jinja writes it
        _MARKDOWN.sub(r"\\\1", value),
        urllib.parse.quote(value, safe="", errors="surrogateescape"),
        value.replace("'", "'\"'\"'"),
    }
    if "\n" in value:
        found |= {line.strip() for line in value.splitlines() if len(line.strip()) >= SHORTEST_LINE and not line.startswith("-----")}
    return sorted(found)
