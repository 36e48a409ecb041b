"""What the other threads of a program did at the moment of its crash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

from matrix.diagnosis import clusters
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import finding, message
from matrix.diagnosis.native_causes import ARGUMENT, AT_EXIT, CORRUPTION, RACE
from matrix.records import Finding, Frame, Observation

WAITS = (
    "futex",
    "nanosleep",
    "pause",
    "sigwait",
    "sigsuspend",
    "poll",
    "epoll",
    "select",
    "read",
    "recv",
    "accept",
    "wait",
    "sem_",
    "pthread_cond",
    "lock",
    "syscall",
    "gomp",
    "kmp",
    "?",
)
ENDS = ("__run_exit_handlers", "__cxa_finalize", "_dl_fini", "_dl_call_fini", "Py_FinalizeEx", "finalize_modules")  # at a process's end
NOT_JOINED = "without an active exception"  # what std::terminate says for a std::thread that is destroyed while it runs
QUEUES = ("futex", "mutex", "lll_lock", "pthread_cond", "sem_wait", "syscall")  # in frames of who waits for another thread
EVENTS = ("poll", "select", "accept", "recv", "sigwait", "pause")  # and of who has nothing to do until something comes
AS_THE_PROBE = "probe one_thread"  # the rule: an axis and the tool's own intervention that do the same count once
POOLS = ("gomp", "libomp", "libiomp", "openblas", "mkl", "tbb", "pthreadpool")  # in names of libraries that keep threads for their calls


def other_threads(death: Observation) -> Iterator[Finding]:
    """Another thread of the program inside the same library, with a call of its own, at the moment of the crash."""
    if not death.native_stack:
        return
    if fact := _while_it_ended(death):
        yield from _race(death, fact, 4.0, -2.5, form=AT_EXIT)
        return
    mine = {frame.library for frame in clusters.relevant(death.native_stack) if frame.library}
    for stack in death.other_stacks:
        shared = sorted(mine & {frame.library for frame in _busy_in(stack)})
        if shared:
            fact = f"at the moment of the crash another thread of the program was inside {shared[0]} as well ({_names(stack)})"
            yield from _race(death, fact, 3.5, -1.5)
            return
    halfway = sum(_halfway_in_the_same(death, stack) for stack in death.other_stacks)
    if halfway:
        where = clusters.relevant(death.native_stack)[0]
        fact = f"at the moment of the crash another thread was halfway through {where.function} in {where.library}, and waited for no lock"
        yield from _race(death, fact, *((2.5, -1.0) if halfway == 1 else (1.0, 0.0)))  # several are a pool, each with data of its own
    elif _of_a_team(death):  # those that it worked beside may have ended since
        if message(death, "heap damaged") or clusters.in_allocator(death.native_stack):
            fact = "the damage was met in a thread that native code had started for a call, which waited for its threads"
            yield finding(RACE, "other thread", death, 1.0, fact, "native_stacks.txt")
    elif death.other_stacks or (death.crash_dumps and all(dump.threads <= 1 for dump in death.crash_dumps)):
        fact = "at the moment of the crash no other thread of the program was at work inside the same library"
        yield finding(RACE, "other thread", death, -0.75, fact, "native_stacks.txt")


def _while_it_ended(death: Observation) -> str | None:
    """Say that a native thread went on while another one ended the process, which takes away what the thread uses; None: it did not."""
    if not of_no_call(death.native_stack):
        line = message(death, "c++ exception")
        left = line is not None and NOT_JOINED in line.text and _ends_the_process(death.native_stack)
        return f"native code left a thread behind that nobody had waited for when the process ended: {line.text}" if left and line else None
    if not any(map(_ends_the_process, death.other_stacks)):
        return None
    own = next((frame for frame in clusters.relevant(death.native_stack) if frame.function), None)
    where = f" in {own.function}" if own else ""
    return f"a native thread still ran{where} while another thread ran the handlers of exit(), which destroy what the thread uses"


def _ends_the_process(stack: Sequence[Frame]) -> bool:
    return any(frame.function.partition("@")[0] in ENDS for frame in stack)


def _race(death: Observation, fact: str, race: float, others: float, *, form: str = "") -> Iterator[Finding]:
    yield finding(RACE, "other thread", death, race, fact, "native_stacks.txt", form=form)
    for cause in (ARGUMENT, CORRUPTION):
        yield finding(cause, "other thread", death, others, fact, "native_stacks.txt")


def fewer_threads(case: Case, first: Observation) -> Iterator[Finding]:
    """Of a crash that does not come every time: whether a change of one axis, without which it comes, takes threads away and leaves the
    libraries.  Survivors are compared with survivors: a death is looked at when its threads are at work."""
    deadly = [death.trial.cell for death in case.deaths]
    mine = _most_threads([run for run in case.survivors if run.trial.cell in deadly])
    for axis in case.result.culprit:
        theirs = _most_threads([run for changed, run in case.beside if changed == axis and case.runs_as_much(run.trial.cell)])
        if mine and theirs and max(theirs) < min(mine):
            fact = f"runs that survived where others died had {min(mine)} threads or more, and with another {axis} {max(theirs)} at most"
            yield finding(RACE, AS_THE_PROBE, first, 1.0, fact, "memory.csv")


def _most_threads(runs: Sequence[Observation]) -> list[int]:
    """Of each main process that was seen, the most."""
    return [process.threads for run in runs for process in run.memory.processes if process.role == "main" and process.threads]


def _of_a_team(death: Observation) -> bool:
    """Whether a thread crashed that no call of the program runs in, of no pool, while such a call waits for threads."""
    return of_no_call(death.native_stack) and any(_calls_and_waits(stack) for stack in death.other_stacks)


def _calls_and_waits(stack: list[Frame]) -> bool:
    own = [frame for frame in takewhile(lambda frame: frame.kind == "native", stack) if not frame.library.startswith(clusters.RUNTIMES)]
    return bool(own) and any(frame.kind == "python" for frame in stack) and waits_for_threads(stack)


def _halfway_in_the_same(death: Observation, stack: list[Frame]) -> bool:
    """Whether a thread sleeps or reads within a call of the very function that crashed: it is not idle, and no lock keeps them apart."""
    crashed, own = clusters.relevant(death.native_stack), clusters.relevant(stack)
    if not crashed or not own or crashed[0].kind != "native" or not crashed[0].function or not crashed[0].library:
        return False
    if (own[0].library, own[0].function) != (crashed[0].library, crashed[0].function):
        return False
    inner = [frame.function.lower() for frame in takewhile(lambda frame: frame != own[0], stack)]
    return bool(inner) and not any(word in name for name in inner for word in (*QUEUES, *EVENTS))


def waits_for_threads(stack: list[Frame]) -> bool:
    """Whether what it runs last is a wait for another thread."""
    native = takewhile(lambda frame: frame.kind == "native", stack)
    return any(word in frame.function.lower() for frame in native for word in QUEUES)


def _busy_in(stack: list[Frame]) -> list[Frame]:
    """The native frames above the innermost Python frame of a thread that runs; []: it waits, runs no native code, or is of a pool."""
    if all(frame.kind != "python" for frame in stack) and not of_no_call(stack):
        return []
    native = list(takewhile(lambda frame: frame.kind == "native", stack))
    waits = bool(native) and any(word in native[0].function.lower() for word in WAITS)
    if not native or (waits and not clusters.in_allocator(native)):  # the crashing thread may hold the allocator's lock: they queue there
        return []
    return [frame for frame in native if frame.library and not frame.library.startswith(clusters.RUNTIMES)]


def of_no_call(stack: list[Frame]) -> bool:
    """Whether a thread without Python is seen from its start and belongs to no pool, whose threads work for somebody else's call."""
    whole = any(frame.function.lstrip("_").startswith(("start_thread", "clone", "thread_start")) for frame in stack)
    return whole and not any(name in frame.library for frame in stack for name in POOLS)


def _names(stack: list[Frame]) -> str:
    names = [frame.function for frame in _busy_in(stack) if frame.function]
    where = next((frame.place for frame in stack if frame.kind == "python"), "")
    return ", called at ".join(filter(None, [next(iter(names), ""), where]))
