"""Rules on what a suspect measures itself: figures that it prints with its steps, `times=3.2`."""

from __future__ import annotations

from matrix.records import Observation
from reproducers.judging import Judgement, Rule


def last(name: str, most: float, words: str) -> Rule:
    """The last value of that figure may be so large; `words` says what it is, with `{}` for the value."""

    def rule(observation: Observation) -> Judgement:
        metric = next((metric for metric in observation.metrics if metric.name == name), None)
        if metric is None:
            return Judgement(kind="could not run", reason=f"it printed no {name}=")
        found = f"{words.format(metric.last)}, {most:g} are allowed"
        return Judgement(kind="cleared" if float(metric.last) <= most else "convicted", reason=found)

    return rule
