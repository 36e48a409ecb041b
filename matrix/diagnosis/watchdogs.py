"""A thread or a process of the program that ends it when a step takes too long.

No stranger sends anything and no instruction of the work goes wrong: what tells is whose thread called abort() or which process of its
own sent the signal, and that the same step takes much longer where the program lives than any step had taken where it died.
"""

from __future__ import annotations

from collections.abc import Iterator

from matrix.diagnosis import clusters, sigkill
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import Cause, finding, message
from matrix.diagnosis.judge import first_signal
from matrix.diagnosis.limits import TIME
from matrix.diagnosis.native import crash_signal
from matrix.diagnosis.native_causes import NATIVE_CRASH
from matrix.diagnosis.native_threads import of_no_call, waits_for_threads
from matrix.records import Finding, MessageKind, Observation

CAUSES: tuple[Cause, ...] = ()  # the entry stands with the other limits
THREAD_START = " in _bootstrap_inner"
C_LIBRARY = ("libc.so", "libc-")  # its own reasons to abort are a damaged heap and a failed assertion
REASONS: tuple[MessageKind, ...] = ("heap damaged", "stack smashed", "assertion", "openmp conflict", "fatal python error")
MAIN = ("main", "__libc_start_main", "__libc_start_call_main")  # from which a main thread without Python is seen
ENOUGH = 2  # deaths: a scheduler's signal may come in a slow step once
LONGER = 2.0  # times the longest step before
LEAST_S = 0.5  # of silence: a core is written in less
FAR_LONGER = 5.0  # times the longest step
STEADY = 1.5  # ratio of the longest silence to the shortest
SILENT = 0.5  # of the slow step's time: less silence before the end is a core's writing, or that of a step like the others


def findings(case: Case) -> Iterator[Finding]:
    yield from _guards(case)
    for death in case.deaths:
        caller = _who_gave_up(death)
        if caller is None:
            continue
        fact = f"{caller} called abort() in a thread of its own, which runs no call of the program"
        slow = _slow_step(case, death)
        fact += f"; {slow}" if slow else ""
        told = slow and not _waited_for(death)
        yield finding(TIME, "own thread", death, 4.0 if told else 1.5, fact, "native_stacks.txt")
        for cause in NATIVE_CRASH:
            yield finding(cause, "own thread", death, -2.0 if told else -1.0, fact, "native_stacks.txt")


def _guards(case: Case) -> Iterator[Finding]:
    """A process of its own that asks it to end may stand for a scheduler; not if every death waited for it in a step that is slow."""
    sent = [(death, sigkill.by_others(death, first_signal(death) or ""), _slow_step(case, death)) for death in case.deaths]
    if len(sent) < ENOUGH or not all(sender and sender.inside and slow for _, sender, slow in sent):
        return
    for death, sender, slow in sent:
        if sender:
            fact = f"{sender.signal} was sent by {sigkill.describe(sender)} in a long step; {slow}"
            yield finding(TIME, "guard", death, 4.0, fact)
            yield finding("external_signal", "guard", death, -3.0, fact)


def _who_gave_up(death: Observation) -> str | None:
    """The library whose thread ended the process on purpose; None: another way, or for a reason that was said."""
    stack = death.native_stack
    if crash_signal(death) == "SIGABRT" and (python := _python_thread(death)):
        return python
    if crash_signal(death) != "SIGABRT" or any(frame.kind == "python" for frame in stack) or not of_no_call(stack):
        return None
    at = next((i for i, frame in enumerate(stack) if frame.function == "abort"), None)
    if at is None or any(message(death, kind) for kind in REASONS):
        return None
    caller = stack[at + 1] if at + 1 < len(stack) else None
    if caller is None or caller.library.startswith(C_LIBRARY) or clusters.in_allocator(stack):
        return None
    return next((frame.library for frame in stack[at + 1 :] if frame.library and not frame.library.startswith(clusters.RUNTIMES)), None)


def _python_thread(death: Observation) -> str | None:
    """Return where a thread of Python's that is not the main one called os.abort; None: it did not."""
    frames = next((dump.frames for dump in death.crash_dumps), [])
    called = any(frame.function.startswith("os_abort") for frame in death.native_stack)
    if not called or not any(THREAD_START in frame for frame in frames):
        return None
    return f"Python code at {frames[0]}"


def _waited_for(death: Observation) -> bool:
    """Whether all threads with a call of the program waited for another one: that which gave up may have been at work for them."""
    callers = [stack for stack in death.other_stacks if any(frame.kind == "python" or frame.function in MAIN for frame in stack)]
    return bool(callers) and all(map(waits_for_threads, callers))


def _patience(case: Case, gap_s: float) -> float | None:
    """Return the silence after which all deaths came, when it is always about the same and far longer than a step; None: it is not.

    The writing of a core counts as silence, so the shortest one is nearest to the truth."""
    ends = [(death.wall_s, death.progress.last_step_s) for death in case.deaths]
    silences = sorted(wall_s - last_s for wall_s, last_s in ends if last_s is not None)
    if len(silences) < ENOUGH or silences[0] < max(LEAST_S, FAR_LONGER * gap_s):
        return None
    return silences[0] if silences[-1] <= STEADY * silences[0] else None


def _slow_step(case: Case, death: Observation) -> str | None:
    """Whether it came in a long silence, and a survivor that differs in one axis alone goes through a longer one in all its runs."""
    gaps = [run.progress.longest_gap_s for run in (*case.bad_deaths, death) if run.progress.longest_gap_s is not None]
    last_step, last_step_s = death.progress.last_step, death.progress.last_step_s
    if not gaps or last_step is None or last_step_s is None:
        return None
    silence = death.wall_s - last_step_s
    patience = _patience(case, max(gaps))
    for axis, survivor in case.beside:
        runs = case.survivors_of(survivor.trial.cell)
        longest = min(run.progress.longest_gap_s or 0.0 for run in runs)
        further = all((run.progress.last_step or 0) > last_step for run in runs)
        long_enough = silence >= max(SILENT * longest, LONGER * max(gaps)) or (patience is not None and patience <= longest)
        if further and longest > LONGER * max(gaps) and long_enough:
            change = f"{axis}={survivor.trial.cell[axis]}"
            return (
                f"no step had taken more than {max(gaps):.2f} s when the last one began, which was {silence:.1f} s before the end; "
                f"with {change} alone it survives, and one step takes {longest:.1f} s (attempt {survivor.attempt})"
            )
    return None
