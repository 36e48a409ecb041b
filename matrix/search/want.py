"""What a stage of the search answers when it is asked for the next run."""

from __future__ import annotations

import dataclasses
from typing import Literal

from matrix.records import Cell, Purpose


@dataclasses.dataclass(frozen=True, kw_only=True)
class Want:
    """A run that would teach something."""

    cell: Cell
    purpose: Purpose
    why: str
    max_steps: int | None = None  # None: to the program's natural end
    bits_per_s: float | None = None  # what it is expected to teach about the crash set; None: it is not asked for that


# "wait": nothing to ask before an open question is answered; None: this stage has what it needs
Step = Want | Literal["wait"] | None
