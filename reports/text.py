"""Text that is safe to show, and figures with units and few digits.

Everything that a diagnosed program printed is hostile: terminal codes, control and direction-changing characters,
progress bars that overwrite themselves, lines of a megabyte.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

from matrix.records import Fix, Rate, RateInterval

_TERMINAL_CODE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]?|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~]?)")
_LONGEST = 2000


def clean(text: str, longest: int = _LONGEST) -> str:
    """The text without terminal codes; other characters that do not print become U+FFFD; newlines and tabs stay."""
    if len(text) <= longest and text.isprintable():
        return text  # nearly all: nothing that it takes out is printable
    text = _TERMINAL_CODE.sub("", text[: 4 * longest]).replace("\r\n", "\n").expandtabs(4)
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))  # a bar that overwrote itself: what was left to see
    text = "\n".join("".join(map(_printable, line)) for line in lines)
    return text if len(text) <= longest else text[:longest] + " … (cut)"


def _printable(character: str) -> str:
    """Control, format (direction overrides too), surrogate and unassigned characters change what a reader sees."""
    return "\ufffd" if unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"} else character


def one_line(text: str, longest: int = _LONGEST) -> str:
    return " ".join(clean(text, longest).split())


def sentence(text: str) -> str:
    """With a capital, unless it begins with a name such as libiomp5.so, and a full stop."""
    text = one_line(text)
    first = text.split(" ")[0].rstrip(",:;.")
    start = text[:1].upper() if first.isalpha() and first.islower() else text[:1]
    return text if not text else start + text[1:] + ("" if text[-1] in ".!?…" else ".")


def plural(number: int, noun: str) -> str:
    """`1 run`, `12,000 steps`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "es" if noun.endswith(("s", "sh", "ch")) else "s")


def percent(share: float) -> str:
    """`97 %`, `0.4 %`; never 0 % or 100 % for what is only close to it."""
    if not 0 <= share <= 1:
        return "unknown"
    if share in (0, 1):
        return f"{share:.0%}".replace("%", " %")
    if share > 0.99:
        return "> 99 %"
    if share >= 0.095:
        return f"{100 * share:.0f} %"
    return f"{100 * share:.1g} %" if share >= 0.0001 else "< 0.01 %"


def size(amount: float) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    for unit, factor in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if amount >= factor:
            return f"{amount / factor:.{0 if amount >= 10 * factor else 1}f} {unit}"
    return f"{amount:.0f} B"


def duration(seconds: float) -> str:
    """`0.4 s`, `31 s`, `3 min 32 s`, `2 h 5 min`."""
    if not 0 <= seconds < 1e9:
        return "unknown time"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 7200 else f"{whole // 3600} h {whole % 3600 // 60} min"


def rate(bound: Rate) -> str:
    """`in 5 % of the runs`, `once in 3,800 steps`."""
    return (
        f"once in {_steps_between(bound.value)}"
        if bound.per == "step" and bound.value > 0
        else f"in {percent(bound.value)} of the {bound.per}s"
    )


def clean_runs(fix: Fix) -> str:
    """`5 fresh runs`; of a change that is not verified some may have been used to find it."""
    return plural(fix.clean_runs, "fresh run" if fix.verified else "run")


def at_most(bound: Rate) -> str:
    """What clean runs exclude, as a clause. A bound above one half is what one to four runs leave: it says that they are few."""
    if bound.per == "run" and bound.value > 0.5:
        return f"too few to exclude a failure that comes in only some runs (up to {percent(bound.value)} of them, with 95 % confidence)"
    return f"with 95 % confidence it fails at most {rate(bound)}"


def rate_of(value: float) -> str:
    """A bare rate with two digits: `0.0034`, `1.2e-06`."""
    return "0" if value == 0 else f"{value:.2g}"


def interval(found: RateInterval) -> str:
    """`in 35 % of the runs (95 % interval 20 % to 55 %)`, `once in 380 steps (95 % interval 200 steps to 830 steps)`."""
    middle = rate(Rate(value=found.median, per=found.per))
    if found.per == "run":
        return f"{middle} (95 % interval {percent(found.low)} to {percent(found.high)})"
    rarest = _steps_between(found.low) if found.low > 0 else "never"
    return f"{middle} (95 % interval {_steps_between(found.high)} to {rarest})"


def _steps_between(share: float) -> str:
    """Two digits are all that such a rate has."""
    steps = 1 / share if 1e-15 < share <= 1 else 0
    digits = max(0, math.floor(math.log10(steps)) - 1) if steps >= 1 else 0
    return f"{round(steps / 10**digits) * 10**digits:,} steps" if steps else "an unknown number of steps"


def listed(words: Sequence[str], most: int = 6) -> str:
    """`a, b and c`; long lists end with how many were left out."""
    if len(words) > most:
        return f"{', '.join(words[:most])} and {len(words) - most} more"
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""


def span_of(values: Sequence[int]) -> str:
    """`11`, `11, 12, 40`, or `11 to 951` when there are many."""
    different = sorted(set(values))
    return ", ".join(f"{value:,}" for value in different) if len(different) <= 5 else f"{different[0]:,} to {different[-1]:,}"
