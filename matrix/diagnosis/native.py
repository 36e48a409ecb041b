"""Crashes in native code: what the address, the stack, the allocator and the other threads say about them.

The signal alone separates little: SIGSEGV comes from most of these causes.  What separates them is where the address lies (below
the stack pointer, just behind a mapping, at the start of a block that was given back, nowhere) and who noticed it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from matrix.diagnosis import clusters
from matrix.diagnosis.addresses import (
    NULL,
    at_start_of_freed,
    behind_the_end,
    by_index,
    emptied,
    far,
    in_no_library,
    in_what,
    is_extension,
    is_generated,
    left,
    on_stack,
    the_fault,
    was_given_back,
)
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import SHARED, Cause, finding, message, said
from matrix.diagnosis.judge import FAULTS, first_signal
from matrix.diagnosis.native_causes import ARGUMENT, CAUSES, CORRUPTION, GIVEN_BACK, ILLEGAL, OVERFLOW, RACE
from matrix.diagnosis.native_causes import REFERENCES as SPOILT_REFERENCES
from matrix.diagnosis.native_checked import HEAP_PROBES, checked
from matrix.diagnosis.native_threads import fewer_threads, other_threads
from matrix.records import Fault, Finding, Observation, describe_cell

__all__ = ["CAUSES", "causes_of", "crash_signal", "findings", "heap_is_damaged"]

ROOM = 64 << 10  # left on the stack: it did not overflow
DEEP = 60  # frames: a recursion
SMASHED = "stack smashing"  # the words of what compilers put at the end of a function
# Words of Py_FatalError in Objects/object.c, Modules/gcmodule.c, Python/pystate.c and ceval.c.
REFERENCES = ("none_dealloc", "deallocating", "refcount", "ref count", "reference count", "already tracked by the garbage collector")
WITHOUT_LOCK = ("must be called with the gil held", "gil is released", "no current thread", "without holding the gil")
NO_MATTER = 0.12  # chance that an intervention helps which has nothing to do with the cause: as against what is in no catalogue
SEVERAL = 4  # deaths of different cells at one step, from which that is no chance
FEWEST_STEPS = 3  # before them every program does what it does for the first time, also a race
TRAP = "0f0b"  # ud2: what compilers put behind assertions
COVERED = 1.5  # nats: what ends a process by a bad address or an abort in native code is nearly always one of these
PRECONDITIONS = tuple(f"std::{name}" for name in ("logic_error", "invalid_argument", "domain_error", "length_error", "out_of_range"))


def causes_of(case: Case) -> dict[str, Cause]:
    """Return entries that predict less of this case: another heap changes neither a reference count nor what was given back."""
    deaths = [death for death in case.bad_deaths if crash_signal(death)]
    if not any(_is_of_no_heap(death) for death in deaths):
        return {}
    entry = next(cause for cause in CAUSES if cause.name == CORRUPTION)
    kept = {probe: chance for probe, chance in entry.cures_it.items() if probe not in HEAP_PROBES}
    return {CORRUPTION: dataclasses.replace(entry, cures_it={**kept, **dict.fromkeys(HEAP_PROBES, NO_MATTER)})}


def _is_of_no_heap(death: Observation) -> bool:
    fault, line = the_fault(death), said(death, "fatal python error") or ""
    return bool(fault and was_given_back(fault)) or any(word in line.lower() for word in REFERENCES)


def findings(case: Case) -> Iterator[Finding]:
    crashed = [death for death in case.deaths if crash_signal(death)]
    for death in crashed:
        yield from _signal(death)
        yield from _heap(case, death)
        yield from _address(death)
        yield from _recursion(death)
        yield from other_threads(death)
    if crashed:
        yield from _repeats(case, crashed)
        yield from _no_code(case, crashed[0])
        yield from _same_place(case, crashed)
        guilty = [frame for death in crashed for frame in clusters.relevant(death.native_stack)]
        known = all(said(death, "heap damaged") for death in crashed)
        for run in case.probed:
            yield from checked(run, guilty, known=known)


def crash_signal(death: Observation) -> str | None:
    """The signal of a fault in native code that began this death; None: something else did."""
    signal = first_signal(death)
    return signal if signal in FAULTS else None


def _signal(death: Observation) -> Iterator[Finding]:
    name = crash_signal(death)
    invalid = next((fault for fault in death.faults if fault.trap == "invalid opcode"), None)
    if invalid and invalid.code.startswith(TRAP):
        fact = f"native code{in_what(invalid)} ended itself by a trap that its compiler put there for what must not happen"
        yield finding(ARGUMENT, "trap", death, 2.5, fact)  # as an assertion
        yield finding(ILLEGAL, "signal", death, -4.0, fact)
        return
    if name == "SIGILL" or invalid:
        where = next((in_what(fault) for fault in death.faults if fault.library or is_extension(fault)), "")
        if not where and death.faults:
            yield finding(ILLEGAL, "signal", death, 1.0, "the processor refused an instruction where no library is: a jump to nowhere")
            yield finding(CORRUPTION, "signal", death, 1.5, "the processor refused an instruction where no library is: a jump to nowhere")
            return
        yield finding(ILLEGAL, "signal", death, 4.5, f"the processor refused an instruction{where} ({name})")
        for cause in (CORRUPTION, ARGUMENT, RACE, OVERFLOW):
            yield finding(cause, "signal", death, -1.5, f"the processor refused an instruction{where} ({name})")
        return
    yield finding(ILLEGAL, "signal", death, -6.0, f"{name} is not how a processor refuses an instruction")
    if name in ("SIGSEGV", "SIGBUS", "SIGABRT"):
        for cause in (CORRUPTION, ARGUMENT, RACE, OVERFLOW):
            yield finding(cause, SHARED, death, COVERED if name == "SIGSEGV" else 0.0, f"{name} was raised by native code")
    if name == "SIGFPE":
        yield finding(
            ARGUMENT, "signal", death, 2.5, "a division in native code had a divisor of zero, or a result that does not fit (SIGFPE)"
        )
    if name not in ("SIGSEGV", "SIGBUS", "SIGABRT"):
        yield finding(OVERFLOW, "signal", death, -3.0, f"{name} is not how a stack overflow ends")


# ------------------------------------------------------------------ the heap
def _heap(case: Case, death: Observation) -> Iterator[Finding]:
    """The allocator notices damage when it meets it: the cause lies before, somewhere else."""
    fact, weight, inside = None, 0.0, clusters.in_allocator(death.native_stack)
    alike = case.said_alike("heap damaged")
    if (line := said(death, "heap damaged")) and crash_signal(death) == "SIGABRT" and not alike:
        fact, weight = f"the allocator found its heap damaged: {line}", 4.0 if inside else 3.5
    elif inside:
        fact, weight = "it crashed inside the allocator, which only follows the pointers that it stored itself", 2.5
    if fact:
        yield finding(CORRUPTION, "heap", death, weight, fact, "stderr.log" if line else "native_stacks.txt")
        yield finding(RACE, "heap", death, 2.0, fact)
        yield finding(ARGUMENT, "heap", death, -0.5, fact)
        yield finding(OVERFLOW, "heap", death, -3.0, fact)
    if crash_signal(death) == "SIGABRT" and (line := said(death, "stack smashed")) and not case.said_alike("stack smashed"):
        yield from _frame(death, line)
    yield from _interpreter(case, death)
    if line := _refused(case, death):
        yield finding(ARGUMENT, "assertion", death, 2.5, f"native code refused what it was given: {line}", "stderr.log")


def _interpreter(case: Case, death: Observation) -> Iterator[Finding]:
    """Judge what the interpreter found broken in its own objects when it gave up: native code did not keep its rules."""
    line = said(death, "fatal python error")
    if line is None or crash_signal(death) != "SIGABRT" or case.said_alike("fatal python error"):
        return
    low = line.lower()
    if any(word in low for word in REFERENCES):
        fact = f"the interpreter found a reference count that native code had spoilt: {line}"
        yield finding(CORRUPTION, "references", death, 5.0, fact, "stderr.log", form=SPOILT_REFERENCES)
        for cause, against in ((ARGUMENT, -1.5), (RACE, -0.5), (OVERFLOW, -3.0)):
            yield finding(cause, "references", death, against, fact, "stderr.log")
        used_up = f"{fact}: a count is used up after as many calls, whatever they are given"
        yield finding("corrupt_input_data", "references", death, -3.5, used_up, "stderr.log")
    elif any(word in low for word in WITHOUT_LOCK):
        fact = f"native code used the interpreter without its lock: {line}"
        yield finding(RACE, "without lock", death, 4.0, fact, "stderr.log")
        for cause in (ARGUMENT, CORRUPTION):
            yield finding(cause, "without lock", death, -1.0, fact, "stderr.log")


def _frame(death: Observation, line: str) -> Iterator[Finding]:
    """A function looks at its own frame when it returns, so it was this call that wrote on; a checked copy says so before it does."""
    overwritten = SMASHED in line
    fact = f"a function found its stack frame overwritten: {line}" if overwritten else f"a copy would have left its place: {line}"
    yield finding(CORRUPTION, "stack smashed", death, 4.5 if overwritten else 3.0, fact, "stderr.log")
    for cause, against in ((ARGUMENT, -1.0), (RACE, -1.0), (OVERFLOW, -3.0)) if overwritten else ():
        yield finding(cause, "stack smashed", death, against, fact, "stderr.log")


def _refused(case: Case, death: Observation) -> str | None:
    """The line of an assertion, or about an uncaught C++ exception of the kind for a broken precondition, that no survivor printed.

    What an exception says of a damaged heap may be anything."""
    if crash_signal(death) != "SIGABRT":
        return None
    if (line := said(death, "assertion")) and not case.said_alike("assertion"):
        return line
    line = said(death, "c++ exception")
    if line is None or heap_is_damaged(death) or case.said_alike("c++ exception"):
        return None
    return line if any(name in line for name in PRECONDITIONS) else None


def heap_is_damaged(death: Observation) -> bool:
    """Whether the allocator or a checked heap says so: then what a pointer or a figure holds may be anything."""
    found = message(death, "heap damaged") or message(death, "stack smashed")
    return found is not None or bool(death.heap_errors) or clusters.in_allocator(death.native_stack)


# ------------------------------------------------------------------ the address
def _address(death: Observation) -> Iterator[Finding]:
    fault = the_fault(death)
    if fault is None:
        return
    if on_stack(fault):
        fact = f"the fault was on the stack, {left(fault)}{in_what(fault)}"
        yield finding(OVERFLOW, "address", death, 4.5, fact)
        for cause in (CORRUPTION, ARGUMENT, RACE):
            yield finding(cause, "address", death, -2.0, fact)
        return
    if fault.stack_left_bytes is not None and fault.stack_left_bytes > ROOM:
        yield finding(OVERFLOW, "address", death, -4.0, f"the thread that crashed had {fault.stack_left_bytes >> 10} KiB of stack left")
    if was_given_back(fault):
        fact = f"memory was at {fault.address or 0:#x} while it ran, and was given back before native code{in_what(fault)} used it"
        yield finding(CORRUPTION, "given back", death, 4.0, fact, form=GIVEN_BACK)
        yield finding(ARGUMENT, "given back", death, -2.5, fact)
        if death.other_stacks:  # who shares an object with it may have given that back
            yield finding(RACE, "given back", death, 3.0, fact)
    for cause, weight, fact in _places(fault):
        yield finding(cause, "address", death, weight, fact)


def _places(fault: Fault) -> Iterator[tuple[str, float, str]]:
    """What kind of place the address is."""
    address, does = fault.address, {"write": "wrote", "execute": "jumped"}.get(fault.access or "", "read")
    where = f"native code{in_what(fault)} {does}"
    if emptied(fault):
        fact = f"what it ran at {fault.ip:#x} may be executed and holds one byte over and over: there is no code, or none any more"
        yield from ((CORRUPTION, 2.5, fact), (ARGUMENT, -0.5, fact), (RACE, 0.5, fact))
    elif is_extension(fault):
        return  # it is about the instruction itself
    elif is_generated(fault) and address is not None and fault.index_bytes is not None and by_index(fault):
        fact = f"{where} {far(fault.index_bytes)} a place that it has a pointer to, by an index, and nothing is mapped there"
        yield from ((ARGUMENT, 3.0, fact), (CORRUPTION, 1.0, fact), (RACE, 0.5, fact))  # other code may be there than what was called
    elif fault.access != "execute" and in_no_library(fault):
        fact = f"what it ran at {fault.ip:#x} lies in no library: made at run time, or code that is not there any more"
        yield from ((CORRUPTION, 1.5, fact), (ARGUMENT, 1.5, fact), (RACE, 0.5, fact))  # a compiler's code is as usual as a lost callback
    elif fault.index_bytes is not None and by_index(fault):
        fact = f"{where} {far(fault.index_bytes)} a place that it has a pointer to, by an index, and nothing is mapped there"
        yield from ((ARGUMENT, 3.5, fact), (CORRUPTION, 1.0 if fault.access == "write" else 0.5, fact), (RACE, 0.5, fact))
    elif fault.trap == "general protection":
        fact = f"native code{in_what(fault)} used something as a pointer that is no address"
        yield from ((CORRUPTION, 1.5, fact), (RACE, 1.0, fact), (ARGUMENT, 0.5, fact))
    elif address is None:
        return
    elif address < NULL:
        fact = f"{where} at {address:#x}: a null pointer"
        yield from ((ARGUMENT, 1.0, fact), (RACE, 0.5, fact), (CORRUPTION, 1.0, fact))
    elif fault.access == "execute":
        fact = f"{where} to {address:#x}, where there is no code"
        yield from ((CORRUPTION, 1.5, fact), (ARGUMENT, 0.5, fact))
    elif at_start_of_freed(fault):
        fact = f"{where} at {address:#x}: where a large block or mapping would start, and nothing is mapped there any more"
        yield from ((CORRUPTION, 2.5, fact), (ARGUMENT, -0.5, fact), (RACE, 0.5, fact))
    elif behind_the_end(fault):
        fact = f"{where} at {address:#x}: one step behind the end of what is mapped"
        over = (ARGUMENT, 2.5, fact) if fault.access != "write" else (ARGUMENT, 1.5, fact)
        yield from (over, (CORRUPTION, 0.0 if fault.access != "write" else 1.0, fact))
    elif fault.mapping in ("nothing", ""):
        fact = f"{where} at {address:#x}, where nothing is mapped"
        yield from ((ARGUMENT, 2.5, fact), (CORRUPTION, 1.75, fact), (RACE, 0.5, fact))
    else:
        fact = f"{where} at {address:#x}, which belongs to {fault.mapping} and may not be used so"
        yield from ((ARGUMENT, 1.5, fact), (CORRUPTION, 1.0, fact))


def _recursion(death: Observation) -> Iterator[Finding]:
    names = [frame.function for frame in death.native_stack if frame.kind == "native" and frame.function]
    common = max(set(names), key=names.count, default="")
    if names.count(common) >= DEEP:
        yield finding(
            OVERFLOW, "recursion", death, 2.5, f"{common} stands at least {names.count(common)} times on the stack", "native_stacks.txt"
        )
    elif any(dump.cut_off for dump in death.crash_dumps):
        yield finding(OVERFLOW, "recursion", death, 1.5, "more Python calls were open than faulthandler lists", "stacks.txt")
    if line := said(death, "stack overflow"):
        yield finding(OVERFLOW, "message", death, 2.5, f"it said so: {line}", "stderr.log")


# ------------------------------------------------------------------ across attempts
def _same_place(case: Case, crashed: list[Observation]) -> Iterator[Finding]:
    """Addresses differ from run to run; what kind of place they are does not, when one thing causes them all."""
    first = next((death for death in case.bad_deaths if crash_signal(death)), crashed[0])
    kinds: tuple[tuple[str, Callable[[Fault], bool], str], ...] = (
        (CORRUPTION, at_start_of_freed, "at the start of a block that was given back"),
        (ARGUMENT, behind_the_end, "one step behind the end of what is mapped"),
    )
    for cause, is_there, words in kinds:
        there = sum(fault is not None and is_there(fault) for fault in map(the_fault, crashed))
        if there > 1 and there > len(crashed) / 2:
            yield finding(cause, "same place", first, 1.0, f"{there} of {len(crashed)} deaths came {words}")


def _no_code(case: Case, first: Observation) -> Iterator[Finding]:
    """Code that was made at run time ends in one way, whatever it is given; what was given back, or never was code, in several."""
    crashed = [run for run in case.unprobed if crash_signal(run)]
    lost = [run for run in crashed if (fault := the_fault(run)) and in_no_library(fault)]
    ends = sorted({str(crash_signal(run)) for run in lost})
    if len(ends) > 1 and 2 * len(lost) > len(crashed):
        fact = f"{len(lost)} of {len(crashed)} deaths came where no library is, by {' and '.join(ends)}: it ran what is no code any more"
        yield finding(CORRUPTION, "no code", first, 2.5, fact)
        for cause in (ARGUMENT, RACE):
            yield finding(cause, "no code", first, -1.5, fact)


def _repeats(case: Case, crashed: list[Observation]) -> Iterator[Finding]:
    """A wrong argument kills at the same step of the same cell every time; what depends on timing does not."""
    cells: dict[str, list[Observation]] = {}
    for death in crashed:
        cells.setdefault(describe_cell(death.trial.cell), []).append(death)
    for other in case.unprobed:  # the same fault may end by another signal
        if other not in crashed and crash_signal(other) and (deaths := cells.get(describe_cell(other.trial.cell))):
            deaths.append(other)
    again = [deaths for deaths in cells.values() if len(deaths) > 1]
    if not again:
        yield from _now_and_then(case, crashed) or _one_step(case, crashed)
        return
    alike = [deaths for deaths in again if len({(death.progress.last_step, crash_signal(death)) for death in deaths}) == 1]
    runs, lived = sum(map(len, again)), sum(len(case.survivors_of(deaths[0].trial.cell)) for deaths in again)
    first = next((death for death in case.bad_deaths if crash_signal(death)), again[0][0])
    if len(alike) < len(again):
        fact = f"{runs} deaths of cells that died more than once came at different steps of the same cell, or with different signals"
        race, argument = (2.0, -1.5) if lived else (1.5, -1.0)
        yield finding(RACE, "repeats", first, race, f"{fact}, and {lived} runs of these cells survived" if lived else fact)
        yield finding(ARGUMENT, "repeats", first, argument, fact)
        yield from fewer_threads(case, first)
    elif not lived:  # what comes at one step and not in every run depends on neither what it is given nor the moment
        fact = f"all {runs} deaths of cells that died more than once came at the same step of their cell, with the same signal"
        begun = any(death.progress.last_step is not None for deaths in again for death in deaths)  # else a race that is lost at once
        yield finding(RACE, "repeats", first, (-1.5 if runs > 2 else -1.0) if begun else -0.5, fact)
        yield finding(ARGUMENT, "repeats", first, 1.0 if runs > 2 else 0.7, fact)


def _now_and_then(case: Case, crashed: list[Observation]) -> list[Finding]:
    """Where no cell died twice, one that survived as well tells that it does not come every time; []: none did."""
    lived = next(((death, len(runs)) for death in crashed if (runs := case.survivors_of(death.trial.cell))), None)
    if lived is None:
        return []
    first, times = lived
    fact = f"{times} other run(s) of the same cell survived"
    found = [finding(RACE, "repeats", first, 0.75, fact), finding(ARGUMENT, "repeats", first, -1.5, fact)]
    return [*found, *fewer_threads(case, first)]


def _one_step(case: Case, crashed: list[Observation]) -> Iterator[Finding]:
    """The same of deaths in different cells, where none has died twice: whatever else was changed, the step stayed."""
    (step, name), *others = {(death.progress.last_step, crash_signal(death)) for death in crashed}
    if others or len(crashed) < SEVERAL or (step or 0) < FEWEST_STEPS or any(death.forks for death in crashed):  # a fork has its step too
        return
    first = next((death for death in case.bad_deaths if crash_signal(death)), crashed[0])
    fact = f"all {len(crashed)} deaths, in cells that died once each, came after step {step} by {name}"
    yield finding(RACE, "repeats", first, -1.0, fact)
    yield finding(ARGUMENT, "repeats", first, 1.0, fact)
