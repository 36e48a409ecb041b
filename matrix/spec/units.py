"""Sizes and times with units."""

from __future__ import annotations

import math
import re

from matrix.spec.problems import Refused, describe

_SIZES = {"B": 1, **{f"{p}B": 1000**n for n, p in enumerate("KMGT", 1)}, **{f"{p}iB": 1024**n for n, p in enumerate("KMGT", 1)}}
_TIMES = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
# the same grammars as JSON Schema patterns, for editors
SIZE_PATTERN = r"^\s*\d+(\.\d+)?\s*(([kKmMgGtT][iI]?)?[bB])?\s*$"
TIME_PATTERN = r"^\s*(?=\d)" + "".join(rf"(\d+(\.\d+)?\s*{unit}\s*)?" for unit in _TIMES) + r"$|^\s*\d+(\.\d+)?\s*$"

_SIZE_UNITS = f"allowed: a number of bytes, or a number with {' '.join(_SIZES)}, e.g. 6GiB"
_TIME_UNITS = f"allowed: a number of seconds, or numbers with {' '.join(_TIMES)} in that order, e.g. 90s or 1h30m"


LARGEST_SIZE = 1 << 60
LONGEST_S = 100 * 365.25 * 86400


def size_bytes(value: object) -> int:
    """Bytes of `"6GiB"`, `"500MB"` or a plain number of bytes.  Raises Refused."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not 0 <= value < math.inf or value != int(value):
            raise Refused(f"a size must be a whole number of bytes from 0, not {value}", _SIZE_UNITS)
        return _possible(int(value), value)
    if not isinstance(value, str):
        raise Refused(f"must be a size, not {describe(value)}", _SIZE_UNITS)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value, re.ASCII)
    units = {name.lower(): factor for name, factor in _SIZES.items()}
    if match is None or (match[2] and match[2].lower() not in units):
        raise Refused(f"cannot read {shortened(value)} as a size", _near_size(match[2] if match else "") + _SIZE_UNITS)
    count = float(match[1]) * units[match[2].lower() or "b"]
    return _possible(LARGEST_SIZE + 1 if count > LARGEST_SIZE else int(count), value)


def time_s(value: object) -> float:
    """Seconds of `"10m"`, `"1h30m"` or a plain number of seconds.  Raises Refused."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return _positive(float(min(value, 10**20)), value)
    if not isinstance(value, str):
        raise Refused(f"must be a time, not {describe(value)}", _TIME_UNITS)
    text = value.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        return _positive(float(text), value)
    parts = [rf"(?:(?P<{unit}>\d+(?:\.\d+)?)\s*{unit}\s*)?" for unit in _TIMES]
    match = re.fullmatch("".join(parts), text, re.ASCII)
    if not text or match is None:
        raise Refused(f"cannot read {shortened(value)} as a time", _TIME_UNITS)
    return _positive(sum(float(number) * _TIMES[unit] for unit, number in match.groupdict().items() if number), value)


def _possible(count: int, written: object) -> int:
    if count > LARGEST_SIZE:
        raise Refused(f"{shortened(written)} is more than any memory or disk: a size may be 1 EiB", _SIZE_UNITS)
    return count


def _positive(seconds: float, written: object) -> float:
    if not (0 < seconds < math.inf):
        raise Refused(f"a time must be longer than 0, not {shortened(written)}", _TIME_UNITS)
    if seconds > LONGEST_S:
        raise Refused(f"{shortened(written)} is longer than 100 years", _TIME_UNITS)
    return seconds


def shortened(written: object) -> str:
    """The value for people: of a very long one the beginning."""
    text = repr(written)
    return text if len(text) <= 60 else f"{text[:40]}... ({len(text)} characters)"


def _near_size(unit: str) -> str:
    """People write 6G and mean either; say so instead of choosing."""
    prefix = unit.upper().removesuffix("I")
    return f"write {prefix}iB or {prefix}B: {unit} alone could be either; " if prefix in tuple("KMGT") else ""
