"""Mining schedules: how many hard negatives in which cosine band, by epoch.

    0-5:none;6-10:8@0.82-0.92;11-30:16@0.84-0.96

Epochs count from 1, as in history.jsonl; 0 may be written and never comes.  An epoch that no part names has no hard negatives.
"""

from __future__ import annotations

import dataclasses
import itertools
import re

FORM = "FIRST-LAST:none or FIRST-LAST:NEGATIVES@LOW-HIGH, separated by semicolons, as in 0-5:none;6-10:8@0.82-0.92"
NUMBER = r"-?\d*\.?\d+"
PART = re.compile(rf"(?P<first>\d+)(-(?P<last>\d+))?:(none|(?P<negatives>\d+)@(?P<low>{NUMBER})-(?P<high>{NUMBER}))")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase:
    first: int  # epoch
    last: int  # epoch, included
    negatives: int = 0  # 0: no hard negatives
    low: float = 0.0  # cosines
    high: float = 0.0


def parse(text: str) -> list[Phase]:
    """The phases of a schedule that has no problems, in its order; [] for an empty one."""
    return [_phase(part) for part in _parts(text)]


def problems(text: str, candidates: int) -> list[str]:
    """One sentence for each thing that is wrong with a schedule."""
    found, phases = [], []
    for part in _parts(text):
        if not PART.fullmatch(part):
            found.append(f"--mining-schedule: {part!r} is no part of a schedule; expected {FORM}")
            continue
        phase = _phase(part)
        phases.append(phase)
        found += [f"--mining-schedule: {part!r}: {text}" for text in _wrong(phase, part, candidates)]
    for before, after in itertools.pairwise(sorted(phases, key=lambda phase: phase.first)):
        if after.first <= before.last:
            found.append(f"--mining-schedule: epoch {after.first} is in two parts")
    return found


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(";") if part.strip()]


def _phase(part: str) -> Phase:
    match = PART.fullmatch(part)
    assert match, part
    first, last = int(match["first"]), int(match["last"] or match["first"])
    if match["negatives"] is None:
        return Phase(first=first, last=last)
    return Phase(first=first, last=last, negatives=int(match["negatives"]), low=float(match["low"]), high=float(match["high"]))


def _wrong(phase: Phase, part: str, candidates: int) -> list[str]:
    rules = [
        (phase.last < phase.first, f"epoch {phase.last} comes before epoch {phase.first}"),
        (not part.endswith("none") and phase.negatives == 0, "0 negatives are written as none"),
        (phase.negatives > candidates, f"{phase.negatives} negatives are more than --candidates {candidates}"),
        (phase.negatives > 0 and phase.low >= phase.high, f"the band's low end {phase.low:g} is not below its high end {phase.high:g}"),
        (phase.negatives > 0 and not (phase.low >= -1 and phase.high <= 1), "a cosine is between -1 and 1"),
    ]
    return [text for broken, text in rules if broken]
