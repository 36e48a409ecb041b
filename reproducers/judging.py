"""Cleared, convicted, or could not run: what the stand makes of one observation.

A suspect that dies, hangs or does not say that it has finished is convicted.  One that does its work to the end is then held
against its rules: what it may have used meanwhile.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Literal

from matrix.records import Observation
from reproducers.suspects import COULD_NOT_RUN

FEWEST_LOOKS = 4  # at the threads, below which nothing is said of them
HUNG = ("startup", "idle", "stall", "wall")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judgement:
    kind: Literal["cleared", "convicted", "could not run"]
    reason: str  # the evidence in a few words; why it could not run


Rule = Callable[[Observation], Judgement]  # for a run that came to its end


def judge(observation: Observation, rules: Sequence[Rule] = ()) -> Judgement:
    """Cleared: exit 0 after its last line, and no rule broken.  Could not run: what it needs is missing here."""
    if reason := _missing(observation):
        return Judgement(kind="could not run", reason=reason)
    if observation.exit.returncode != 0 or not observation.progress.finished_line:
        return Judgement(kind="convicted", reason=f"{ending(observation)}, {_reached(observation)}")
    judged = [rule(observation) for rule in rules]
    if broken := next((each for kind in ("convicted", "could not run") for each in judged if each.kind == kind), None):
        return broken
    return Judgement(kind="cleared", reason="; ".join([f"finished, {_reached(observation)}", *(each.reason for each in judged)]))


def growth(bytes_per_step: float) -> Rule:
    """The whole tree's memory may grow by so much with each step, once it has warmed up.

    Convicted when the 95 % interval lies above that, cleared when it lies below, and neither when it holds it.
    """

    def rule(observation: Observation) -> Judgement:
        slope = observation.curve.per_step if observation.curve else None
        if slope is None:
            return Judgement(kind="could not run", reason="its growth cannot be told: too few samples of its memory after the warm-up")
        found = (
            f"memory grows by {_kb(slope.value)} a step (95 %: {_kb(slope.low)} to {_kb(slope.high)}), {_kb(bytes_per_step)} are allowed"
        )
        if slope.low > bytes_per_step:
            return Judgement(kind="convicted", reason=found)
        return Judgement(kind="cleared" if slope.high <= bytes_per_step else "could not run", reason=found)

    return rule


def peak(most_bytes: int) -> Rule:
    """The whole tree may hold so much at a time; pages of files that the kernel can drop do not count."""

    def rule(observation: Observation) -> Judgement:
        if observation.curve is None:
            return Judgement(kind="could not run", reason="its peak cannot be told: no sample of its memory was taken")
        held = observation.curve.peak_bytes
        found = f"{held / 1e6:.0f} MB at most, {most_bytes / 1e6:.0f} MB are allowed"
        return Judgement(kind="convicted" if held > most_bytes else "cleared", reason=found)

    return rule


def runnable(per_cpu: float) -> Rule:
    """So many threads may want to run at a time, on average, for each processor that it has.  Other programs' load does not count."""

    def rule(observation: Observation) -> Judgement:
        load = observation.load
        if load is None or load.looks < FEWEST_LOOKS:
            return Judgement(kind="could not run", reason="its threads cannot be told: too short for enough looks at them")
        share = load.runnable_mean / load.cpus
        found = f"{load.runnable_mean:.1f} threads want to run at a time on {load.cpus} processors, {per_cpu:g} for each are allowed"
        return Judgement(kind="convicted" if share > per_cpu else "cleared", reason=found)

    return rule


def ending(observation: Observation) -> str:
    """How it ended, in a few words."""
    end = observation.exit
    if end.ended_by in HUNG:
        states = ", ".join(f"{seen.role} {seen.pid} {seen.state} {seen.wchan}".rstrip() for seen in observation.processes)
        return f"it hung ({end.ended_by}: {states}) and was ended by us"
    if end.ended_by != "itself":
        return f"ended by us ({end.ended_by})"
    if end.returncode == 0 and not observation.progress.finished_line:
        return "exit status 0 before it had finished"
    return f"{end.signal} (status {end.returncode})" if end.signal else f"exit status {end.returncode}"


def said(observation: Observation) -> str:
    """The first line that speaks of an error, else the last line."""
    return next((line for line in observation.output_tail if "error" in line.lower()), observation.progress.last_line)


def _missing(observation: Observation) -> str | None:
    end, error = observation.exit, observation.python_error
    if end.start_error:
        return end.start_error
    if end.ended_by == "interrupt":
        return "interrupted"
    if end.ended_by == "starved":
        return "it was ready to run and had no processor: this machine does too much else"
    if end.returncode == COULD_NOT_RUN:
        return observation.progress.last_line
    return error.message if error and error.type == "ModuleNotFoundError" else None


def _reached(observation: Observation) -> str:
    step = observation.progress.last_step
    return "before its first step" if step is None else f"last step {step}"


def _kb(count: float) -> str:
    return f"{count / 1e3:.0f} kB"
