"""What a verdict is worth, by its own facts: cause, place, fix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from benchmarks.patients.table import Patient


def scored(patient: Patient, verdict: Mapping[str, Any], *, fix_survived: bool | None, harmed: list[str]) -> dict[str, Any]:
    """Return the marks of one verdict.  `fix_survived`: None where no fix could be launched."""
    first = (verdict.get("ranking") or [{}])[0]
    cause = verdict.get("status") not in ("healthy", "not_reproduced") and first.get("cause") in patient.causes
    place = _is_place_right(patient, verdict, first)
    fix = _does_fix_help(patient, verdict, first, fix_survived)
    confirmed = first.get("grade") == "confirmed"
    return {
        "cause": cause,
        "place": place,
        "fix": fix,
        "safe": not harmed,
        "right": cause and fix and not harmed,
        "confirmed_and_wrong": confirmed and not (cause and place),
    }


def _is_place_right(patient: Patient, verdict: Mapping[str, Any], first: Mapping[str, Any]) -> bool:
    """True if the culprit names axes of the fault and none else; without a culprit, if the words name the place."""
    culprit = [_plain(axis) for axis in first.get("culprit") or {}]
    if culprit:
        return all(axis in patient.axes for axis in culprit)
    return bool(re.search(patient.place, _words(verdict, first), re.I))


def _does_fix_help(patient: Patient, verdict: Mapping[str, Any], first: Mapping[str, Any], survived: bool | None) -> bool:
    """True if the fix survives outside of the tool and changes no innocent axis; without a change, if the advice names what helps."""
    fix = verdict.get("fix") or {}
    if fix.get("kind") == "hides":
        return False
    if any(fix.get(key) for key in ("set", "env", "limits", "packages")):
        return survived is True and all(_plain(axis) in patient.axes for axis in fix.get("set") or {})
    told = [fix.get("advice", ""), verdict.get("status_text", ""), first.get("summary", "")]
    told += [remedy.get("change", "") for remedy in first.get("remedies") or []]
    return first.get("cause") in patient.causes and bool(re.search(patient.advice, " ".join(told), re.I))


def _words(verdict: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    facts = [fact.get("fact", "") for fact in first.get("supports") or []]
    return " ".join([verdict.get("status_text", ""), first.get("summary", ""), *facts])


def _plain(axis: str) -> str:
    return axis.strip("-").replace("-", "_").rpartition(".")[2]
