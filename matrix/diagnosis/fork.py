"""A process forked while its parent had threads, or had open what allows one user (cause `fork_unsafe`).

The child gets the parent's memory with one thread: thread pools (OpenMP, BLAS) and locks that other threads held are
there, the threads are not.  The child waits for them for ever, asleep or spinning, and the parent waits for the child.
An open file it shares, with the position in it: who reads there while another does reads what it did not ask for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import takewhile

from matrix.diagnosis import shared_positions
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import Cause, finding, remedy
from matrix.diagnosis.hangs import first_thread, hang_class, threaded_forks
from matrix.diagnosis.judge import FAULTS
from matrix.diagnosis.native_causes import NATIVE_CRASH
from matrix.records import Cell, Finding, ForkEvent, Observation, ProcessSeen

CAUSE = "fork_unsafe"
CAUSES = (
    Cause(
        name=CAUSE,
        title="Fork after threads were started, or with open files in use",
        clause="a process is forked after native threads have started, or with files open that it reads: the copy inherits locks and "
        "thread pools whose threads do not exist in it, and shares the position in a file",
        every_time=0.75,
        remedies=(
            remedy("axis", "spawn or forkserver as start method", "slower starts; objects must be picklable"),
            remedy("environment", "one thread for OpenMP and BLAS", "speed; locks of other threads stay dangerous"),
            remedy("code", "fork before anything starts threads, or no work with threads in the parent; open files in each worker"),
        ),
        references=("Python documentation, multiprocessing: contexts and start methods", "man 2 fork, notes on multithreaded processes"),
        cures_it={"start_spawn": 0.9, "start_forkserver": 0.85, "one_thread": 0.6, "one_core": 0.1},
    ),
)
POOLS = (
    "GOMP_",
    "__kmp",
    "blas_thread",
    "pthreadpool",
    "omp_",
    "libgomp",
    "libiomp",
    "libomp",
    "openblas",
    "tbb",
)  # frames of a thread pool
LOCKS = re.compile(r"(?<![a-z])lock|acquire|futex|sem_wait|pthread_(?:cond|mutex|rwlock)")  # not clock_nanosleep, not block
HELD = ("acquire_lock", "pthread_mutex", "lll_lock")  # frames of a wait for a lock of the process's own memory, which fork copies
SHARED = ("multiprocessing/queues.py:", "multiprocessing/connection.py:", "multiprocessing/synchronize.py:", "selectors.py:", "SemLock")
WORKERS = ("worker", "miner")
GONE = ("Z", "X")  # ended, and not yet waited for
INNER = 8  # frames from the innermost
PYTHON_FRAME = re.compile(r"(?:\.py|<\w+>):\d+ in ")
C_LIBRARIES = ("libc.", "libc-", "libpthread", "libstdc++")
OF_PYTHON = ("Py", "_Py", "lock_Py", "acquire_timed", "take_gil", "rlock_", "sem_", "SemLock")  # functions of the interpreter that wait
LOST = "lock that no thread holds after fork"


def findings(case: Case) -> Iterator[Finding]:
    hangs = [death for death in case.deaths if (case.outcomes[death.attempt].signature or "").startswith("hang")]
    for death in hangs:
        yield from _from_hang(death)
    crashes = [death for death in case.deaths if crashed_in_a_fork(death)]
    for death in crashes:
        fact = "it crashed in a forked process, which shares files, their positions and connections with those forked beside it"
        yield finding(CAUSE, "crash", death, 1.0, fact)
    if crashes and len(crashes) == len(case.deaths):
        yield from _started_anew(case, (case.bad_deaths or crashes)[0])
    yield from shared_positions.findings(case)
    yield from _started_anew_by_the_tool(case)
    if hangs and all(threaded_forks(death) for death in hangs) and len(case.survivors) > 1:
        stuck = all(stuck_children(death, threaded_forks(death)) for death in hangs)
        yield from _from_survivors(case, stuck)


def crashed_in_a_fork(death: Observation) -> bool:
    """Whether what died first was a worker, of a fault in its own code, and the workers of that run were forked."""
    first = next((each for each in death.deaths if each.part == "initiating"), None)
    return first is not None and first.role in WORKERS and first.signal in FAULTS and bool(death.forks)


def started_anew(run: Observation) -> bool:
    """Whether it had workers, and nothing was forked."""
    return was_watched(run) and not run.forks and any(process.role in WORKERS for process in run.memory.processes)


def _started_anew(case: Case, death: Observation) -> Iterator[Finding]:
    """A change of one axis after which workers are there as before but not forked, and it lives."""
    for axis, survivor in case.beside:
        if started_anew(survivor):
            change = f"{axis}={survivor.trial.cell[axis]}"
            fact = f"with {change} alone its workers are started anew instead of forked, and it survives (attempt {survivor.attempt})"
            yield finding(CAUSE, "started anew", death, 2.5, fact)
            for cause in NATIVE_CRASH:
                yield finding(cause, "started anew", death, -1.0, fact)
            return


def _started_anew_by_the_tool(case: Case) -> Iterator[Finding]:
    """Judge runs under the tool's own intervention in which workers were there as before, started anew, and it lived."""
    for run in case.probed:
        lived = case.outcomes[run.attempt].kind == "survived" and run.trial.cell == case.known_bad
        if lived and any(name in run.trial.probes for name in ("start_spawn", "start_forkserver")) and not threaded_forks(run):
            fact = "with its processes started anew instead of forked by this tool, and nothing else changed, it survives"
            yield finding(CAUSE, "started anew", run, 2.0, fact)
            yield finding("deadlock", "started anew", run, -1.5, fact)


def was_watched(observation: Observation) -> bool:
    """Whether the hook was there to see forks: without it, none seen says nothing."""
    return all(missing.what != "hook" for missing in observation.not_collected)


def _from_hang(death: Observation) -> Iterator[Finding]:
    forks = threaded_forks(death)
    if not forks and not was_watched(death):
        return
    if not forks:
        fact = "no fork happened while other threads were alive" if death.forks else "no process was forked"
        yield finding(CAUSE, "fork", death, -3.0, fact, "hook.jsonl")
        return
    waiting = stuck_children(death, forks)
    if not waiting:
        if not may_have_lost(death):
            fact = "no forked child waits for a lock or for threads that it lost: they wait for work, do something else, or are gone"
            yield finding(CAUSE, "fork", death, -2.0, fact, "observation.json")
        return
    child, fork = waiting[0], next(fork for fork in forks if fork.pid == waiting[0].ppid)
    how = f" by {fork.module}" if fork.module else ""
    fact = (
        f"pid {fork.pid} forked{how} while {fork.threads_alive} threads were alive; its child {child.pid} {_has(child)} and {_does(child)}"
    )
    yield finding(CAUSE, "fork", death, 4.0 if child.stack else 1.5, fact, "hook.jsonl")  # asleep in a futex: it may only wait for its turn
    if frame := _waits_in(child):
        yield finding(
            CAUSE, "waits", death, 2.0, f"the child waits in {frame} for threads or a lock that it does not have", "observation.json"
        )


def stuck_children(death: Observation, forks: Sequence[ForkEvent]) -> list[ProcessSeen]:
    """Children that have lost threads of their parent and wait for one of them: in a lock of their own memory, or inside a pool.

    A worker that waits for work in a queue is well, and an ended one waits for nothing."""
    forkers = {fork.pid for fork in forks}
    children = _children(death, forks)
    held = [child for child in children if child.threads == 1 and _waits_for_a_copied_lock(child, forkers)]
    pools = [child for child in children if child not in held and _named(_frames(child), POOLS)]
    native = {fork.pid for fork in forks if fork.threads_alive > len(fork.thread_names)}  # else all that were lost are Python's own
    others = [child for child in children if child not in held + pools and child.ppid in native]
    return held + pools + [child for child in others if _waits_in_native_code(child)]


def _children(death: Observation, forks: Sequence[ForkEvent]) -> list[ProcessSeen]:
    forkers = {fork.pid for fork in forks}
    return [process for process in death.processes if process.ppid in forkers and process.state not in GONE]


def _waits_for_a_copied_lock(child: ProcessSeen, forkers: set[int]) -> bool:
    if any(word in frame for frame in _frames(child, whole=True) for word in SHARED):
        return False  # what processes share is given back by processes, and an idle worker waits there
    return hang_class(child, forkers) == LOST or bool(_named(_frames(child), HELD))


def _waits_in_native_code(child: ProcessSeen) -> bool:
    """Return True if the thread that forked waits for another thread within a call of a native library.

    Thread pools have many names; what they share is a call from Python that waits inside a library, neither Python's own nor C's."""
    frames = _frames(child, whole=True)
    native = list(takewhile(lambda frame: not PYTHON_FRAME.search(frame), frames))
    waits = next((frame for frame in native if not _is_of_the_system(frame)), "")
    called = len(native) < len(frames) and bool(waits)
    return called and not waits.rpartition(" in ")[2].startswith(OF_PYTHON) and _waits_somewhere(child)


def _is_of_the_system(frame: str) -> bool:
    """Return True for a frame of the C or C++ library, by the library or by the name of its function."""
    place, _, function = frame.rpartition(" in ")
    return place.startswith(C_LIBRARIES) or function.startswith(("std::", "pthread_", "__"))


def may_have_lost(death: Observation) -> bool:
    """Return True if a forked child waits for nobody knows whom, and its parent had threads that it does not have."""
    forks = threaded_forks(death)
    return any(_is_unseen(child) or _waits_somewhere(child) for child in _children(death, forks))


def _waits_somewhere(child: ProcessSeen) -> bool:
    """Return True if it waits in a futex, and not where workers wait for work."""
    return "futex" in child.wchan and not any(word in frame for frame in _frames(child, whole=True) for word in SHARED)


def _frames(child: ProcessSeen, *, whole: bool = False) -> list[str]:
    frames = first_thread(child)
    return frames if whole else frames[:INNER]


def _named(frames: Sequence[str], words: Sequence[str]) -> list[str]:
    return [frame for frame in frames if any(word in frame for word in words)]


def _is_unseen(child: ProcessSeen) -> bool:
    return child.threads == 1 and child.state == "S" and not child.stack and not child.wchan


def _has(child: ProcessSeen) -> str:
    return f"has {child.threads} thread{'s' if child.threads > 1 else ''} of its own"


def _from_survivors(case: Case, stuck: bool) -> Iterator[Finding]:
    """`stuck`: every hang has a child that waits for what it lost; without one, that survivors do not fork says nothing."""
    watched = [survivor for survivor in case.survivors if was_watched(survivor)]
    if len(watched) < 2:
        return
    forked = [survivor for survivor in watched if threaded_forks(survivor)]
    if forked:
        fact = "a run survived although a process was forked with threads alive"
        yield finding(CAUSE, "contrast", forked[0], -1.0, fact, "hook.jsonl")
    elif stuck:
        fact = f"in none of the {len(watched)} surviving runs was a process forked with threads alive"
        yield finding(CAUSE, "contrast", watched[0], 2.0, fact, "hook.jsonl")


def is_gone(case: Case, cell: Cell) -> bool:
    """Whether nothing forks with threads alive any more in the surviving attempts of `cell`, while everything still runs."""
    survivors = case.survivors_of(cell)
    seen = bool(survivors) and all(was_watched(survivor) for survivor in survivors)
    return seen and case.runs_as_much(cell) and not any(threaded_forks(survivor) for survivor in survivors)


def _does(child: ProcessSeen) -> str:
    if child.window_s and child.cpu_delta_s > 0.5 * child.window_s:
        return f"spins (state {child.state}, {child.cpu_delta_s:.1f} s of CPU in {child.window_s:.0f} s)"
    return f"sleeps (state {child.state}{', in ' + child.wchan if child.wchan else ''})"


def _waits_in(child: ProcessSeen) -> str | None:
    """The innermost frame that belongs to a thread pool, or else to a lock."""
    frames = _frames(child)
    for found in (_named(frames, POOLS), [frame for frame in frames if LOCKS.search(frame)]):
        if found:
            return next((frame for frame in found if not frame.endswith("?")), found[0])  # a named function says more
    return None
