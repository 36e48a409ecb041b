"""Numbers in the text of others, which may have any number of digits."""

from __future__ import annotations

MOST_DIGITS = 18  # what 64 bits hold: no pid, status, size or step is longer


def whole(text: str) -> int:
    """The whole number that `text` is; of a longer one the first 18 digits, which no process and no status has."""
    return int(text[:MOST_DIGITS])
