"""Facts that are read when the child is gone: what it printed, which instruction failed, and how counts grew."""

from __future__ import annotations

import dataclasses
import resource
from collections.abc import Callable, Mapping
from pathlib import Path

from matrix.evidence import environment, fault, log, messages, metrics, trends
from matrix.evidence.crash import Crash
from matrix.evidence.environment import END, HookFacts
from matrix.evidence.own_limits import inherited_limits
from matrix.evidence.signals import SignalWatch
from matrix.records import CrashDump, Exit, Fault, Message, Metric, ProcessMemory, ProcessSettings, ShortFile, SignalSent, Trend

MOST_SIGNALS = 64
# From the least to the most that it says.
ROLES = ("other", "worker", "rank", "miner", "main")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Said:
    """From the output, and from what faulthandler wrote."""

    messages: list[Message] = dataclasses.field(default_factory=list)
    metrics: list[Metric] = dataclasses.field(default_factory=list)
    dumps: list[CrashDump] = dataclasses.field(default_factory=list)
    native_imports: list[str] = dataclasses.field(default_factory=list)


def said(stdout: str, stderr: str, dumps: Mapping[int, str], hook: HookFacts, main: int | None) -> Said:
    """`dumps`: texts of faulthandler by pid."""
    if not (stdout or stderr or dumps or hook.native_imports):
        return Said()
    order = sorted(dumps, key=lambda pid: (pid != main, pid))
    modules = next((found for pid in order if (found := log.extension_modules(dumps[pid]))), [])
    return Said(
        messages=messages.messages(stdout=stdout, stderr=stderr),
        metrics=metrics.metrics(stdout) or metrics.metrics(stderr),
        dumps=[dump for pid in order if (dump := log.crash_dump(pid, dumps[pid]))],
        native_imports=environment.packages(modules or hook.native_imports.get(main or 0, [])),
    )


def left_by(ending: Exit, hook: HookFacts, main: int | None) -> Exit:
    """The same with who ended it, where it ended by a status and the hook was in it."""
    if main not in hook.processes or ending.returncode is None or ending.returncode < 0 or ending.ended_by != "itself":
        return ending
    calls = {call.call for call in hook.exit_calls if call.pid == main}
    return dataclasses.replace(ending, left_by="os._exit" if "os._exit" in calls else "interpreter" if END in calls else "native code")


def faults(crashed: Crash, kernel_lines: list[str], had_mapped: Callable[[int, int], bool] | None) -> list[Fault]:
    """The core's first; the kernel's line of the same thread adds nothing to it.

    `had_mapped`: tells whether memory was seen at an address of a process before."""
    own = [_with_past(crashed.fault, crashed.notes.pid, had_mapped) if crashed.notes else crashed.fault] if crashed.fault else []
    return own + [one for one in fault.of_kernel(kernel_lines) if one.tid not in {known.tid for known in own}]


def _with_past(fault: Fault, pid: int, had_mapped: Callable[[int, int], bool] | None) -> Fault:
    if had_mapped is None or fault.address is None or fault.mapping != "nothing":
        return fault
    return dataclasses.replace(fault, was_mapped=had_mapped(pid, fault.address))


def short_files(crashed: Crash, maps: Mapping[int, str], signals: Mapping[int, str], clock: fault.Clock) -> list[ShortFile]:
    """Of the processes that crashed, by their `signals`: by the core's own list of mappings where there is one."""
    found = []
    for pid, signal in signals.items():
        of_core = crashed.notes is not None and crashed.notes.pid == pid and bool(crashed.notes.maps)
        text = crashed.notes.maps if crashed.notes and of_core else maps.get(pid, "")
        address = crashed.fault.address if crashed.fault and of_core else None
        found += fault.short_files(pid, text, address, clock, sampled=maps.get(pid, ""), bus=signal == "SIGBUS")
    return sorted(found, key=lambda file: not file.at_fault)


def stack_limit(settings: list[ProcessSettings], pid: int | None) -> int | None:
    """How far the main thread's stack of that process might grow: as it was seen, else as it is inherited from here."""
    for seen in settings:
        if seen.pid == pid:
            return next((bound.soft for bound in seen.bounds if bound.name == "stack"), None)
    soft = inherited_limits()["RLIMIT_STACK"][0]
    return None if soft == resource.RLIM_INFINITY else soft


def signals(watch: SignalWatch | None, pids: set[int], tool: frozenset[int], started_monotonic_s: float) -> list[SignalSent]:
    """Those to processes of the tree, the latest 64 in the order of time."""
    events = watch.read() if watch else []
    sent = [event for event in events if event.to_pid in pids and event.monotonic_s >= started_monotonic_s]
    sent.sort(key=lambda event: event.monotonic_s)
    return [
        SignalSent(
            signal=event.signal,
            to_pid=event.to_pid,
            from_pid=event.from_pid,
            from_name=event.from_name,
            inside=event.from_pid in pids,
            by_tool=event.from_pid in tool,
            time_s=round(event.monotonic_s - started_monotonic_s, 6),
            by_timer=event.by_timer,
        )
        for event in sent[-MOST_SIGNALS:]
    ]


def counts(path: Path, processes: list[ProcessMemory], end_s: float) -> list[Trend]:
    limits = {process.pid: process.descriptor_limit for process in processes if process.descriptor_limit is not None}
    return trends.trends(path, limits=limits, end_s=end_s)


def best_roles(*sources: Mapping[int, str]) -> dict[int, str]:
    """Of each process the role that says most."""
    found: dict[int, str] = {}
    for source in sources:
        for pid, role in source.items():
            if pid not in found or ROLES.index(role) > ROLES.index(found[pid]):
                found[pid] = role
    return found
