"""Regular expressions that a user wrote, matched against what a program prints.

Some patterns take for ever on some lines: `^(a+)+$` on forty a and an exclamation mark.  The standard library cannot stop such a
match.  So these patterns run in the `regex` package, which sees the end of that one at once and has a time limit for others, as for
`^(a|aa)+$`.  A pattern that exceeds the limit is switched off.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Iterator
from typing import Any

LONGEST_PATTERN = 2000  # characters
SHOWN = 60  # of them, where it is named
LONGEST_S = 0.2  # of processor time for one piece of output
SLOW_S, MOST_SLOW = 0.02, 50  # so many pieces may take so long: a pattern must not keep the tool from its other work
FUZZY = re.compile(r"(?<!\\)\{[\d<=,+\s]*[eids][\deids<=,+\s]*\}")  # an extension of that package: {e<=1}


class BadPattern(ValueError):
    """A text that is no pattern, or that the two engines read in different ways."""

    def __init__(self, text: str, what: str, hint: str) -> None:
        shown = repr(text if len(text) <= SHOWN else f"{text[:SHOWN]}...")
        super().__init__(f"{shown} {what}; {hint}")
        self.what, self.hint = what, hint


class UserPattern:
    """A pattern with a time limit.  `why_off` says why it was switched off; "": it works."""

    def __init__(self, text: str) -> None:
        """Raises BadPattern."""
        check(text)
        import regex  # here: only who has a pattern pays for it

        self.text = text
        self.why_off = ""
        self._pattern: Any = regex.compile(text, regex.MULTILINE)
        self._slow = 0

    @property
    def groups(self) -> int:
        return int(self._pattern.groups)

    def found_in(self, text: str) -> bool:
        return next(self.matches(text), None) is not None

    def matches(self, text: str) -> Iterator[Any]:
        """Yield the matches; none once the pattern is switched off."""
        if self.why_off:
            return
        began = time.thread_time()
        try:
            yield from self._pattern.finditer(text, timeout=LONGEST_S)
        except TimeoutError:
            self._switch_off(f"took longer than {LONGEST_S:g} s", text)
        if time.thread_time() - began > SLOW_S:
            self._slow += 1
            if self._slow >= MOST_SLOW:
                self._switch_off(f"took longer than {SLOW_S:g} s {MOST_SLOW} times", text)

    def _switch_off(self, why: str, text: str) -> None:
        start = text.strip()[:SHOWN]
        self.why_off = f"the pattern {self.text!r} {why}, at last on {start!r}, and is switched off: write it without nested repeats"


def check(text: str) -> None:
    """Raises BadPattern for a text that is no pattern, or that the `re` module and the `regex` package read in different ways."""
    if len(text) > LONGEST_PATTERN:
        raise BadPattern(text, f"has {len(text)} characters, and a pattern may have {LONGEST_PATTERN}", "write a shorter one")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # the standard library's word for what the two read differently
            re.compile(text, re.MULTILINE)
    except re.error as problem:
        raise BadPattern(text, f"is not a regular expression: {problem}", "quote it with '…' so that YAML keeps the backslashes") from None
    except OverflowError:
        raise BadPattern(text, "repeats something too often", "write a smaller number between { and }") from None
    except RecursionError:
        raise BadPattern(text, "is nested too deep", "write it with fewer ( )") from None
    except FutureWarning as problem:
        raise BadPattern(text, f"can be read in two ways: {problem}", r"write \[, \-, \&, \~ or \| for the letter itself") from None
    if fuzzy := FUZZY.search(text):
        raise BadPattern(text, f"can be read in two ways: {fuzzy[0]}", r"write \{ for the letter itself")
    _check_by_regex(text)


def _check_by_regex(text: str) -> None:
    import regex

    try:
        regex.compile(text, regex.MULTILINE)
    except (regex.error, OverflowError, RecursionError, MemoryError) as problem:
        raise BadPattern(text, f"is not a regular expression for the regex package: {problem}", "write it in a simpler way") from None
