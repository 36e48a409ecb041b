"""What the way of ending says by itself: exceptions, exits, signals from outside, native crashes, hangs."""

from __future__ import annotations

from collections.abc import Iterator

from matrix.diagnosis import sigkill
from matrix.diagnosis.case import Case
from matrix.diagnosis.hangs import classes
from matrix.diagnosis.judge import worker_that_began
from matrix.records import Finding, Observation

FAULTS = ("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS")  # raised by the program's own instructions
LIMITS = {
    "SIGXCPU": ("watchdog_or_time_limit", "SIGXCPU: the kernel sends it when a process has used the CPU time that a limit allows"),
    "SIGALRM": ("watchdog_or_time_limit", "SIGALRM: a timer that the program or its launcher set has run out"),
    "SIGVTALRM": ("watchdog_or_time_limit", "SIGVTALRM: a timer of the program's own CPU time has run out"),
    "SIGPROF": ("watchdog_or_time_limit", "SIGPROF: a profiling timer has run out and nobody handles it"),
    "SIGXFSZ": ("resource_limit", "SIGXFSZ: the kernel sends it when a file grows beyond the limit of file sizes"),
}
NO_MEMORY = ("memoryerror", "outofmemoryerror", "out of memory", "cannot allocate memory", "can't allocate memory")
HEAP_WORDS = ("free():", "malloc():", "double free", "corrupted size", "realloc():", "munmap_chunk():", "corrupted double-linked")


def findings(case: Case) -> Iterator[Finding]:
    for death in case.deaths:
        signature = case.outcomes[death.attempt].signature or ""
        if signature.startswith("hang"):
            yield from _hang(death)
        elif first := worker_that_began(death):
            fact = f"{first.role} {first.pid} was ended by {first.signal} before; what its parent did only followed"
            yield _finding("python_exception", "traceback", death, -5.0, fact, "observation.json")
            yield from _signal(death, first.signal or "")
        elif death.exit.signal:
            yield from _signal(death, death.exit.signal)
        else:
            yield from _exit(death)


def _exit(death: Observation) -> Iterator[Finding]:
    error = death.python_error
    if error and any(word in f"{error.type}: {error.message}".lower() for word in NO_MEMORY):
        fact = f"an allocation failed: {error.type}: {error.message[:200]}"
        yield _finding("memory_working_set", "allocation", death, 3.5, fact, "stderr.log")
        if "cuda" not in fact.lower():  # a limit on the address space fails in the same words
            yield _finding("resource_limit", "allocation", death, 2.5, fact, "stderr.log")
        return
    if error:
        fact = f"it printed a traceback and ended: {error.type}: {error.message[:200]}"
        yield _finding("python_exception", "traceback", death, 4.0 if death.exit.returncode else 2.0, fact, "stderr.log")
        return
    yield _finding("python_exception", "traceback", death, -5.0, "no traceback was printed", "stderr.log")
    fact = f"it ended with exit status {death.exit.returncode} by itself, without a traceback"
    yield _finding("library_exit", "silent exit", death, 2.0, fact, "observation.json")
    for call in death.exit_calls[-1:]:
        yield _finding("library_exit", "exit call", death, 2.0, f"{call.call}({call.status}) was called at {call.where}", "hook.jsonl")


def _signal(death: Observation, name: str) -> Iterator[Finding]:
    if death.exit.signal:
        yield _finding("python_exception", "traceback", death, -5.0, f"it was ended by {name}, not by an exception", "observation.json")
    if name == "SIGKILL":
        yield from _kill(death)
        return
    if name in LIMITS:
        cause, fact = LIMITS[name]
        yield _finding(cause, "signal", death, 3.5, fact, "observation.json")
        yield _finding("external_signal", "signal", death, -3.0, fact, "observation.json")
        return
    if name not in FAULTS:
        fact = f"{name} is sent from outside the program's own instructions"
        yield _finding("external_signal", "signal", death, 3.5, fact, "observation.json")
        return
    yield _finding("external_signal", "signal", death, -3.0, f"{name} is raised by the program's own instructions", "observation.json")
    if name == "SIGILL":
        yield _finding(
            "illegal_instruction", "signal", death, 4.0, "SIGILL: the processor does not know an instruction", "observation.json"
        )
    else:
        yield _finding("native_memory_corruption", "signal", death, 0.5, f"{name} in native code", "observation.json")
    for line in death.output_tail:
        if name == "SIGABRT" and any(word in line for word in HEAP_WORDS):
            yield _finding(
                "native_memory_corruption",
                "heap message",
                death,
                3.0,
                f"the allocator found its heap damaged: {line.strip()}",
                "stderr.log",
            )
            return


KILLED: dict[sigkill.Grade, float] = {
    "kernel, proven": -6.0,
    "kernel, by its counter": -4.0,
    "memory at its limit": -1.0,
    "our own limit": -4.0,
    "another process": 3.0,
    "unknown": 1.0,
}  # nats for a signal from outside


def _kill(death: Observation) -> Iterator[Finding]:
    if found := sigkill.attribute(death):
        fact = f"SIGKILL ({found.grade}): {found.text}"
        yield _finding("external_signal", "signal", death, KILLED[found.grade], fact, "observation.json")


def _hang(death: Observation) -> Iterator[Finding]:
    found = classes(death)
    where = "; ".join(
        f"{p.role} {p.pid}: {found[p.pid]} ({' '.join(filter(None, [p.state, p.wchan]))}, {p.cpu_delta_s:.1f} s CPU in {p.window_s:.0f} s)"
        for p in death.processes
    )
    yield _finding("python_exception", "traceback", death, -5.0, "it hung; it did not raise", "observation.json")
    busy = "spin" in found.values()
    if death.processes:
        cause = "cpu_bound_stall" if busy else "deadlock"
        yield _finding(cause, "states", death, 1.5, f"it {'spins' if busy else 'sleeps'}: {where}", "observation.json")


def _finding(cause: str, rule: str, death: Observation, weight: float, fact: str, file: str) -> Finding:
    return Finding(cause=cause, rule=rule, weight=weight, fact=fact, attempt=death.attempt, file=file)
