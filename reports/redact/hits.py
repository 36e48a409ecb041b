"""Places in a text that hold something to redact."""

from __future__ import annotations

import bisect
from collections.abc import Iterable
from typing import NamedTuple


class Hit(NamedTuple):
    """Characters `start` to `end`, and what they are: the kind in the token."""

    start: int
    end: int
    kind: str


def settled(hits: Iterable[Hit]) -> list[Hit]:
    """By position and apart from each other: of two that overlap, the one that begins first, then the longer one, swallows the other."""
    found: list[Hit] = []
    for hit in sorted(hits, key=lambda hit: (hit.start, -hit.end)):
        if not found or hit.start >= found[-1].end:
            found.append(hit)
        elif hit.end > found[-1].end:
            found[-1] = found[-1]._replace(end=hit.end)
    return found


def merged(hits: list[Hit], others: Iterable[Hit]) -> list[Hit]:
    """`hits` and those of `others` that do not touch any of them: the password in a URL is not the name of a mailbox."""
    starts = [hit.start for hit in hits]
    apart = []
    for other in others:
        place = bisect.bisect_right(starts, other.start)
        after = place == len(hits) or hits[place].start >= other.end
        before = place == 0 or hits[place - 1].end <= other.start
        apart += [other] if before and after else []
    return sorted([*hits, *settled(apart)])
