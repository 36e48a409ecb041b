"""From what the supervisor saw to the record of facts: calls every collector, judges nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from matrix import records
from matrix.evidence import cores, crash, deaths, environment, exit, limits, log, memory_curve, runtimes
from matrix.evidence.core_notes import CoreNotes
from matrix.evidence.environment import HookFacts, read_hook
from matrix.evidence.exits import ExitEvent, ExitWatch
from matrix.evidence.fault import Clock
from matrix.evidence.hook_file import hook_records
from matrix.evidence.kernel import SystemLog
from matrix.evidence.settings import with_mappings
from matrix.evidence.signals import SignalWatch
from matrix.evidence.used_files import Given, Used, used_files
from matrix.records import (
    Attempt,
    Death,
    EndedBy,
    Exit,
    ExitCall,
    Fault,
    Filesystem,
    HeapError,
    Library,
    Limit,
    Memory,
    MemoryCurve,
    NotCollected,
    Observation,
    OmpRegistration,
    ProbeResult,
    ProcessMemory,
    ProcessSeen,
    ProcessSettings,
    Progress,
    SharedFile,
    ShortFile,
    SignalSent,
    Trend,
)
from matrix.runner import cgroup, details
from matrix.runner.collecting import Collecting
from matrix.runner.launcher import Child
from matrix.runner.probes import checks, traces
from matrix.runner.probes.watch import Watch
from matrix.runner.sampler import WHY_TOO_LARGE, Sampler
from matrix.runner.surroundings import Surroundings

Seen = Literal["core", "exit", "sampled"]
TAIL_LINES = 20
NO_LIBRARIES: tuple[list[Library], list[str]] = [], []  # these four are never changed
NO_LINES: tuple[list[str], NotCollected | None] = [], None
NO_TRACE: tuple[list[SignalSent], list[ExitCall]] = [], []
NO_FILES = Used(files=[], written=[], packages=[], complete=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Raw:
    """What the supervisor holds when the child is gone."""

    child: Child
    ended_by: EndedBy
    started_unix_s: float
    wall_s: float
    pids: frozenset[int]
    leftovers: int
    progress: Progress
    sampler: Sampler
    group: cgroup.Group | None
    core: cores.CorePlan
    kernel: SystemLog
    maps: dict[int, str]
    cwds: dict[int, Path]
    processes: list[ProcessSeen]
    dropped_bytes: int
    hook: bool
    exits: ExitWatch
    started_monotonic_s: float
    ending_s: float | None  # when we began to end it; None: it ended by itself
    env: dict[str, str]  # with which the main process was started
    rlimits: dict[str, tuple[int, int]]  # those that the specification asks for
    pids_limit: int | None
    probes: Watch
    surroundings: Surroundings
    signals: SignalWatch | None  # None: not asked for
    tool_pids: frozenset[int]  # the guardian's among them
    mapped_unix_s: dict[tuple[int, str], float] = dataclasses.field(default_factory=dict)  # when it was first seen in a process's maps
    had_mapped: Callable[[int, int], bool] | None = None  # whether memory was seen at an address of a process; None: nobody looked
    paused_s: float
    starved_s: float
    pty: bool = False  # one terminal instead of two pipes: all of its output is in stdout.log
    files: Given = dataclasses.field(default_factory=Given)  # of the program, known before it ran
    asked_limits: dict[str, float | int | None] = dataclasses.field(default_factory=dict)  # of the specification
    collecting: Collecting = dataclasses.field(default_factory=Collecting)
    patterns_off: dict[str, str] = dataclasses.field(default_factory=dict)  # why patterns of the user were switched off


def observe(attempt: Attempt, folder: Path, raw: Raw) -> Observation:
    """The facts about one attempt, from its folder and from what the supervisor saw."""
    missing: list[NotCollected] = []
    collect = raw.collecting
    registrations = collect("OpenMP registrations", lambda: _registrations(raw), list[OmpRegistration]())
    hook = collect("hook", lambda: _hook(folder, raw, missing), HookFacts())
    exited = _exit(raw)
    ending = collect("who ended the process", lambda: details.left_by(exited, hook, raw.child.pid), exited)
    events = collect("ends of other processes", lambda: raw.exits.of_tree(set(raw.pids) | set(hook.processes)), dict[int, ExitEvent]())
    held = collect("memory", lambda: _memory(attempt, raw), Memory(limit_bytes=attempt.memory_limit_bytes))
    memory = collect("roles of processes", lambda: _as_they_said(held, hook), held)
    roles = collect("roles of processes", lambda: _roles(raw, hook, memory), dict[int, str]())
    settings = collect("limits and signal handlers", lambda: raw.surroundings.settings.record(roles, hook.limits), list[ProcessSettings]())
    crashing = collect("which processes crashed", lambda: _crashed(raw, ending, events), list[int]())
    crashed = collect("core", lambda: _examined(raw, folder, crashing, settings), crash.Crash())
    missing += crashed.missing
    core = crashed.notes
    libraries, mapped = collect("libraries", lambda: _libraries(folder, raw, core), NO_LIBRARIES)
    threads = set(core.threads) if core else set()  # the kernel's segfault lines name the thread, not the process
    kernel_lines, unreadable = collect("kernel log", lambda: raw.kernel.lines_for(set(raw.pids) | set(events) | threads), NO_LINES)
    stdout, stderr = (collect("output", functools.partial(log.text, f"{folder}/{name}.log"), "") for name in ("stdout", "stderr"))
    errors = stdout.replace("\r\n", "\n") if raw.pty else stderr  # a terminal ends lines so
    if unreadable:
        missing.append(unreadable)
    bounds = collect("limits that were asked for", lambda: _limits(attempt, raw), list[Limit]())
    dumps = collect("crash reports of Python", lambda: _dumps(folder, raw), dict[int, str]())
    said = collect("messages in the output", lambda: details.said(stdout, stderr, dumps, hook, raw.child.pid), details.Said())
    crashes = collect("signals of crashes", lambda: _crashes(raw, crashing, ending, events), dict[int, str]())
    probed = collect("whether probes held", lambda: _probes(folder, raw, hook), list[ProbeResult]())
    signals, exits = collect("trace of system calls", lambda: _traced(folder, raw), NO_TRACE)
    ended = collect("deaths", lambda: _deaths(raw, ending, events, roles, kernel_lines, errors), list[Death]())
    clock = Clock(began_unix_s=raw.started_unix_s, seen_unix_s=raw.mapped_unix_s)
    kept_env = collect("environment at exec", lambda: environment.kept(raw.env), dict[str, str]())
    tail = collect("last lines of the output", lambda: _tail(stdout, stderr), list[str]())
    used = collect("files of the program", lambda: _used_files(attempt, folder, raw, mapped), NO_FILES)
    missing += collect("reasons for what is missing", lambda: list(_not_collected(raw, bounds, probed, used)), list[NotCollected]())
    sent = functools.partial(details.signals, raw.signals, set(raw.pids) | set(events), raw.tool_pids, raw.started_monotonic_s)
    return Observation(
        attempt=attempt.id,
        key=attempt.key,
        trial=attempt.trial,
        exit=ending,
        wall_s=raw.wall_s,
        started_unix_s=raw.started_unix_s,
        progress=raw.progress,
        memory=memory,
        curve=collect("memory curve", lambda: _curve(folder, raw, ending, memory, deaths.initiating(ended)), None),
        processes=raw.processes,
        libraries=libraries,
        mapped=mapped,
        bindings=crashed.bindings,
        omp_registrations=registrations,
        env_changes=hook.env_changes,
        forks=hook.forks,
        exit_calls=exits + hook.exit_calls,
        signals_sent=collect("who sent signals", sent, list[SignalSent]()) or signals,
        python_error=collect("Python's error", lambda: log.first_error(errors), None),
        crash_stack=collect("Python's crash stack", lambda: _crash_stack(dumps, raw.child.pid), list[str]()),
        native_stack=crashed.stack,
        other_stacks=crashed.others,
        kernel_lines=kernel_lines,
        output_tail=tail,
        dropped_output_bytes=raw.dropped_bytes,
        deaths=ended,
        limits=bounds,
        survivors_ended=raw.leftovers,
        paused_s=round(raw.paused_s, 3),
        starved_s=round(raw.starved_s, 3),
        metrics=said.metrics,
        messages=said.messages,
        filesystems=collect("file systems", raw.surroundings.space.record, list[Filesystem]()),
        shared_files=collect("files that processes share", raw.surroundings.shared_files.record, list[SharedFile]()),
        short_files=collect("files that were cut off", lambda: details.short_files(crashed, raw.maps, crashes, clock), list[ShortFile]()),
        faults=collect("faults", lambda: details.faults(crashed, kernel_lines, raw.had_mapped), list[Fault]()),
        crash_dumps=said.dumps,
        settings=collect("mappings", lambda: with_mappings(settings, _mappings(raw, core), roles), settings),
        trends=collect("trends", lambda: _trends(folder, raw, memory), list[Trend]()),
        load=collect("load", raw.surroundings.load.record, None),
        native_imports=said.native_imports,
        env_at_exec=kept_env,
        probes=probed,
        heap_errors=collect("errors that valgrind saw", lambda: _heap_errors(folder, raw), list[HeapError]()),
        files=used.files,
        files_written=used.written,
        packages=used.packages,
        asked_limits=raw.asked_limits,
        not_collected=missing + collect.missing(),
    )


def _not_collected(raw: Raw, bounds: list[Limit], probed: list[ProbeResult], used: Used) -> Iterator[NotCollected]:
    """Sources that this machine or this user does not have."""
    if raw.sampler.too_large:
        yield NotCollected(what="PSS", why=WHY_TOO_LARGE)
    yield from raw.exits.missing(raw.child.pid, raw.child.ended.status if raw.child.ended else 0)
    yield from limits.not_held(bounds, started=raw.child.pid is not None)
    if raw.group is None:
        yield NotCollected(what="memory cgroup", why=cgroup.why_not() or "none was made")
    yield from raw.surroundings.missing()
    if raw.signals is None or raw.signals.why_not:
        yield NotCollected(what="who sent signals", why=raw.signals.why_not if raw.signals else "not asked for")
    if raw.child.pid and raw.child.ended is None:
        yield NotCollected(what="exit status", why="it did not end by SIGKILL: it waits within the kernel")
    yield from checks.not_held(probed)
    yield from checks.blind_spots(raw.probes.prepared)
    for what, why in raw.patterns_off.items():
        yield NotCollected(what=what, why=why)
    if not used.complete:
        yield NotCollected(what="some files of the program", why="a process opened more files than the hook writes down")


def _tail(stdout: str, stderr: str) -> list[str]:
    return log.last_lines(stdout, TAIL_LINES) + log.last_lines(stderr, TAIL_LINES)


def _registrations(raw: Raw) -> list[OmpRegistration]:
    found = runtimes.registrations(set(raw.pids))
    if found:
        runtimes.remove_registrations(set(raw.pids))
    return found


def _examined(raw: Raw, folder: Path, crashing: list[int], settings: list[ProcessSettings]) -> crash.Crash:
    """What the core tells, or the system's own report."""
    limit = details.stack_limit(settings, crashing[0] if crashing else None)
    return crash.examine(
        _core_plan(raw),
        crashing,
        raw.cwds,
        folder,
        since_unix_s=raw.started_unix_s,
        stack_limit_bytes=limit,
        sampled=raw.maps,
    )


def _crashes(raw: Raw, crashing: list[int], ending: Exit, events: dict[int, ExitEvent]) -> dict[int, str]:
    found = {pid: _signal_of(pid, raw, ending, events) for pid in crashing}
    return {pid: signal for pid, signal in found.items() if signal in ("SIGBUS", "SIGSEGV", "SIGILL")}


def _trends(folder: Path, raw: Raw, memory: Memory) -> list[Trend]:
    return details.counts(folder / "memory.csv", memory.processes, raw.wall_s) if memory.samples else []


def _heap_errors(folder: Path, raw: Raw) -> list[HeapError]:
    return traces.heap_errors(folder) if "valgrind" in raw.probes.prepared.each else []


def _used_files(attempt: Attempt, folder: Path, raw: Raw, mapped: list[str]) -> Used:
    """Files of the program; a library that another library loaded is seen in the memory map alone."""
    path = folder / "hook.jsonl"
    records = hook_records(path) if raw.hook else []
    below = os.path.realpath(attempt.cwd) + "/"
    own = [name for name in mapped if name.startswith(below) and "site-packages" not in name]
    libraries = [{"kind": "file", "use": "native", "path": name} for name in own]
    return used_files([*records, *libraries], raw.files, cwd=attempt.cwd, started_unix_s=raw.started_unix_s)


def _exit(raw: Raw) -> Exit:
    if raw.child.ended is None:
        return Exit(returncode=None, start_error=raw.child.start_error, ended_by=raw.ended_by)
    ended = raw.child.ended
    switches = {"involuntary_switches": ended.preempted, "voluntary_switches": ended.yielded}
    more = {"ended_by": raw.ended_by, "cpu_s": round(ended.cpu_s, 6), **switches}
    return Exit(**{**vars(exit.decode(ended.status)), **more})


def _deaths(
    raw: Raw, ending: Exit, events: dict[int, ExitEvent], roles: dict[int, str], kernel_lines: list[str], errors: str
) -> list[Death]:
    if raw.child.pid is None or not (ending.signal or ending.returncode or events or kernel_lines or errors):
        return []
    times = {pid: event.monotonic_s - raw.started_monotonic_s for pid, event in events.items()}
    ended_s = raw.ending_s if raw.ending_s is not None else times.get(raw.child.pid, raw.wall_s)
    return deaths.deaths(
        deaths.Scene(
            main=raw.child.pid,
            ending=ending,
            end_s=ended_s,
            events={pid: (event, times[pid]) for pid, event in events.items()},
            roles=roles,
            kernel_lines=kernel_lines,
            said=deaths.said(errors),
            step_s=raw.progress.longest_gap_s or 0.0,
        )
    )


def _as_they_said(memory: Memory, hook: HookFacts) -> Memory:
    """A child of the main process that says it is a worker and died before it was looked at twice; not what a child left behind."""

    if not hook.processes:
        return memory

    def role(process: ProcessMemory) -> str:
        inside = hook.processes.get(process.pid)
        parent = hook.processes.get(inside.ppid) if inside else None
        return inside.role if process.role == "other" and inside and parent and parent.role in ("main", "rank") else process.role

    return dataclasses.replace(memory, processes=[dataclasses.replace(process, role=role(process)) for process in memory.processes])


def _roles(raw: Raw, hook: HookFacts, memory: Memory) -> dict[int, str]:
    """What each process was for: as it looked from outside, and as the hook inside it says."""
    sampled = {process.pid: process.role for process in memory.processes}
    hung = {process.pid: process.role for process in raw.processes}
    inside = {pid: process.role for pid, process in hook.processes.items()}
    return details.best_roles(dict.fromkeys(raw.pids, "other"), sampled, hung, inside)


def _probes(folder: Path, raw: Raw, hook: HookFacts) -> list[ProbeResult]:
    prepared = raw.probes.prepared
    if not prepared.settings:
        return []
    return checks.results(
        checks.Evidence(
            prepared=prepared,
            seen=raw.probes.seen,
            main=raw.child.pid,
            env_changes=hook.env_changes,
            hook=hook_records(folder / "hook.jsonl"),
            group=raw.group,
        )
    )


def _traced(folder: Path, raw: Raw) -> tuple[list[SignalSent], list[ExitCall]]:
    if not raw.probes.prepared.total.traced:
        return [], []
    pids = set(raw.pids) | set(raw.probes.seen)
    return traces.ends(folder / "strace.log", started_unix_s=raw.started_unix_s, pids=pids, name_of=raw.probes.name_of)


def _limits(attempt: Attempt, raw: Raw) -> list[Limit]:
    found = limits.of_process(raw.rlimits, attempt.cpus, raw.child.limits)
    if raw.pids_limit is not None:
        group = raw.group
        had, refused = (group.pids_limit(), group.pids_refused()) if group else (None, None)
        found.append(Limit(name="pids", asked=raw.pids_limit, had=had, by="cgroup", refused=refused))
    return found


def _memory(attempt: Attempt, raw: Raw) -> Memory:
    sampler, group = raw.sampler, raw.group
    return Memory(
        isolation=group.isolation if group else ("watchdog" if attempt.memory_limit_bytes else "none"),
        limit_bytes=attempt.memory_limit_bytes,
        peak_tree_rss_bytes=sampler.peak_total,
        peak_main_rss_bytes=raw.child.ended.maxrss_bytes if raw.child.ended else None,
        peak_group_bytes=group.peak_bytes() if group else None,
        peak_group_shmem_bytes=sampler.peak_shmem,
        last_tree_rss_bytes=sampler.last_total,
        first_tree_rss_bytes=sampler.first_step_total,
        samples=sampler.samples,
        oom_kills=group.oom_kills() if group else None,
        system_available_bytes=sampler.system_available,
        peak_tree_pss_bytes=sampler.peak_pss,
        shm_free_bytes=sampler.least_free.get("shm"),
        cwd_free_bytes=sampler.least_free.get("cwd"),
        temp_free_bytes=sampler.least_free.get("temp"),
        processes=sampler.processes(raw.child.ended.maxrss_bytes if raw.child.ended else None),
    )


def _curve(folder: Path, raw: Raw, ending: Exit, memory: Memory, began: Death | None) -> MemoryCurve | None:
    """Up to the death that began it; the limit is left out where a kill came from another one, of a group nested below ours."""
    series = memory_curve.read(folder / "memory.csv") if raw.sampler.samples else None
    if series is None:
        return None
    watched, killed = ending.ended_by == "memory_watchdog", bool(memory.oom_kills)
    nested = killed and not memory_curve.own_limit_met(memory)
    return memory_curve.describe(
        series,
        first_step_s=raw.progress.first_step_s,
        limit_bytes=None if nested else memory.limit_bytes,
        died=watched or began is not None or (ending.ended_by == "itself" and ending.returncode != 0),
        oom=killed,
        until_s=began.time_s if began and began.role != "main" else None,
    )


def _libraries(folder: Path, raw: Raw, core: CoreNotes | None) -> tuple[list[Library], list[str]]:
    """The census at the last moment that could be seen, for each process: at death, at a normal exit, or sampled; and all that the main
    process had mapped at its end, when that was seen."""
    texts: dict[int, tuple[str, Seen]] = {pid: (text, "sampled") for pid, text in raw.maps.items()}
    written = list(folder.glob("maps.*.txt")) if raw.hook else []
    for path in written:
        with contextlib.suppress(ValueError, OSError):
            texts[int(path.name.split(".")[1])] = (path.read_text(errors="replace"), "exit")
    if core and core.maps:
        texts[core.pid] = (core.maps, "core")
    parts = [f"# pid {pid} seen: {seen}\n{text}" for pid, (text, seen) in sorted(texts.items())]
    if parts:
        records.write_text(folder / "maps.txt", "\n".join(parts), sync=False)
    for path in written:
        path.unlink()
    libraries = [library for pid, (text, seen) in sorted(texts.items()) for library in runtimes.census(text, pid=pid, seen=seen)]
    main, seen = texts.get(raw.child.pid or 0, ("", "sampled"))
    return libraries, runtimes.files(main) if seen != "sampled" else []


def _core_plan(raw: Raw) -> cores.CorePlan:
    if not raw.core.why_not and raw.child.limits.get("RLIMIT_CORE", [1])[0] == 0:
        return dataclasses.replace(raw.core, why_not="the hard limit of core files is 0 here, and this user may not raise it")
    return raw.core


def _crashed(raw: Raw, ending: Exit, events: dict[int, ExitEvent]) -> list[int]:
    """Processes that may have left a core: the main one, then the earliest other."""
    dies_with_core = ending.ended_by == "itself" and (ending.core_dumped or (ending.signal in cores.SIGNALS and not ending.wrapped))
    main = [raw.child.pid] if raw.child.pid and dies_with_core else []
    dumped = sorted((event for event in events.values() if os.WCOREDUMP(event.status)), key=lambda event: event.monotonic_s)
    return main + [event.pid for event in dumped if event.pid not in main]


def _hook(folder: Path, raw: Raw, missing: list[NotCollected]) -> HookFacts:
    if not raw.hook:
        missing.append(NotCollected(what="hook", why="switched off by the specification"))
        return HookFacts()
    path = folder / "hook.jsonl"
    if not path.exists():
        missing.append(NotCollected(what="hook", why="no Python process of this attempt loaded it (not Python, or python -I, -S or -E)"))
    return read_hook(path, raw.started_unix_s)


def _mappings(raw: Raw, core: CoreNotes | None) -> dict[int, int]:
    """How many each process had when its map was last read, or at its death."""
    counts = {pid: text.count("\n") for pid, text in raw.maps.items()}
    if core and core.mappings:
        counts[core.pid] = max(core.mappings, counts.get(core.pid, 0))
    return counts


def _signal_of(pid: int, raw: Raw, ending: Exit, events: dict[int, ExitEvent]) -> str | None:
    return ending.signal if pid == raw.child.pid else exit.decode(events[pid].status).signal


def _dumps(folder: Path, raw: Raw) -> dict[int, str]:
    """What faulthandler wrote, by pid; all of it is joined in stacks.txt."""
    if not raw.hook:
        return {}
    texts = {path: log.text(path) for path in sorted(folder.glob("stacks.*.txt"))}
    records.write_text(folder / "stacks.txt", "\n".join(f"# {path.name}\n{text}" for path, text in texts.items() if text), sync=False)
    for path in texts:
        path.unlink()
    return {int(path.name.split(".")[1]): text for path, text in texts.items()}


def _crash_stack(dumps: dict[int, str], main: int | None) -> list[str]:
    """The main process's, or that of another one that crashed."""
    return next((stack for text in [dumps.get(main or 0, ""), *dumps.values()] if (stack := log.crash_stack(text))), [])
