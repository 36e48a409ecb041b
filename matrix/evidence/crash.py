"""What a core tells of the process that crashed: found, read, removed, with the reason wherever there is nothing."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from matrix import records
from matrix.evidence import bindings, cores, crash_report, fault, native_stacks
from matrix.evidence.core_notes import CoreNotes, read_core
from matrix.records import Binding, Fault, Frame, NotCollected

STACKS_FILE = "native_stacks.txt"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Crash:
    notes: CoreNotes | None = None
    stack: list[Frame] = dataclasses.field(default_factory=list)
    others: list[list[Frame]] = dataclasses.field(default_factory=list)
    fault: Fault | None = None
    bindings: list[Binding] | None = None  # None: not looked at
    missing: list[NotCollected] = dataclasses.field(default_factory=list)


def examine(
    plan: cores.CorePlan,
    pids: Sequence[int],
    cwds: Mapping[int, Path],
    folder: Path,
    *,
    since_unix_s: float,
    stack_limit_bytes: int | None = None,
    sampled: Mapping[int, str] | None = None,
) -> Crash:
    """The core of the first of `pids` that left one; cores of the others are removed.  `folder` is the attempt's.

    On macOS, where cores need rights and gigabytes, the system's own crash report.  `stack_limit_bytes`: of the main thread; None:
    it may grow as far as it likes.  `sampled`: each process's map while it lived, for a core whose list of files the kernel left out."""
    if not pids:
        return Crash()
    if sys.platform == "darwin":
        return _from_report(pids, folder, since_unix_s)
    if plan.why_not:
        return Crash(missing=[NotCollected(what="core", why=plan.why_not)])
    found = [path for pid in pids if (path := cores.take(plan, pid, folder / f"core.{pid}", cwd=cwds.get(pid)))]
    try:
        if not found:
            return Crash(missing=[NotCollected(what="core", why=f"none of this process was found in {plan.folder}")])
        return _read(plan, found[0], folder, stack_limit_bytes, sampled or {})
    finally:
        for path in found:
            path.unlink()


def _from_report(pids: Sequence[int], folder: Path, since_unix_s: float) -> Crash:
    found = crash_report.find(pids, since_unix_s=since_unix_s)
    if found is None:
        return Crash(missing=[NotCollected(what="crash report", why="the system wrote none about this process")])
    report, text = found
    records.write_text(folder / STACKS_FILE, text, sync=False)
    return Crash(stack=report.stack, others=report.others, fault=report.fault)


def _read(plan: cores.CorePlan, core: Path, folder: Path, stack_limit_bytes: int | None, sampled: Mapping[int, str]) -> Crash:
    notes = read_core(core)
    if notes is None:
        return Crash(missing=[NotCollected(what="core", why="it was cut off within its notes")])
    with_files = dataclasses.replace(notes, maps=notes.maps or sampled.get(notes.pid, ""))
    found = Crash(notes=notes, fault=fault.of_core(core, with_files.maps, stack_limit_bytes=stack_limit_bytes))
    if not plan.full:
        return found
    if core.stat().st_size >= plan.cap_bytes:
        why = f"the core was cut off at {plan.cap_bytes >> 20} MiB"
        return dataclasses.replace(found, missing=[NotCollected(what="native stack", why=why)])
    stacks = native_stacks.read(core, with_files)
    records.write_text(folder / STACKS_FILE, stacks.text, sync=False)
    missing = [NotCollected(what="native stack", why=stacks.why_none)] if stacks.why_none else []
    bound = bindings.bindings(core, with_files.maps, found.fault, stacks.crashed)
    return dataclasses.replace(found, stack=stacks.crashed, others=stacks.others, bindings=bound, missing=missing)
