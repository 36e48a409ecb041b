"""Runs that our own wall limit ended while they went on: too slow, once another cell has shown what its steps can take.

A limit by itself accuses nobody: the machine may be slow, or the limit short.  Such a run is censored until a run of another cell has
made far more steps, and ended, within a third of its time.  Time in which it could run and was given no processor does not count, for
others had it.  All of this is a function of what was observed, in whatever order: resuming comes to the same.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Mapping, Sequence

from matrix.diagnosis.case import Case
from matrix.records import Cell, Observation, Outcome

SIGNATURE = "too slow"
TIMES = 3.0  # as long as another cell, at least: batches, threads and caches make a factor of two between cells that are well
FAR = 0.75  # of the steps that the other one made, at most: nearer to its end it may come there within the limit the next time
LATE = 0.5  # of its time: who made no step after that may hang, and was not waited for
FEW_STEPS = 8  # below that nothing tells whether steps became slower
LEAST_S = 1.0  # of all steps: below that the moments at which its output was read decide
ONE_GAP = 0.25  # of the time of all steps in one of them, an evaluation say: then the halves tell where that was, and nothing of the others
SLOWER = 2.0  # times the steps in the first half of the time as in the second: steps that grow by the same amount each give 2.4


def cut_off(run: Observation) -> bool:
    """Whether our wall limit ended it while it made steps."""
    first_s, last_s = run.progress.first_step_s, run.progress.last_step_s
    if run.exit.ended_by != "wall" or first_s is None or last_s is None:
        return False
    return first_s < last_s and last_s >= LATE * run.wall_s


def contrast(run: Observation, survivors: Iterable[Observation]) -> Observation | None:
    """A run of another cell that shows this one to be too slow, of the nearest cell the quickest; None: none does.

    Both the whole time and that of the steps alone must differ: a slow start (a download, a cold cache) is told by neither alone."""
    quicker = [
        other
        for other in survivors
        if _far_more(other, run) and TIMES * other.wall_s <= _own_s(run) and TIMES * _stepping_s(other) <= _stepping_s(run)
    ]
    changes = {other.attempt: sum(run.trial.cell.get(axis) != value for axis, value in other.trial.cell.items()) for other in quicker}
    return min(quicker, key=lambda other: (changes[other.attempt], other.wall_s, other.attempt), default=None)


def proven(observations: Sequence[Observation], outcomes: Mapping[str, Outcome], known_bad: Cell) -> dict[str, Outcome]:
    """The censored attempts that a contrast shows to be too slow, with the outcome that they have by that.

    None as long as the known-bad cell as it is, without a probe and watched, is not among them: then another failure is looked for, and
    a run that was cut off has stood it for so long, though an intervention may have made it slow."""
    survivors = [o for o in observations if outcomes[o.attempt].kind == "survived" and not o.trial.probes]
    cut = {o.attempt: o for o in observations if outcomes[o.attempt].kind == "censored" and cut_off(o) and contrast(o, survivors)}
    known = [o.attempt for o in observations if o.trial.cell == known_bad and not o.trial.probes and o.trial.watched]
    if not any(attempt in cut or outcomes[attempt].signature == SIGNATURE for attempt in known):
        return {}
    reason = f"our wall-clock limit; more steps took another cell no more than 1/{TIMES:.0f} of that"
    return {attempt: dataclasses.replace(outcomes[attempt], kind="died", signature=SIGNATURE, reason=reason) for attempt in cut}


def step_s(run: Observation) -> float | None:
    """Seconds of a step on average, the start and the time without a processor left out, of every run alike; None: it made too few."""
    steps, stepping_s = run.progress.last_step, _stepping_s(run)
    if run.exit.ended_by != "wall" and run.wall_s:
        stepping_s *= max(0.0, _own_s(run)) / run.wall_s  # when in the run others had the processor is not known
    return stepping_s / steps if steps and stepping_s > 0 else None


def slower(run: Observation) -> float | None:
    """How many times as many steps it made in the first half of their time as in the second; None: that cannot be told."""
    seen = run.progress
    halves, stepping_s = seen.halves, (seen.last_step_s or 0.0) - (seen.first_step_s or 0.0)
    told = stepping_s >= LEAST_S and (seen.longest_gap_s or 0.0) <= ONE_GAP * stepping_s
    if halves is None or sum(halves) < FEW_STEPS or not told:
        return None
    return halves[0] / max(1, halves[1])


def advice(case: Case) -> str:
    """Of a known-bad cell that was cut off, and nothing shows that it is too slow: what would tell; "" where it was not."""
    bad = [o for o in case.unprobed if o.trial.cell == case.known_bad and case.outcomes[o.attempt].kind == "censored" and cut_off(o)]
    if not bad:
        return ""
    quickest = min((o.wall_s for o in case.survivors if o.trial.cell != case.known_bad), default=None)
    starved_s = statistics.median(o.starved_s for o in bad)
    if starved_s > LATE * bad[0].wall_s:
        return f" It could run for {starved_s:.0f} of its {bad[0].wall_s:.0f} s and was given no processor: others use this machine."
    others = "no other cell finished" if quickest is None else f"the quickest other cell needed {quickest:.0f} s"
    return (
        f" limits.wall ended {len(bad)} of its runs after {bad[0].wall_s:.0f} s while they made steps, and {others}: that tells neither"
        " that it is well nor that it is too slow. Raise limits.wall to several times what a good run takes."
    )


def _far_more(other: Observation, run: Observation) -> bool:
    """Whether it made far more steps, in another cell; a run that was asked to be longer than its natural end is not measured by it."""
    steps = other.progress.last_step or 0
    asked = run.trial.max_steps is None or run.trial.max_steps <= steps
    return other.trial.cell != run.trial.cell and FAR * steps >= (run.progress.last_step or 0) > 0 and asked


def _own_s(run: Observation) -> float:
    return run.wall_s - run.starved_s - run.paused_s


def _stepping_s(run: Observation) -> float:
    """From the first step on: of a run that was cut off until then, of others until the last step."""
    first_s, last_s = run.progress.first_step_s or 0.0, run.progress.last_step_s or 0.0
    return _own_s(run) - first_s if run.exit.ended_by == "wall" else last_s - first_s
