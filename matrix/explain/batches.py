"""Batch numbers at which it died: whether there is a pattern."""

from __future__ import annotations

import click

from matrix.diagnosis import pattern
from matrix.records import CrashPattern

LONGEST = 15  # digits of a batch number


def find(text: str, accum: int | None, epoch_steps: int | None) -> CrashPattern:
    """Of deaths at these batches.  Raises click.UsageError for what is no list of numbers."""
    return pattern.find([pattern.Death(step=step) for step in _numbers(text)], accum=accum, epoch_steps=epoch_steps)


def words(found: CrashPattern) -> str:
    """The sentence, and then every law."""
    return "\n".join([found.text, *(f"  {law.name}: {law.text}" for law in found.laws)])


def _numbers(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    wrong = [word for word in words if not word.isdecimal() or len(word) > LONGEST]
    if wrong or not words:
        raise click.UsageError(f"--batches {text}: {wrong[0] if wrong else text!r} is no batch number; write them as 117,464,472")
    return [int(word) for word in words]
