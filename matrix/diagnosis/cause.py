"""One entry of the catalogue of causes: what it is, what it predicts, what helps, and who looks for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Literal

from matrix.records import Finding, Message, MessageKind, Observation, Remedy

RemedyKind = Literal["axis", "environment", "limit", "package", "code"]
SHARED = "shared"  # the rule of evidence that a whole family of causes has: it confirms none of them
NEUTRAL = 0.03  # chance that an intervention which has nothing to do with a cause makes its death go away


@dataclasses.dataclass(frozen=True, kw_only=True)
class Form:
    """One form in which a cause comes: its own words and remedies."""

    title: str
    clause: str
    remedies: tuple[Remedy, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cause:
    """`cures_it`: the tool's own interventions by name, each with the chance that the death goes away under it if this is the cause.

    What is not listed has nothing to do with the cause.  The chances are rounded judgements: an intervention that removes
    the mechanism has 0.9 (it may not reach it), one that often disturbs it 0.5, one that shifts timing only 0.2.

    `every_time`: of its crashes, the share that come in every run in which their conditions hold.  A limit is reached again, a race is
    won now and then; a rounded judgement too.
    """

    name: str
    title: str
    clause: str  # follows "because"; explains the cause in general and claims nothing about a run
    remedies: tuple[Remedy, ...]  # the least invasive first
    every_time: float = 0.5
    references: tuple[str, ...] = ()
    cures_it: Mapping[str, float] = dataclasses.field(default_factory=dict)
    forms: Mapping[str, Form] = dataclasses.field(default_factory=dict)  # by name; findings say which one their fact shows

    def goes_away(self, probe: str) -> float:
        """Chance that the death goes away under an intervention that took hold."""
        return self.cures_it.get(probe, NEUTRAL)


def remedy(kind: RemedyKind, change: str, cost: str = "") -> Remedy:
    """What to change, and what it hides or costs."""
    return Remedy(kind=kind, change=change, cost=cost)


def finding(
    cause: str, rule: str, observation: Observation, weight: float, fact: str, file: str = "observation.json", *, form: str = ""
) -> Finding:
    return Finding(cause=cause, rule=rule, weight=weight, fact=fact, attempt=observation.attempt, file=file, form=form)


def message(run: Observation, kind: MessageKind) -> Message | None:
    """The first line of its output whose words are of that kind."""
    return next((message for message in run.messages if message.kind == kind), None)


def said(run: Observation, kind: MessageKind) -> str | None:
    """The first line of its output whose words are of that kind, as text."""
    found = message(run, kind)
    return found.text.strip() if found else None


LONG = 8  # characters of a message that a line can repeat without chance


def reports(death: Observation, said: Message) -> bool:
    """Whether the exception that ended it, or one that it was raised from, says that line: what was merely printed may be survived."""
    error = death.python_error
    if error is None:
        return False
    told = [(error.message, f"{error.type}: {error.message}")]
    told += [(text.partition(": ")[2], text) for text in error.raised_from]
    return any(_is_line_of(said, words, whole) for words, whole in told)


def _is_line_of(said: Message, words: str, whole: str) -> bool:
    """True if the line holds the exception's words, or is their beginning."""
    repeated = len(words) >= LONG and words[:60] in said.text
    return repeated or said.text.strip()[:60] in whole
