"""From the facts of one attempt to what the search is told: died, survived, censored or unavailable."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from matrix.evidence import processes
from matrix.evidence.deaths import POOL, initiating
from matrix.records import Death, Memory, Observation, Outcome

CANNOT_RUN = 125  # as for `git bisect run`, env, timeout and nohup: the program could not be tested at all
FAULTS = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS")  # raised by the program's own instructions
HANGS = ("startup", "idle", "stall")
CENSORED = {
    "nobody": "it still ran; nothing was ended",
    "wall": "our wall-clock limit",
    "interrupt": "interrupted by the user",
    "starved": "it was ready to run and had no processor for {starved_s:.0f} of its {seconds:.0f} s, so its silence is no hang",
}


def outcome(observation: Observation) -> Outcome:
    """What one attempt says about its cell.

    Our own wall limit, the user's interrupt and the end of one that got no processor are censoring, never a crash; a hang is a death
    of its own; exit status 0 without the line that says "finished" is a failure too.
    """
    ending, progress = observation.exit, observation.progress
    steps, seconds = progress.last_step, observation.wall_s
    if ending.start_error:
        return Outcome(kind="unavailable", seconds=seconds, reason=f"could not be started: {ending.start_error}")
    if ending.returncode == CANNOT_RUN and steps is None:
        said = observation.output_tail[-1].strip() if observation.output_tail else "no reason given"
        return Outcome(kind="unavailable", seconds=seconds, reason=said)
    if ending.ended_by in CENSORED:
        reason = CENSORED[ending.ended_by].format(seconds=seconds, starved_s=observation.starved_s)
        return Outcome(kind="censored", steps=steps, seconds=seconds, reason=reason)
    if ending.ended_by == "length":
        length = observation.trial.max_steps
        asked = f"{seconds:.0f} s, far longer than any death took" if length is None else "the steps that were asked for"
        return Outcome(kind="survived", steps=steps, seconds=seconds, reason=f"ended after {asked}", whole=False)
    found = signature(observation)
    if found is None:
        return Outcome(kind="survived", steps=steps, seconds=seconds)
    return Outcome(kind="died", steps=steps, seconds=seconds, signature=found)


def under_probe(observation: Observation, outcome: Outcome, unprobed: Collection[str | None]) -> Outcome:
    """The same outcome, but censored where a probe made the run so slow that it was ended for its silence: that is no second failure.

    `unprobed`: signatures of the deaths without a probe, among which a hang is the failure itself."""
    if not observation.trial.probes or observation.exit.ended_by not in HANGS or outcome.signature in unprobed:
        return outcome
    reason = f"the probe {', '.join(observation.trial.probes)} slows it down, and it was ended for its silence"
    return dataclasses.replace(outcome, kind="censored", signature=None, reason=reason)


def signature(observation: Observation) -> str | None:
    """How it died, in the words that tell failures of different kinds apart; None: it did not die.

    No word in it depends on luck (a core that was had, a frame that was named): attempts of one fault must agree.  Where a
    process of the tree began it, its death is the signature, whatever the parent made of it: the same killed worker
    is an exception in one run and a hang in the next.  A fault has one name in whichever process it comes: without workers
    the main one runs the same code.  Who was killed by others is another matter in a worker.
    """
    ending, progress = observation.exit, observation.progress
    failed = ending.ended_by in HANGS or (
        ending.ended_by == "itself" and (ending.signal or ending.returncode or progress.finished_line is False)
    )
    began = initiating(observation.deaths)
    if failed and (observation.memory.oom_kills or (began is not None and began.oom)):
        return "SIGKILL:memory"
    if ending.ended_by in HANGS and waits_for_memory(observation):
        return "SIGKILL:memory"  # only that nobody killed it
    if failed and (first := worker_that_began(observation)):
        return str(first.signal) if first.signal in FAULTS else f"worker {first.signal}"
    if ending.ended_by in HANGS:
        return "hang after it had finished" if progress.finished_line else "hang"
    if ending.ended_by == "memory_watchdog":
        return "SIGKILL:memory"
    if ending.signal:
        return ending.signal
    if ending.returncode:
        error = observation.python_error
        return f"exit {ending.returncode}" + (f":{error.type}" if error else "")
    if progress.finished_line is False:
        return "exit 0 before it had finished"
    return None


def from_outside(death: Observation) -> str | None:
    """The signature by what can be seen of a death without instruments: its status, its words, whether it still did anything, and the
    counters of a group that holds its limit."""
    counted = death.memory.limit_bytes is not None and death.memory.isolation.startswith("cgroup")
    return signature(dataclasses.replace(death, deaths=[], memory=death.memory if counted else Memory()))


def waits_for_memory(observation: Observation) -> bool:
    """Whether a process was waiting for room below its memory limit, for there is no OOM killer in its group, when it was ended."""
    return any(processes.waits_for_memory(process.wchan) for process in observation.processes)


def by_our_clock(death: Observation) -> bool:
    """Whether this tool ended it for its time: then the moment is of our making."""
    return death.exit.ended_by in (*HANGS, "wall")


def worker_that_began(observation: Observation) -> Death | None:
    """The process of a pool whose death by a signal the parent only followed, or any that the kernel ended for memory; of a main
    process that SIGPIPE ended, whichever had died: there was nobody left to read what it wrote."""
    first, ending = initiating(observation.deaths), observation.exit
    if first is None or first.role == "main" or not first.signal:
        return None
    wrote = ending.ended_by == "itself" and ending.signal == "SIGPIPE"
    return first if first.oom or wrote or first.role in POOL else None


def first_signal(observation: Observation) -> str | None:
    """The signal that began this death, in whichever process; None: no signal did, or it was ours."""
    first, ending = initiating(observation.deaths), observation.exit
    return (first.signal if first else None) or (ending.signal if ending.ended_by == "itself" else None)
