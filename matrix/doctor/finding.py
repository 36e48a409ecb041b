"""What a check is, and what it may find."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matrix.doctor.place import Place

__all__ = ["GROUPS", "SEVERITIES", "Check", "Finding", "NotSeen", "Seen", "Severity", "check"]

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
Group = Literal["libraries", "threads", "processor", "limits", "memory", "storage", "tools", "versions"]
GROUPS: tuple[Group, ...] = ("libraries", "threads", "processor", "limits", "memory", "storage", "tools", "versions")


class NotSeen(Exception):
    """This cannot be looked at here; the text says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Seen:
    """What a check saw.  error: it will kill, or has killed here, by a mechanism that can be shown; warning: it kills programs that do
    something particular; info: good to know when one has died."""

    severity: Severity
    summary: str  # the fact, with its figures
    evidence: tuple[str, ...] = ()  # files, lines and values that it rests on
    remedy: str = ""  # instead of the check's own


@dataclasses.dataclass(frozen=True, kw_only=True)
class Check:
    id: str  # stable: people write it down
    group: Group
    fine: str  # what is true when nothing is found
    causes: str
    unproven: str  # what a finding does not prove
    by_hand: str  # how to look without this tool
    remedy: str
    references: tuple[str, ...]  # addresses, and what was measured
    look: Callable[[Place], Iterable[Seen]]  # raises NotSeen


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    id: str
    group: Group
    severity: Severity
    summary: str
    evidence: tuple[str, ...]
    causes: str
    unproven: str
    remedy: str


def check(
    *,
    id: str,
    group: Group,
    fine: str,
    causes: str,
    unproven: str,
    by_hand: str,
    remedy: str,
    references: tuple[str, ...] = (),
) -> Callable[[Callable[[Place], Iterable[Seen]]], Check]:
    """A function that looks, as a check."""

    def of(look: Callable[[Place], Iterable[Seen]]) -> Check:
        return Check(
            id=id,
            group=group,
            fine=fine,
            causes=causes,
            unproven=unproven,
            by_hand=by_hand,
            remedy=remedy,
            references=references,
            look=look,
        )

    return of
