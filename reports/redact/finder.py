"""All that is to be redacted in one text, also where terminal codes or line ends cut it in two."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator

from reports.redact.edges import LONGEST_WRAPPED, NARROWEST_TERMINAL, Edge, edges, is_more
from reports.redact.entropy import random_words
from reports.redact.hits import Hit, merged, settled
from reports.redact.identity import Identities
from reports.redact.named import named
from reports.redact.phrases import phrased
from reports.redact.rules import ruled
from reports.redact.shapes import ANY_PREFIX, TRACES, shaped
from reports.redact.triage import segments
from reports.redact.vault import TOKEN

# A terminal code, also as JSON and reprs write it.
TERMINAL = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)|[ -/]*[0-~])|\\{1,2}(?:u001[bB]|x1[bB]|033|e)\[[0-?]*[ -/]*[@-~]"
)
TERMINAL_BEGINS = re.compile(r"\x1b|\\(?:u001[bB]|x1[bB]|033|e)\[")
BREAK = re.compile(r"(?<=[A-Za-z0-9+/=_.~@:%&?;-])(?:\\?\r?\n|\r)(?=[A-Za-z0-9+/=_.~@:%&?;-])")
MOST_BREAKS, WIDEST_BREAK = 4, 2
_REST_OF_WORD = re.compile(r"\r?\n([A-Za-z0-9+/=_~.-]{4,})(?=[\s;&,\"']|$)")
_WHOLE_LINE = re.compile(r"\r?\n[A-Za-z0-9+/=_~.-]{4,}(?=\r?\n|$)")


class View:
    """A text without some parts of it, and where each character of it stands in the text."""

    def __init__(self, text: str, left_out: re.Pattern[str], most: int | None = None) -> None:
        self._starts, self._shifts, shift = [0], [0], 0
        parts, position = [], 0
        for found in itertools.islice(left_out.finditer(text), most):
            parts.append(text[position : found.start()])
            position = found.end()
            shift += position - found.start()
            self._starts.append(position - shift)
            self._shifts.append(shift)
        self.text = "".join([*parts, text[position:]])

    def back(self, hit: Hit) -> Hit:
        """The same place in the whole text."""
        first = bisect.bisect_right(self._starts, hit.start) - 1
        last = bisect.bisect_right(self._starts, hit.end - 1) - 1
        return Hit(hit.start + self._shifts[first], hit.end + self._shifts[last], hit.kind)

    def is_cut(self, hit: Hit) -> bool:
        """Whether something was left out inside that place."""
        return bisect.bisect_right(self._starts, hit.start) != bisect.bisect_right(self._starts, hit.end - 1)


def find(text: str, identities: Identities, *, may_be_wrapped: bool = True, is_source: bool = False) -> list[Hit]:
    """Places to redact, apart from each other and by position; tokens that stand there already are left alone.

    may_be_wrapped False: a file whose lines end where its author ended them, so that nothing is looked for across their ends."""
    if TERMINAL_BEGINS.search(text):
        view = View(text, TERMINAL)
        return [view.back(hit) for hit in _in_lines(view.text, identities, may_be_wrapped, is_source)]
    return _in_lines(text, identities, may_be_wrapped, is_source)


def _in_lines(text: str, identities: Identities, may_be_wrapped: bool, is_source: bool) -> list[Hit]:
    names = identities.users | identities.hosts
    return [
        Hit(hit.start + start, hit.end + start, hit.kind)
        for start, end in segments(text, names)
        for hit in _plain(text[start:end], identities, may_be_wrapped, is_source)
    ]


def _plain(text: str, identities: Identities, may_be_wrapped: bool, is_source: bool) -> list[Hit]:
    secrets = [*shaped(text), *ruled(text), *named(text), *phrased(text), *random_words(text)]
    if may_be_wrapped:
        secrets = [_with_rest(text, hit) for hit in secrets]
        known = {hit.start for hit in secrets}
        secrets += [*_across_lines(text, known), *_cut_names(text, known)]
    secrets = settled(secrets)
    hits = merged(secrets, identities.find(text, is_source=is_source))
    return [hit for hit in hits if not TOKEN.search(text, hit.start, hit.end)]


def _across_lines(text: str, known: set[int]) -> Iterator[Hit]:
    """Keys that a narrow terminal wrapped: only those that are no key before the line ends."""
    end = text.find("\n")
    while end >= 0:
        last = text[max(0, text.rfind("\n", 0, end) + 1, end - LONGEST_WRAPPED) : end].rstrip("\\\r").rpartition(" ")[2]
        if len(last) > 2 and (ANY_PREFIX.search(last) or TRACES.search(last)):
            begin = end - len(last) - (text[end - 1] in "\\\r")
            yield from (hit for hit in _joined(text, begin, end) if hit.start not in known)
        end = text.find("\n", end + 1)


def _joined(text: str, begin: int, end: int) -> list[Hit]:
    """Keys that begin in the last word of a line and go on after one line end, or a few: the fewest that make it one."""
    for breaks in range(1, MOST_BREAKS + 1):
        view = View(text[begin : end + LONGEST_WRAPPED], BREAK, breaks)
        found = [view.back(hit) for hit in shaped(view.text)]
        moved = [Hit(hit.start + begin, hit.end + begin, hit.kind) for hit in found]
        if kept := [hit for hit in moved if hit.start <= end + WIDEST_BREAK and end <= hit.end]:
            return kept
    return []


def _cut_names(text: str, known: set[int]) -> Iterator[Hit]:
    """Keys whose name, prefix or frame the edge of a terminal cut in two, so that neither line shows what they are."""
    for edge in edges(text):
        begin = max(edge.start, edge.end - LONGEST_WRAPPED)
        view = View(text[begin : edge.stop], BREAK)
        for hit in map(view.back, (*shaped(view.text), *named(view.text))):
            moved = Hit(hit.start + begin, hit.end + begin, hit.kind)
            is_new = moved.start > edge.end or moved.start not in known
            if is_new and moved.end + WIDEST_BREAK > edge.end and _is_wrapped(text, moved, edge):
                yield moved


def _is_wrapped(text: str, hit: Hit, edge: Edge) -> bool:
    """Whether what follows the break is more of the key and not the first word of another line."""
    if hit.start > edge.end:
        return text.find("\n", edge.end + 1, hit.start) < 0  # what begins further below has an edge of its own
    return hit.end < edge.end or hit.end == len(text) or text[hit.end] in "\r\n" or is_more(text[edge.end + 1 : hit.end])


def _with_rest(text: str, hit: Hit) -> Hit:
    """With what follows on the next lines when the value ran to the end of its line and the next one begins with more of it."""
    width = hit.end - text.rfind("\n", 0, hit.start) - 1
    while hit.kind != "private-key" and (hit.end == len(text) or text[hit.end] in "\r\n"):
        rest = _REST_OF_WORD.match(text, hit.end)
        if not rest or "=" in rest[1].rstrip("="):
            break
        wrapped = width >= NARROWEST_TERMINAL and _WHOLE_LINE.match(text, hit.end)
        if not wrapped and not is_more(rest[1]):
            break
        hit = hit._replace(end=rest.end(1))
        if len(rest[1]) != width:
            break  # only a line as long as the first one was broken too
    return hit
