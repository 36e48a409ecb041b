"""Rules of gitleaks beside our own forms: data under its own licence (GITLEAKS_LICENSE), read when a text is first looked at.

A rule has keywords, and its pattern is tried near these only: 200 patterns over a whole log would take minutes.
"""

from __future__ import annotations

import bisect
import functools
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from reports.redact.hits import Hit

DATA = Path(__file__).with_name("gitleaks.json")
BEFORE, AFTER = 80, 1200  # characters around a keyword that a rule looks at: the longest token of an index has 1,000
MOST_KEYWORDS = 2000  # of one rule in one text; more are no keys


class Rule(NamedTuple):
    """Kind of secret, and what a key of that kind looks like; group 0: the first group, or all when there is none."""

    kind: str
    pattern: str
    entropy: float
    group: int


@functools.cache
def _by_keyword() -> dict[str, list[Rule]]:
    found: dict[str, list[Rule]] = {}
    for entry in json.loads(DATA.read_text(encoding="utf-8", errors="replace")):
        rule = Rule(entry["id"], entry["pattern"], entry["entropy"], entry["group"])
        for keyword in entry["keywords"]:
            found.setdefault(keyword, []).append(rule)
    return found


@functools.cache
def _keywords() -> re.Pattern[str]:
    """Any keyword, also where it stands within another one: the look-ahead takes no letters."""
    by_first: dict[str, list[str]] = {}
    for word in sorted(_by_keyword(), key=len, reverse=True):
        by_first.setdefault(word[0], []).append(re.escape(word[1:]))
    return re.compile("|".join(f"{re.escape(first)}(?=({'|'.join(rest)}))" for first, rest in sorted(by_first.items())))


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


def has_keyword(word: str) -> bool:
    """Return True for a word in small letters that may be part of what a rule looks for."""
    return bool(_keywords().search(word))


def ruled(text: str) -> Iterator[Hit]:
    """Yield everything in the text that a rule knows."""
    for rule, places in _rules_near(text.lower()).items():
        end = -1
        for place in places[:MOST_KEYWORDS]:
            if place >= end:
                begin, end = max(0, place - BEFORE), place + AFTER
                yield from _found(rule, text, begin, end)


def _rules_near(lowered: str) -> dict[Rule, list[int]]:
    near: dict[Rule, list[int]] = {}
    known = _by_keyword()
    for found in _keywords().finditer(lowered):
        word = found[0] + found[found.lastindex or 0]
        for rule in known.get(word, ()):
            places = near.setdefault(rule, [])
            if not places or found.start() > places[-1]:
                bisect.insort(places, found.start())
    return near


def _found(rule: Rule, text: str, begin: int, end: int) -> Iterator[Hit]:
    for found in _compiled(rule.pattern).finditer(text, begin, end):
        group = rule.group or (1 if found.lastindex else 0)
        if found[group] and entropy_of(found[group]) >= rule.entropy:
            yield Hit(*found.span(group), rule.kind)


def entropy_of(text: str) -> float:
    """Bits for each character, as the rules count them."""
    return -sum(count / len(text) * math.log2(count / len(text)) for count in Counter(text).values())
