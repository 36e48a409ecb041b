"""Did it take hold?  One check for each field of a `Change`, from what was read from the child: from outside while it ran, and by the hook.

A check gives (held, how): True, False, or None where nothing could be read.
"""

from __future__ import annotations

import dataclasses
import re
import signal
from collections.abc import Iterable, Iterator
from typing import Any

from matrix.records import EnvChange, NotCollected, ProbeResult
from matrix.runner import cgroup
from matrix.runner.probes.change import INFINITE, Change, Prepared
from matrix.runner.probes.watch import Seen, lower

OTHER_ALLOCATORS = ("libjemalloc", "libtcmalloc", "libmimalloc", "libtbbmalloc_proxy")
ASKED_FOR = {"NUMPY_MADVISE_HUGEPAGE"}  # whether huge pages are asked for: the kernel's refusal holds for a program that sets it back
NOT_SEEN = "nothing could be read: it ended too soon, or this system has no /proc"
Held = tuple[bool | None, str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that was read."""

    prepared: Prepared
    seen: dict[int, Seen]
    main: int | None  # None: it was never started
    env_changes: list[EnvChange]
    hook: list[dict[str, Any]]  # its raw records
    group: cgroup.Group | None


def results(evidence: Evidence) -> list[ProbeResult]:
    """One for each probe that was asked for."""
    prepared = evidence.prepared
    found = []
    for name, setting in prepared.settings.items():
        held, how = (False, prepared.refused[name]) if name in prepared.refused else _judge(prepared.each[name], evidence)
        found.append(ProbeResult(name=name, setting=setting, held=held, how=how))
    return found


def not_held(found: Iterable[ProbeResult]) -> list[NotCollected]:
    return [NotCollected(what=f"probe {one.name}", why=one.how) for one in found if not one.held]


def blind_spots(prepared: Prepared) -> list[NotCollected]:
    """What is looked for on this machine's /dev/shm, where a child with one of its own leaves nothing."""
    if "/dev/shm" not in prepared.total.tmpfs:
        return []
    why = "the probe bigger_shm gives the attempt a /dev/shm of its own"
    return [NotCollected(what="OpenMP registrations", why=why), NotCollected(what="free space of /dev/shm", why=why)]


def _judge(change: Change, evidence: Evidence) -> Held:
    """It holds when every part of it does; the texts of the parts that decide come alone."""
    if evidence.main is None:
        return None, "the program was not started"
    parts = list(_parts(change, evidence))
    for verdict in (False, None):
        texts = [how for held, how in parts if held is verdict]
        if texts:
            return verdict, "; ".join(texts)
    return True, "; ".join(how for _, how in parts)


def _parts(change: Change, evidence: Evidence) -> Iterator[Held]:
    everyone = list(evidence.seen.values())
    if names := [name for name in (*change.env, *change.unset) if not (change.no_huge_pages and name in ASKED_FOR)]:
        yield _environment(names, evidence, everyone)
    if change.cpus:
        yield _affinity(set(change.cpus), everyone, _at_end(evidence, "cpus"))
    if change.native_threads is not None:
        yield _native_threads(change.native_threads, everyone, evidence)
    if change.uses_malloc:
        yield _not_mapped(OTHER_ALLOCATORS, everyone, "the C library's allocator is in use")
    if change.maps:
        yield _mapped(change.maps, everyone)
    if change.maps_not:
        yield _not_mapped(change.maps_not, everyone, "none of " + ", ".join(change.maps_not) + " was mapped")
    for name, (soft, _) in change.rlimits.items():
        yield _limit(name, evidence.prepared.total.rlimits.get(name, (soft, soft))[0], everyone, evidence)
    if change.memory_limit_bytes and evidence.group is None:
        yield True, f"no cgroup ({cgroup.why_not() or 'none was made'}): the tool itself ends it at {change.memory_limit_bytes} bytes"
    elif change.memory_limit_bytes or change.pids or change.cpu_share:
        yield _in_group(everyone, evidence.group)
        yield from _group(change, evidence.group)
    for folder, size in change.tmpfs.items():
        yield _mounted(folder, size, evidence)
    if change.no_huge_pages:
        yield _all(everyone, lambda seen: not seen.huge_pages, "THP_enabled 0", "was allowed huge pages")
    for number in change.ignored:
        name = signal.Signals(number).name
        yield _all(everyone, lambda seen, n=number: n not in seen.not_ignored, f"SigIgn has {name}", f"did not ignore {name}")
    for number in change.default:
        yield _default_signal(number, evidence)
    if change.start_method:
        yield _start_method(change.start_method, evidence)
    if change.to_file:
        yield _all(everyone, lambda seen: not seen.terminal, "no terminal", "has a terminal")
        yield _main(evidence, lambda seen: not seen.output.startswith(("pipe:", "/dev/")), "output goes to a file", "output is {0.output}")
    if change.traced:
        yield _main(evidence, lambda seen: seen.tracer > 0, "it was traced", "nobody traced it")


# ------------------------------------------------------------------ the parts
def _environment(names: list[str], evidence: Evidence, everyone: list[Seen]) -> Held:
    wanted: dict[str, str | None] = {name: evidence.prepared.total.env.get(name) for name in names}
    for made in evidence.env_changes:
        if made.name in wanted and made.value != wanted[made.name]:
            what = f"set it to {made.value}" if made.value is not None else "removed it or set it to a value that was not kept"
            return False, f"{made.name}: the module {made.module or '?'} {what} (pid {made.pid})"
    for seen in everyone:
        for name, value in wanted.items():
            if seen.environ.get(name) != value:
                return False, f"pid {seen.pid} ({seen.name}) was started with {name}={seen.environ.get(name, '(unset)')}"
    if not everyone:
        return None, NOT_SEEN
    text = " ".join(f"{name}={value}" if value is not None else f"{name} unset" for name, value in wanted.items())
    return True, f"at exec and after: {text}"


def _affinity(wanted: set[int], everyone: list[Seen], at_end: list[tuple[int, Any]]) -> Held:
    for pid, cpus in [(seen.pid, seen.cpus) for seen in everyone] + [(pid, set(cpus)) for pid, cpus in at_end]:
        if cpus - wanted:
            return False, f"pid {pid} was allowed the processors {sorted(cpus)}"
    threads = max((seen.threads for seen in everyone), default=0)
    if not everyone and not at_end:
        return None, NOT_SEEN
    openblas = any("openblas" in name for seen in everyone for name in seen.libraries)
    fewer = "; OpenBLAS has no more threads than processors, whatever its variable says" if openblas else ""
    return True, f"Cpus_allowed {sorted(wanted)} in all threads (at most {threads} in one process){fewer}"


def _native_threads(most: int, everyone: list[Seen], evidence: Evidence) -> Held:
    """A library may be given its threads by a call that no variable shows."""
    counts = _at_end(evidence, "native_threads") + _at_forks(evidence)
    over = [(pid, count) for pid, count in counts if count > most]
    if over:
        return False, f"pid {over[0][0]} had {over[0][1]} threads beyond Python's own when it forked or ended"
    threads = max((seen.threads for seen in everyone), default=0)
    return True, f"at most {threads} threads in one process" + (", none beyond Python's own when it forked or ended" if counts else "")


def _mapped(parts: tuple[str, ...], everyone: list[Seen]) -> Held:
    for seen in everyone:
        missing = [part for part in parts if not any(part in name for name in seen.libraries)]
        if missing:
            return False, f"pid {seen.pid} ({seen.name}) has not mapped {missing[0]}"
    return (True, f"mapped: {', '.join(parts)}") if everyone else (None, NOT_SEEN)


def _not_mapped(parts: tuple[str, ...], everyone: list[Seen], text: str) -> Held:
    for seen in everyone:
        if found := [name for name in sorted(seen.libraries) if any(part in name for part in parts)]:
            return False, f"pid {seen.pid} ({seen.name}) has mapped {found[0]}"
    return (True, text) if everyone else (None, NOT_SEEN)


def _limit(name: str, wanted: int, everyone: list[Seen], evidence: Evidence) -> Held:
    had = [(seen.pid, seen.limits[name]) for seen in everyone if name in seen.limits]
    pattern = re.compile(rf"{name}=(-?\d{{1,20}})")
    said = [(pid, pattern.fullmatch(word)) for pid, words in _at_end(evidence, "limits") for word in words]
    had += [(pid, int(match[1])) for pid, match in said if match]
    for pid, soft in had:
        if lower(soft, wanted) != wanted:
            return False, f"{name}: pid {pid} had {soft}, not {_shown(wanted)}"
    return (True, f"{name} {_shown(wanted)}") if had else (None, NOT_SEEN)


def _in_group(everyone: list[Seen], group: cgroup.Group | None) -> Held:
    if group is None:
        return None, f"no cgroup: {cgroup.why_not() or 'none was made'}"
    return _all(everyone, lambda seen: bool(seen.in_group), "all processes in the cgroup", "is not in the cgroup")


def _group(change: Change, group: cgroup.Group | None) -> Iterator[Held]:
    if group is None:
        return
    if change.memory_limit_bytes:
        had = group.memory_limit()
        yield (
            had is not None and abs(had - change.memory_limit_bytes) < 1 << 16,
            f"memory limit {had} with the groups around it, asked for {change.memory_limit_bytes}",
        )
    if change.pids:
        yield group.pids_limit() == change.pids, f"pids.max {group.pids_limit()}, asked for {change.pids}"
    if change.cpu_share:
        share, throttled = group.cpu_share(), group.cpu_throttled()
        yield share is not None and abs(share - change.cpu_share) < 0.01, f"quota of {share} processors, asked for {change.cpu_share}"
        yield bool(throttled) if throttled is not None else None, f"held back in {throttled} periods of 0.1 s"


def _mounted(folder: str, size: int, evidence: Evidence) -> Held:
    return _all(
        list(evidence.seen.values()),
        lambda seen: seen.mounts.get(folder, 0) >= size - (1 << 16),
        f"{folder} is a file system of its own with {size >> 20} MiB",
        f"does not have {size >> 20} MiB on {folder}",
    )


def _default_signal(number: int, evidence: Evidence) -> Held:
    name = signal.Signals(number).name
    states = [record["default"] for record in evidence.hook if record["kind"] == "sigpipe"]
    states += [state for _, state in _at_end(evidence, "sigpipe_default")]
    if not states:
        return None, f"no Python process said what it does at {name}"
    return all(states), f"{name} ends a process" if all(states) else f"the program ignores or handles {name} again"


def _start_method(method: str, evidence: Evidence) -> Held:
    """Told by what was started, not by what was set: a program may call os.fork() itself."""
    started = sum(record["kind"] == "hello" and record.get("helper") == method for record in evidence.hook)
    forked = [record for record in evidence.hook if record["kind"] == "fork" and record.get("start_method") == "fork"]
    by_hand = sum(record["kind"] == "fork" and record.get("start_method") is None for record in evidence.hook)
    if forked:
        return False, f"multiprocessing forked all the same (pid {forked[0]['pid']}, module {forked[0].get('module') or '?'})"
    if not started:
        return False, f"multiprocessing started no process by {method}" + (f"; os.fork() was called {by_hand} times" if by_hand else "")
    return True, f"multiprocessing used {method}" + (f"; os.fork() was called {by_hand} times besides" if by_hand else "")


# ------------------------------------------------------------------ helpers of the parts
def _all(everyone: list[Seen], holds: Any, text: str, but: str) -> Held:
    for seen in everyone:
        if not holds(seen):
            return False, f"pid {seen.pid} ({seen.name}) {but}"
    return (True, text) if everyone else (None, NOT_SEEN)


def _main(evidence: Evidence, holds: Any, text: str, but: str) -> Held:
    seen = evidence.seen.get(evidence.main or 0)
    if seen is None:
        return None, NOT_SEEN
    return (True, text) if holds(seen) else (False, but.format(seen))


def _at_end(evidence: Evidence, name: str) -> list[tuple[int, Any]]:
    """What Python processes said of themselves at their end, by pid."""
    return [(record["pid"], record[name]) for record in evidence.hook if record["kind"] == "state" and record.get(name) is not None]


def _at_forks(evidence: Evidence) -> list[tuple[int, int]]:
    """Threads beyond Python's own at each fork, by pid; the hook lists 32 names at most."""
    forks = [(record, record.get("names") or []) for record in evidence.hook if record["kind"] == "fork"]
    return [(record["pid"], record["threads"] - len(names)) for record, names in forks if len(names) < 32]


def _shown(limit: int) -> str:
    return "unlimited" if limit == INFINITE else str(limit)
