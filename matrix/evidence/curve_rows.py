"""Rows of memory.csv: `time,step,pid,role,rank,device,kind,bytes`."""

from __future__ import annotations

import dataclasses
import math

FIELDS = 8
LARGEST = 1 << 62  # of any number: a larger one is damage


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure at one time."""

    time_s: float
    step: int | None
    pid: int  # 0: of the whole tree
    role: str
    kind: str
    value: int


def row_of(text: str) -> Row | None:
    """The row in a line; None for a line that is damaged, or the head."""
    fields = text.split(",")
    if len(fields) != FIELDS:
        return None
    try:
        time_s, value = float(fields[0]), int(fields[7])
        step = int(fields[1]) if fields[1] else None
        pid = int(fields[2]) if fields[2] else 0
    except ValueError:
        return None
    numbers = (time_s, value, step or 0, pid)
    is_sane = math.isfinite(time_s) and all(abs(number) < LARGEST for number in numbers)
    return Row(time_s, step, pid, fields[3], fields[6], value) if is_sane else None
