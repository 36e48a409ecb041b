"""Limits of the system other than memory: descriptors, processes, address space, processor time; and what the system says of any."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from matrix.diagnosis.addresses import NULL, PAGE, on_stack, the_fault
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import Cause, finding, message, remedy, reports
from matrix.diagnosis.judge import by_our_clock, first_signal
from matrix.diagnosis.memory_causes import NAMES as MEMORY
from matrix.diagnosis.native_causes import NATIVE_CRASH
from matrix.diagnosis.sigkill import by_others
from matrix.records import Bound, Finding, Message, MessageKind, Observation

RESOURCE, TIME, FULL, CHANGED = "resource_limit", "watchdog_or_time_limit", "shm_or_disk_full", "file_changed_under_mmap"
NEAR = 0.9  # of a limit
SOME_SPACE = 0.25  # of the address space: below it no allocation of a usual size is refused for it
NEAR_SPACE = 0.75  # of the address space: what did not fit any more was large
LATE = 0.8  # of the attempt: what a process set for itself was seen by then
SAME_TIME = 0.12  # relative spread of times that are called equal
DIFFERENT = 1.3  # ratio of steps that are called different
TIMERS = {
    "SIGXCPU": "SIGXCPU: the kernel sends it when a process has used the processor time that a limit allows",
    "SIGALRM": "SIGALRM: a timer that the program or its launcher set has run out",
    "SIGVTALRM": "SIGVTALRM: a timer of the program's own processor time has run out",
    "SIGPROF": "SIGPROF: a profiling timer has run out and nobody handles it",
}
COUNTS = {
    "nofile": "open files",
    "nproc": "processes and threads",
    "pids": "processes and threads of its group",
    "fsize": "the size of a file",
    "memlock": "locked memory",
    "data": "data",
    "maps": "mappings of memory (vm.max_map_count)",
    "inotify": "inotify instances of its user (fs.inotify.max_user_instances)",
    "watches": "inotify watches of its user (fs.inotify.max_user_watches)",
    "as": "the address space",
    "cpu": "processor time",
    "stack": "the stack",
}
COUNTED = ("nofile", "nproc", "pids", "fsize", "memlock", "data", "maps", "inotify", "watches")  # what is counted against its limit
OF_MEMORY = ("memlock", "data", "maps")  # at these an allocation is refused, in the words of a lack of memory, though there is enough
MAP_FAILED = (1 << 64) - PAGE  # what mmap returns for "no", and a few bytes more
NO_MEMORY: tuple[MessageKind, ...] = ("out of memory", "cuda out of memory")  # an allocator of a device's staging memory says the latter
OF_SPACE: tuple[MessageKind, ...] = ("out of memory", "no more processes")  # the stack of a thread is mapped as well
LIFTED = {
    "nofile": RESOURCE,
    "nproc": RESOURCE,
    "pids": RESOURCE,
    "fsize": RESOURCE,
    "memlock": RESOURCE,
    "data": RESOURCE,
    "as": RESOURCE,
    "cpu": TIME,
    "stack": "stack_overflow",
}
ENOUGH_RUNS = 2  # of either kind, before what they have in common tells anything
HIGHER = 1.5  # times a limit: a higher one
SAID = {
    "too many files": (RESOURCE, 3.5),
    "no more processes": (RESOURCE, 3.5),
    "file too large": (RESOURCE, 3.5),
    "no more ports": (RESOURCE, 2.5),  # an address that the machine does not have is refused in these words too
    "cpu time": (TIME, 2.5),
    "no space": (FULL, 3.5),
    "bus error": (FULL, 1.5),
}
SILENT = (RESOURCE, FULL)  # of which the absence of words is said: deaths without them count in the median
AT_WORK: tuple[MessageKind, ...] = ("no more ports",)  # before the first step they are those of a wrong setting
EAGAIN, STARTS = "resource temporarily unavailable", ("fork", "popen", "subprocess", "process", "spawn", "thread", "clone")
ENDED_IT = 1.0  # more, when the exception that ended it says so: the words were no mere output
ENDED_BY_TIMER = ("Timeout (",)  # faulthandler.dump_traceback_later(exit=True)

CAUSES = (
    Cause(
        name=RESOURCE,
        title="A limit other than memory was reached",
        clause="the program reaches a limit of the operating system: open files, processes and threads, address space or locked memory",
        every_time=0.95,
        remedies=(
            remedy("axis", "the setting that uses fewer of them"),
            remedy("limit", "a higher limit (ulimit -n, -u, -v; pids of the container)", "a leak only dies later"),
            remedy("code", "close what is not needed; share tensors through files instead of descriptors"),
        ),
        references=("man 2 getrlimit", "PyTorch documentation, multiprocessing sharing strategies"),
        cures_it={"raised_nofile": 0.5, "raised_pids": 0.3, "raised_address_space": 0.4, "one_thread": 0.15},
    ),
    Cause(
        name=TIME,
        title="A time limit or a watchdog",
        clause="something ends the job after a fixed time, whatever step it has reached: a processor-time limit, a timer, a watchdog or "
        "a scheduler",
        every_time=0.9,
        remedies=(
            remedy("limit", "a longer limit"),
            remedy("axis", "less work in a run"),
            remedy("code", "checkpoints, and a restart before the limit"),
        ),
        references=("man 2 setrlimit, RLIMIT_CPU", "man 2 alarm"),
        cures_it={"raised_cpu_time": 0.6},
    ),
)


RAISED = {"as": "raised_address_space", "nofile": "raised_nofile", "pids": "raised_pids", "nproc": "raised_pids", "cpu": "raised_cpu_time"}
REMOVES = 0.9  # chance that the intervention which raises the very limit that was met takes the death away


def causes_of(case: Case) -> dict[str, Cause]:
    """Return entries that predict more of this case: the limit that its deaths met is known by name."""
    raised = {RAISED[name]: REMOVES for name in met_limits(case)}
    entries = (cause for cause in CAUSES if any(probe in cause.cures_it for probe in raised))
    return {
        cause.name: dataclasses.replace(
            cause, cures_it={**cause.cures_it, **{probe: chance for probe, chance in raised.items() if probe in cause.cures_it}}
        )
        for cause in entries
    }


def met_limits(case: Case) -> set[str]:
    """Return the names of the limits that deaths of the known-bad cell had nearly used up and that an intervention raises."""
    met = {bound.name for death in case.bad_deaths for bound in bounds_of(death) if _is_met(death, bound)}
    return met & set(RAISED)


def _is_met(death: Observation, bound: Bound) -> bool:
    """Return True if a process had used up nearly all that a limit allows."""
    used = max(bound.used or 0, (death.exit.cpu_s or 0) if bound.name == "cpu" else 0)
    share = NEAR_SPACE if bound.name == "as" else NEAR
    return used >= share * bound.soft


def findings(case: Case) -> Iterator[Finding]:
    for death in case.deaths:
        yield from _messages(case, death)
        yield from _counts(death)
        yield from _address_space(death)
        yield from _timer(death)
    if case.deaths:
        yield from _refused_starts(case)
        yield from _only_in_deaths(case)
        yield from _timing(case)
        yield from _without_the_limit(case)


def _messages(case: Case, death: Observation) -> Iterator[Finding]:
    """What the system's own words for an error say; a program may print them and be well, so without more they confirm nothing."""
    told: dict[str, list[Finding]] = {cause: [] for cause, _ in SAID.values()}
    for line in death.messages:
        if line.kind not in SAID or (line.kind in AT_WORK and not death.progress.last_step) or _of_a_lock(death, line):
            continue
        cause, weight = SAID[line.kind]
        said, file = line.text.strip(), f"{line.stream}.log"
        if case.said_alike(line.kind):
            told[cause].append(finding(cause, "message", death, -1.0, f"runs that survive were told so too: {said[:160]}", file))
            continue
        ended_it = reports(death, line)
        weight += ENDED_IT if ended_it else 0.0
        told[cause].append(finding(cause, "message", death, weight, f"it was told: {said[:200]}", file))
        if ended_it:
            fact = f"the exception only reports what the system refused: {said[:120]}"
            yield finding("python_exception", "reported", death, -3.5, fact, file)
    for cause, of_cause in told.items():  # one for each death: a rule's findings are a median, and words that are absent would halve it
        if of_cause:
            yield max(of_cause, key=lambda each: each.weight)
        elif cause in SILENT:
            yield finding(cause, "message", death, 0.0, "the system refused nothing in words")


def _of_a_lock(death: Observation, line: Message) -> bool:
    """EAGAIN, where nothing was to be started: also a lock that somebody holds and a pipe that is not ready are told so."""
    if EAGAIN not in line.text.lower() or not reports(death, line):
        return False
    if any(_reached(bound) for bound in bounds_of(death) if bound.name in ("nproc", "pids")):
        return False
    told = [line.text, *(death.python_error.frames if death.python_error else []), *death.output_tail]
    return not any(word in each.lower() for each in told for word in STARTS)


def _counts(death: Observation) -> Iterator[Finding]:
    for trend in death.trends:
        if trend.limit and trend.most >= NEAR * trend.limit:
            fact = f"{trend.what} of {trend.role} rose from {trend.first} to {trend.most} of {trend.limit} that are allowed"
            grew = trend.per_step is not None and trend.per_step.low > 0
            fact += f", {trend.per_step.value:.2g} with every step" if grew and trend.per_step else ""
            yield finding(RESOURCE, "count", death, 3.5 if grew else 2.5, fact)
    for bound in filter(_reached, bounds_of(death)):
        fact = f"{bound.used} of {bound.soft} {COUNTS[bound.name]} were in use"
        yield finding(RESOURCE, "count", death, 3.0, fact)
        if bound.name in OF_MEMORY and any(message(death, kind) for kind in NO_MEMORY):
            fact += ", and the words of a lack of memory are those in which that is refused"
            yield finding(RESOURCE, "refused", death, 1.5, fact)
            for cause in (*MEMORY, *NATIVE_CRASH, "python_exception"):
                yield finding(cause, "refused", death, -2.0, fact)
        elif used := unchecked(death, bound.name):
            fact += f", and {used}: what was refused and not looked at"
            yield finding(RESOURCE, "refused", death, 1.5, fact)
            for cause in NATIVE_CRASH:
                yield finding(cause, "refused", death, -1.5, fact)
    if first_signal(death) == "SIGXFSZ":
        fact = "SIGXFSZ: the kernel sends it when a file grows beyond the limit of file sizes"
        yield finding(RESOURCE, "signal", death, 4.5, fact)
        yield finding("external_signal", "signal", death, -3.0, fact)


def _refused_starts(case: Case) -> Iterator[Finding]:
    """Judge the kernel's own count of processes and threads that it refused to start."""
    refused_alive = any(bound.refused for run in case.survivors for bound in bounds_of(run))
    for death in case.deaths:
        bound = next((bound for bound in bounds_of(death) if bound.refused), None)
        if bound is None:
            continue
        fact = f"the kernel refused to start {bound.refused} processes or threads: their group allows {bound.soft}"
        if refused_alive:
            yield finding(RESOURCE, "refused starts", death, 0.5, f"{fact}; but so it did in a run that survived")
            continue
        yield finding(RESOURCE, "refused starts", death, 3.5, fact)
        yield finding("library_exit", "refused starts", death, -2.5, f"{fact}; who ends for that only reports it")


def _only_in_deaths(case: Case) -> Iterator[Finding]:
    """A count that was all used up whenever it died and never when it lived: being near a limit alone may be how a pool is meant to be."""
    for name in COUNTED:
        dying, living = (
            [bound for run in runs for bound in bounds_of(run) if bound.name == name and bound.used is not None]
            for runs in (case.deaths, case.survivors)
        )
        if min(len(dying), len(living)) >= ENOUGH_RUNS and all((bound.used or 0) >= bound.soft for bound in dying):
            most = max(bound.used or 0 for bound in living)
            fact = f"in {len(dying)} runs that died all {dying[0].soft} {COUNTS[name]} were in use, in those that lived {most} at most"
            yield finding(RESOURCE, "only in deaths", case.deaths[0], -1.5 if any(map(_reached, living)) else 1.5, fact)


def _reached(bound: Bound) -> bool:
    return bound.name in COUNTED and bound.used is not None and bound.used >= NEAR * bound.soft


def unchecked(death: Observation, bound: str = "") -> str:
    """What was used as if it had been granted, in words; "": nothing of the kind.  Where no mapping may be added, none can be split
    either: a part of what was reserved stays without access."""
    fault = the_fault(death)
    if fault is None or fault.address is None:
        return ""
    if fault.address < NULL:
        return "a null pointer was used"
    if fault.address >= MAP_FAILED:
        return "what mmap returns when it fails was used as a pointer"
    return "what may not be accessed was used" if bound == "maps" and fault.mapping == "no access" and not on_stack(fault) else ""


def bounds_of(death: Observation) -> list[Bound]:
    return [bound for settings in death.settings for bound in settings.bounds]


def _address_space(death: Observation) -> Iterator[Finding]:
    """An allocation that the limit refused: an exception, or a null pointer that nobody checked."""
    bound, fault, pointer = next((b for b in bounds_of(death) if b.name == "as"), None), the_fault(death), unchecked(death)
    refused = pointer or any(message(death, kind) for kind in OF_SPACE)
    if bound is None:
        if first_signal(death) == "SIGXFSZ" or any(map(_reached, bounds_of(death))) or _names_a_limit(death):
            return  # that is another limit
        if any(settings.last_s >= LATE * death.wall_s for settings in death.settings):
            yield finding(RESOURCE, "address space", death, -1.0, "no process of it had a limit on its address space")
        return
    used = max(bound.used or 0, (fault.mapped_bytes or 0) if fault else 0)
    fact = f"its address space held {used >> 20} MiB of the {bound.soft >> 20} MiB that its limit allows"
    if refused and used < SOME_SPACE * bound.soft:
        yield finding(RESOURCE, "address space", death, 1.0, f"{fact}; an allocation was refused")
    elif refused:
        what = pointer or "an allocation was refused"
        yield finding(RESOURCE, "address space", death, 3.5, f"{fact}, and {what}")
        for cause in ("memory_working_set", "native_bad_argument", "native_memory_corruption", "python_exception"):
            yield finding(cause, "address space", death, -1.5, f"{fact}, and {what}")
    elif used >= NEAR_SPACE * bound.soft:
        yield finding(RESOURCE, "address space", death, 2.5, fact)


def _names_a_limit(death: Observation) -> bool:
    """Whether the exception that ended it says in words of its own which kind of thing was refused."""
    return any(SAID[line.kind][0] == RESOURCE and reports(death, line) for line in death.messages if line.kind in SAID)


def _without_the_limit(case: Case) -> Iterator[Finding]:
    """A change of one axis that lifts a limit, and the program lives: the limit takes part."""
    dying = next((death for death in case.bad_deaths if death.settings), None)
    for bound in bounds_of(dying) if dying else ():
        cause = LIFTED.get(bound.name)
        for axis, survivor in case.beside if cause else ():
            theirs = [b.soft for b in bounds_of(survivor) if b.name == bound.name]
            if cause and dying and survivor.settings and all(soft >= HIGHER * bound.soft for soft in theirs):
                now = f"{min(theirs)}" if theirs else "none"
                change = f"{axis}={survivor.trial.cell[axis]}"
                fact = f"with {change} alone the limit on {COUNTS[bound.name]} is {now} instead of {bound.soft}"
                yield finding(cause, "limit lifted", dying, 2.5, f"{fact}, and it survives (attempt {survivor.attempt})")
                break
    yield from _lifted_by_the_tool(case)


def _lifted_by_the_tool(case: Case) -> Iterator[Finding]:
    """Judge runs in which the tool raised the very limit that the deaths had nearly used up; what it does outweighs words."""
    for name in sorted(met_limits(case)):
        for run in case.probed:
            held = bool(run.probes) and all(result.held for result in run.probes)
            lived = case.outcomes[run.attempt].kind == "survived" and run.trial.cell == case.known_bad
            if held and lived and RAISED[name] in run.trial.probes:
                fact = f"with the limit on {COUNTS[name]} raised by this tool, and nothing else changed, it survives"
                yield finding(LIFTED[name], "limit lifted", run, 2.5, fact)
                yield finding("library_exit", "limit lifted", run, -2.5, fact)


# ------------------------------------------------------------------ time
def _timer(death: Observation) -> Iterator[Finding]:
    signal = first_signal(death)
    if signal in TIMERS and not by_others(death, signal):
        yield finding(TIME, "signal", death, 4.5, TIMERS[signal])
        yield finding("external_signal", "signal", death, -3.0, TIMERS[signal])
    cpu = next((b for b in bounds_of(death) if b.name == "cpu"), None)
    used = death.exit.cpu_s
    if cpu and used is not None and used >= NEAR * cpu.soft:
        yield finding(
            TIME, "processor time", death, 3.0, f"it had used {used:.1f} s of the {cpu.soft} s of processor time that its limit allows"
        )
    if line := next((line for line in death.output_tail if line.startswith(ENDED_BY_TIMER) and line.rstrip().endswith("!")), None):
        fact = f"faulthandler's own timer ended it: {line.strip()}"
        yield finding(TIME, "timer", death, 4.5, fact, "stderr.log")
        yield finding("library_exit", "timer", death, -3.0, fact, "stderr.log")


def _timing(case: Case) -> Iterator[Finding]:
    """The same time at different steps: a clock ends it.  The same step at different times: the work does."""
    known = [death for death in case.deaths if death.progress.last_step and death.wall_s > 1.0]
    if len(known) < 3 or any(map(by_our_clock, known)):
        return
    walls, steps = sorted(death.wall_s for death in known), sorted(death.progress.last_step or 0 for death in known)
    same_time = walls[-1] - walls[0] <= SAME_TIME * walls[len(walls) // 2]
    if same_time and steps[-1] >= DIFFERENT * max(1, steps[0]):
        times = f"{walls[0]:.1f} to {walls[-1]:.1f} s"
        fact = f"{len(known)} deaths came after {times}, at steps between {steps[0]} and {steps[-1]}: a clock ends it"
        yield finding(TIME, "timing", known[0], 1.5, fact)
        yield finding("external_signal", "timing", known[0], 1.0, fact)
