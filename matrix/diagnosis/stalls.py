"""Programs that do not die but stop: who waits for whom, and who is busy without getting anywhere."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator

from matrix.diagnosis import probing, slow
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import Cause, Form, finding, remedy
from matrix.diagnosis.fork import GONE, may_have_lost, stuck_children, was_watched
from matrix.diagnosis.hangs import HangClass, classes, first_thread, threaded_forks
from matrix.diagnosis.judge import waits_for_memory
from matrix.evidence.deaths import initiating
from matrix.records import Finding, Load, Observation, ProcessSeen, describe_cell

DEADLOCK, STALL = "deadlock", "cpu_bound_stall"
ENOUGH_LOOKS = 5
CROWDED = 3.0  # threads that want to run for every processor
SWITCHES_PER_S = 2000.0  # a scheduler lets a thread run for milliseconds: so many are of those that give their time away again and again
HARDLY_WAITS = (
    10.0  # times as often as it waits: who wakes others by messages is interrupted by them tens of thousands of times in a second
)
UNDERWAY = 3.0  # times the longest step that was seen: the next one may take as long where steps grow
IN_PROPORTION = 1.5  # times as long as the quantity itself would make it: caches, and the noise of a step's time
BEYOND = 2.0  # times that, from which neither of the two explains it: it goes through all of them for each of them
REMOTE = ("tcp_", "inet_")  # kernel functions: who it waits for may be on another machine
STARTED_ANEW = "start_spawn"  # the intervention after which no process is forked
MOST_RANKS = 4  # of which the line is told
OWN_LINE = re.compile(r"[^/\s]+\.py:\d+ in ")
IDLE = ("pool.py:", "multiprocessing/queues.py:", "concurrent/futures/", "_worker_loop")  # where workers wait for work
TRACKER = "resource_tracker.py:"  # multiprocessing's helper always waits on a pipe
WAITING: tuple[HangClass, ...] = ("lock", "pipe or queue", "child", "interpreter lock", "lock that no thread holds after fork")
ELSEWHERE: dict[HangClass, str] = {
    "stopped": "is stopped by a signal",
    "disk": "waits for a disk or a file server",
    "memory limit": "waits at the memory limit of its cgroup, which has no OOM killer",
    "memory.high": "is held up by the kernel, for its cgroup uses more than memory.high allows",
    "sleep": "sleeps for a time that it chose",
}  # no other thread or process of the program has to do anything for it to go on

SILENT_REMOTE, RANKS_APART = "silent remote", "ranks apart"
SOCKETS = ("wait_woken", "sk_wait", "inet_", "tcp_", "unix_stream")  # kernel functions of a wait for a connection
CAUSES = (
    Cause(
        name=DEADLOCK,
        title="A deadlock",
        clause="threads or processes wait for each other for ever, without using the processor",
        remedies=(
            remedy("axis", "the setting under which one of the two does not take part"),
            remedy("code", "take locks in one order; empty queues before joining their writers; time limits on waits"),
        ),
        references=("Python documentation, multiprocessing: joining processes that use queues",),
        cures_it={"one_core": 0.2, "one_thread": 0.1, "slower_clock": 0.1},
        forms={
            SILENT_REMOTE: Form(
                title="A remote that does not answer",
                clause="a process waits on a connection for an answer that never comes, and no time limit is set on the wait",
                remedies=(
                    remedy("code", "a time limit on the connection (settimeout, timeout=), and what to do when it is over"),
                    remedy("axis", "another remote, or a copy of the data that needs none"),
                ),
            ),
            RANKS_APART: Form(
                title="Ranks wait in different places",
                clause="ranks reached different collective operations, or not all reached one, and each waits for the others for ever",
                remedies=(
                    remedy("code", "the same collectives in the same order on every rank: no condition that only some ranks meet"),
                    remedy("axis", "the setting under which all ranks take the same path"),
                    remedy("code", "a time limit on the group, so that the ranks say where they are"),
                ),
            ),
        },
    ),
    Cause(
        name=STALL,
        title="Busy, but making little or no progress",
        clause="a loop or a spinning lock uses the processor and makes little progress or none",
        every_time=0.7,
        remedies=(
            remedy("axis", "fewer threads, as many as there are processors"),
            remedy("environment", "OMP_WAIT_POLICY=passive, or no GOMP_SPINCOUNT", "latency of parallel regions"),
            remedy("limit", "more processors"),
            remedy("code", "wait without spinning; where steps become ever slower, do not go through all that was kept in each of them"),
        ),
        references=("OpenMP specification, OMP_WAIT_POLICY",),
        cures_it={"one_thread": 0.7, "one_core": 0.2},
    ),
)


def findings(case: Case) -> Iterator[Finding]:
    for death in case.deaths:
        if (case.outcomes[death.attempt].signature or "").startswith("hang"):
            yield from _hang(case, death)
        elif case.outcomes[death.attempt].signature == slow.SIGNATURE:
            yield from _slow(case, death)
        else:
            waits = waits_for_memory(death)
            fact = "it waits for memory, and for nothing that another one of its own does" if waits else "it ended; it did not hang"
            yield finding(DEADLOCK, "ending", death, -6.0, fact)
            yield finding(STALL, "ending", death, -6.0, fact)


def _hang(case: Case, death: Observation) -> Iterator[Finding]:
    found = classes(death)
    if not death.processes:
        return
    where = "; ".join(
        f"{p.role} {p.pid}: {found[p.pid]} ({' '.join(filter(None, [p.state, p.wchan]))}, {p.cpu_delta_s:.1f} s CPU in {p.window_s:.0f} s)"
        for p in death.processes[:4]
    )
    busy = "spin" in found.values()
    fact = f"it {'spins' if busy else 'sleeps'}: {where}"
    yield finding(STALL, "states", death, 2.5 if busy else -4.0, fact)
    yield finding(DEADLOCK, "states", death, -3.0 if busy else 1.5, fact)
    began = _began(death)
    if began:
        yield finding(DEADLOCK, "began", death, -3.0, began)
    elif not busy:
        yield from _waits(case, death, found)
    elif alone := _alone(death, found):
        yield finding(STALL, "alone", death, 1.5, alone)
    if busy and death.load and _is_crowded(death.load):
        fact = f"{death.load.runnable_mean:.0f} threads wanted to run on {death.load.cpus} processors"
        yield finding(STALL, "load", death, 3.0, fact)
    if busy and (underway := _underway(case, death)):
        yield finding(STALL, "underway", death, -2.0, underway, "stdout.log")


def _underway(case: Case, death: Observation) -> str | None:
    """Whether it was waited for hardly longer than steps take that do end, of its own or of a run that was well: then nothing shows that
    this one would not have."""
    if death.progress.last_step_s is None:
        return None
    silent_s = death.wall_s - death.progress.last_step_s
    longest_s = max(run.progress.longest_gap_s or 0.0 for run in (death, *case.survivors))
    if longest_s <= 0 or silent_s > UNDERWAY * longest_s:
        return None
    return f"it was ended after {silent_s:.0f} s without a step, and steps of {longest_s:.1f} s had come to their end"


def _slow(case: Case, death: Observation) -> Iterator[Finding]:
    """It made steps until our limit, several times slower than another cell.  That tells that it is slow and not why: what has more to do
    in a step is slow as well."""
    yield finding(DEADLOCK, "ending", death, -6.0, "it went on making steps; it did not hang")
    other, progress = slow.contrast(death, case.survivors), death.progress
    pace = f"it had made {progress.last_step} steps when limits.wall ended it after {death.wall_s:.0f} s"
    if other is not None:
        changes = {axis: value for axis, value in other.trial.cell.items() if death.trial.cell.get(axis) != value}
        mine, theirs = slow.step_s(death), slow.step_s(other)
        times = f", each {mine / theirs:.0f} times as quickly" if mine and theirs else ""
        done = f"{other.progress.last_step} steps were made in {other.wall_s:.1f} s"
        pace += f"; with {describe_cell(changes)} {done}{times} (attempt {other.attempt})"
    yield finding(STALL, "pace", death, 2.0, pace)
    if began := _began(death):
        yield finding(STALL, "began", death, -3.0, began)
    found = classes(death)
    busy = "spin" in found.values()
    if found and not busy:
        where = "; ".join(f"{process.role} {process.pid}: {found[process.pid]}" for process in death.processes[:4])
        yield finding(STALL, "states", death, -2.0, f"it was slow without using the processor: {where}")
    elif busy:
        yield finding(STALL, "states", death, 0.75, "it was slow and used the processor all the time")
    why = list(_why_slow(case, death, other))
    yield from why
    if not busy or why:
        return
    if work := next((fact for fact, beyond in _more_work(case, death) if beyond <= IN_PROPORTION), None):
        yield finding(STALL, "more work", death, -2.5, f"{work}, which is in proportion")
    elif work := next((fact for fact, beyond in _more_work(case, death) if beyond >= BEYOND), None):
        yield finding(STALL, "more work", death, 1.0, f"{work}, far more than in proportion")


def _why_slow(case: Case, death: Observation, other: Observation | None) -> Iterator[Finding]:
    """What more work in every step does not show, and the quick run `other` does not do either, nor one of the same cell that came to its
    end: that explains nothing."""
    well = [*([other] if other else []), *case.survivors_of(death.trial.cell)]
    if _slows_down(death) and not any(map(_slows_down, well)):
        first, second = death.progress.halves or (0, 0)
        fact = f"steps became ever slower: {first} in the first half of the time, {second} in the second"
        yield finding(STALL, "slower", death, 1.0, f"{fact}; so they do as well where there is more to do in each by design")
    if death.load and _is_crowded(death.load) and not (other and other.load and _is_crowded(other.load)):
        fact = f"{death.load.runnable_mean:.0f} threads wanted to run on {death.load.cpus} processors"
        yield finding(STALL, "load", death, 3.0, fact)
    rate = _switches_per_s(death)
    if _hardly_waits(death) and rate >= max(SWITCHES_PER_S, slow.TIMES * (_switches_per_s(other) if other else 0.0)):
        fact = (
            f"{rate:.0f} times in a second of its processor time another thread took its processor while it could run, and it hardly waits"
        )
        yield finding(STALL, "switches", death, 2.5, fact)


def _slows_down(run: Observation) -> bool:
    return (slow.slower(run) or 0.0) >= slow.SLOWER


def _switches_per_s(run: Observation) -> float:
    """0.0 where it is unknown."""
    return (run.exit.involuntary_switches or 0) / run.exit.cpu_s if run.exit.cpu_s else 0.0


def _hardly_waits(run: Observation) -> bool:
    """Whether it is not just interrupted by those that it wakes and waits for."""
    waited = run.exit.voluntary_switches
    return waited is not None and (run.exit.involuntary_switches or 0) >= HARDLY_WAITS * waited


def _more_work(case: Case, death: Observation) -> Iterator[tuple[str, float]]:
    """By how much more a step takes where some quantity is larger, and how many times as much that is as in proportion: not more may be
    all that its work takes."""
    mine = slow.step_s(death)
    for axis, other in case.beside if mine else ():
        theirs, high, low = slow.step_s(other), case.known_bad[axis], other.trial.cell[axis]
        if not theirs or isinstance(high, str | bool) or isinstance(low, str | bool) or not high > low > 0:
            continue
        if mine and theirs * slow.TIMES <= mine:
            yield f"a step takes {mine / theirs:.1f} times as long with {axis}={high} as with {axis}={low}", mine / theirs * low / high


def _is_crowded(load: Load) -> bool:
    return load.runnable_mean > CROWDED * load.cpus


def crowded(case: Case) -> str:
    """Of a known-bad cell that lives: whether all its runs were short of processors, and how to have slow runs judged; "" if not."""
    loads = [run.load for run in case.survivors if run.trial.cell == case.known_bad and run.load and run.load.looks >= ENOUGH_LOOKS]
    if not loads or not all(map(_is_crowded, loads)):
        return ""
    threads, cpus = statistics.median(load.runnable_mean for load in loads), loads[0].cpus
    return (
        f" But {threads:.0f} threads on average wanted to run on {cpus} processors, which makes every step slow: if being slow is"
        " the failure, set limits.wall to what a good run may take: runs that it cuts off count as deaths once another cell is done in"
        f" 1/{slow.TIMES:.0f} of it."
    )


def _alone(death: Observation, found: dict[int, HangClass]) -> str | None:
    """Whether it is one thread of the process that makes the steps that spins: then it waits for nobody, and nobody disturbs it."""
    spinning = [process for process in death.processes if found[process.pid] == "spin"]
    if len(spinning) != 1 or spinning[0].role != "main" or (spinning[0].runnable_threads or 1) > 1:
        return None
    where = next((f" in {frame}" for frame in spinning[0].stack if ":" in frame), "")
    return f"one thread of the main process uses the processor{where}, and makes no step"


def _began(death: Observation) -> str | None:
    """What ended before the hang: those who wait for it are not each other's prisoners."""
    first, error = initiating(death.deaths), death.python_error
    if first and first.role != "main":
        return f"{first.role} {first.pid} ended by {first.signal or f'status {first.status}'} before; the others wait for it"
    return f"an exception was raised before it hung: {error.type}: {error.message[:120]}" if error else None


def _waits(case: Case, death: Observation, found: dict[int, HangClass]) -> Iterator[Finding]:
    """The main process first, then the one that it waits for; where a fork lost threads, that explains it as well."""
    process = _who_decides(death, found)
    if process is None:
        return
    kind = found[process.pid]
    if kind in ELSEWHERE:
        fact = f"{process.role} {process.pid} {ELSEWHERE[kind]} ({' '.join(filter(None, [process.state, process.wchan]))})"
        yield finding(DEADLOCK, "waits", death, -2.0, fact)
        if process.state == "T":
            yield finding("external_signal", "stopped", death, 4.5, f"{fact} and nobody let it go on")  # nothing else stops one so
        return
    if kind not in WAITING:
        return
    named = _own_line(process) or next((frame for frame in process.stack if ".py:" in frame), "")
    fact = f"{_called(process)} waits for a {kind}" + (f" at {named}" if named else "")
    remote = process.role == "main" and process.wchan.startswith(SOCKETS) and not _descendants(process, death.processes)
    yield finding(DEADLOCK, "waits", death, _weight(case, death, process), fact, form=SILENT_REMOTE if remote else "")
    if apart := _ranks_apart(death, found):
        yield finding(DEADLOCK, "ranks", death, 1.5, f"{apart}: none can answer the other", form=RANKS_APART)
    if death.progress.finished_line:
        yield finding(DEADLOCK, "after the end", death, 1.0, "it had said that it was finished, and waits at its exit", "stdout.log")


def _weight(case: Case, death: Observation, process: ProcessSeen) -> float:
    if stuck_children(death, threaded_forks(death)):
        return 0.5
    if may_have_lost(death) and probing.cured(case, STARTED_ANEW) is not False:
        return 1.5
    return 1.5 if process.wchan.startswith(REMOTE) or not was_watched(death) else 3.0


def _below_a_poll(others: list[ProcessSeen], found: dict[int, HangClass]) -> ProcessSeen | None:
    """Return a process that waits while the main process only looks at it now and then, as a launcher does; None: all have a reason.

    Ranks come first.  A worker of a pool that waits for work is well, and so may one helper be that waits for what to do."""
    waiting = [process for process in others if found[process.pid] in WAITING]
    ranks = [process for process in waiting if process.rank is not None]
    programs = [process for process in waiting if _own_line(process) and not _waits_for_work(process)]
    stuck = ranks or (programs if len(programs) > 1 else [])
    return min(stuck, key=lambda process: (process.rank or 0, process.pid), default=None)


def _waits_for_work(process: ProcessSeen) -> bool:
    return any(word in frame for frame in process.stack for word in IDLE)


def _ranks_apart(death: Observation, found: dict[int, HangClass]) -> str | None:
    """Say that ranks wait for each other at different lines of the program; None: they do not, or it is unknown."""
    ranks = sorted((each for each in death.processes if each.rank is not None), key=lambda each: each.rank or 0)
    places = {each.rank: place for each in ranks if found[each.pid] in WAITING and (place := _own_line(each))}
    if len(places) < 2 or len(set(places.values())) < 2:
        return None
    return "; ".join(f"rank {rank} waits at {place}" for rank, place in list(places.items())[:MOST_RANKS])


def _called(process: ProcessSeen) -> str:
    """Return what people call a process: a rank by its rank."""
    return f"{process.role} {process.pid}" if process.rank is None else f"rank {process.rank} (pid {process.pid})"


def _own_line(process: ProcessSeen) -> str | None:
    """Return the innermost line of the program's own code; paths of installed packages have folders in them."""
    return next((frame for frame in first_thread(process) if OWN_LINE.match(frame)), None)


def _who_decides(death: Observation, found: dict[int, HangClass]) -> ProcessSeen | None:
    """The main process, unless it only waits for others none of which waits for anybody."""
    living = [process for process in death.processes if process.state not in GONE]
    main = next((process for process in living if process.role == "main"), None)
    others = [process for process in living if process is not main and not any(TRACKER in frame for frame in process.stack)]
    if main is None or found[main.pid] == "unknown":
        return next((process for process in others if found[process.pid] in WAITING), main)
    if found[main.pid] == "sleep" and (stuck := _below_a_poll(others, found)):
        return stuck
    below = _descendants(main, others)
    if found[main.pid] in ("child", "pipe or queue") and below and all(found[process.pid] in ELSEWHERE for process in below):
        return below[0]
    return main


def _descendants(main: ProcessSeen, others: list[ProcessSeen]) -> list[ProcessSeen]:
    """Return those that the main process started; one that left it, as a daemon does, is nobody that it waits for as a child."""
    family, found = {main.pid}, list[ProcessSeen]()
    while new := [process for process in others if process.ppid in family and process not in found]:
        found += new
        family |= {process.pid for process in new}
    return found
