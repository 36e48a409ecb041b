"""Attempts, outcomes and quantities as short texts; the same in both views."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

from matrix.records import Cell, Outcome, Value, describe_cell

MIB, GIB = 1 << 20, 1 << 30
# Cc and Cf move the cursor or change the direction of writing, the rest has no width that terminals agree about.
UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
EMOJI_STYLE = "\ufe0f"  # makes the character before it wider in some terminals only


def describe(outcome: Outcome) -> str:
    """`died SIGABRT at step 11 after 3.2 s`."""
    text: str = outcome.kind
    if outcome.signature:
        text += f" {outcome.signature}"
    if outcome.steps is not None:
        text += f" at step {outcome.steps}" if outcome.kind == "died" else f" {outcome.steps} steps"
    elif outcome.kind == "died":
        text += " before its first step"
    if outcome.kind != "unavailable":
        text += f" after {outcome.seconds:.1f} s"
    return clean(text + (f" ({outcome.reason})" if outcome.reason else ""))


def difference(cell: Cell, known_bad: Mapping[str, Value]) -> str:
    """`omp=one_runtime`: what differs from the known-bad cell; `known bad` when nothing does."""
    changed = {name: value for name, value in cell.items() if name not in known_bad or known_bad[name] != value}
    return clean(describe_cell(changed)) or "known bad"


def clean(text: str) -> str:
    """One line that a terminal shows as it is: white space as single spaces, without control and invisible characters."""
    if text.isascii() and text.isprintable():
        return text
    kept = (char for char in " ".join(text.split()) if char != EMOJI_STYLE and unicodedata.category(char) not in UNPRINTABLE)
    return "".join(kept)


def duration(seconds: float) -> str:
    """`12s`, `3m12s`, `1h05m`."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def time_left(seconds: float | None) -> str:
    """An estimate, no finer than it can be: `about 40s left`, `about 5m left`, `time left unknown`."""
    if seconds is None:
        return "time left unknown"
    if seconds < 60:
        return f"about {max(5, -int(-seconds // 5) * 5)}s left"
    minutes = round(seconds / 60)
    return f"about {minutes}m left" if minutes < 60 else f"about {minutes // 60}h{minutes % 60:02}m left"


def speed(steps_per_s: float | None) -> str:
    """`3.2/s`; below one in a second, the time that one takes: `12s/step`."""
    if not steps_per_s:
        return "-"
    if steps_per_s >= 10:
        return f"{steps_per_s:.0f}/s"
    if steps_per_s >= 1:
        return f"{steps_per_s:.1f}/s"
    each = 1 / steps_per_s
    return f"{each:.1f}s/step" if each < 10 else f"{duration(each)}/step"


def memory(used: int | None, limit: int | None) -> str:
    """`612M/3.0G`, in MiB and GiB."""
    return ("-" if used is None else _bytes(used)) + (f"/{_bytes(limit)}" if limit else "")


def _bytes(count: int) -> str:
    return f"{count / MIB:.0f}M" if count < 1000 * MIB else f"{count / GIB:.1f}G"
