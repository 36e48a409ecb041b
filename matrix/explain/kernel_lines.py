"""Lines of the kernel log: whom it killed for memory and whose instruction failed, and whether that was this job.

A log of the kernel is about the whole machine.  A line counts for this job when its pid is one that another source names, or
when its cgroup's path holds the pod, the container or the Slurm job.  Without such a link it is shown, and proves nothing here.
"""

from __future__ import annotations

import dataclasses
import re

from matrix.evidence import fault
from matrix.evidence.deaths import OOM
from matrix.evidence.digits import whole
from matrix.explain.part import Line, Part, Piece

RECORD = re.compile(r"task_memcg=(?P<task>[^,\s]+),task=(?P<name>[^,]*),pid=(?P<pid>\d+)")
LIMIT = re.compile(r"constraint=CONSTRAINT_(?P<kind>\w+)")
NAME = re.compile(r"[Kk]illed process \d+ \((?P<name>[^)]*)\)")
HELD = re.compile(r"anon-rss:(\d+)kB")
TASK = re.compile(r"Task in (?P<task>\S+) killed as a result of limit of (?P<limit>\S+)")
MOST_UNLINKED = 6
WHOSE = {True: "the limit of its cgroup was reached", False: "the whole machine ran out of memory", None: "memory ran out"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kill:
    """One kill of the out-of-memory killer."""

    pid: int
    where: str
    text: str
    name: str = ""
    group: str = ""  # path of its memory cgroup; "": the log does not say
    of_group: bool | None = None  # a cgroup's limit, or the whole machine's memory; None: the log does not say
    held_kib: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Linked:
    """What the kernel's lines say, parted by whether they are about this job."""

    lines: list[Line]  # of this job
    pieces: list[Piece]
    group_kills: int  # kills of processes that only the cgroup's path links to it


def kills(lines: list[Line]) -> list[Kill]:
    """One for each pid that was killed, in the order of the log."""
    found: dict[int, Kill] = {}
    group, limit = "", ""
    for line in lines:
        if record := RECORD.search(line.text):
            constraint = LIMIT.search(line.text)
            group, limit = record["task"], constraint["kind"] if constraint else ""
        elif task := TASK.search(line.text):
            group, limit = task["task"], "MEMCG"
        elif killed := OOM.search(line.text):
            pid = whole("".join(filter(None, killed.groups())))
            name, held = NAME.search(line.text), HELD.search(line.text)
            of_group = "emory cgroup" in line.text or limit == "MEMCG" or (False if limit or "Out of memory" in line.text else None)
            kill = Kill(pid=pid, where=line.where, text=line.text, name=name["name"] if name else "", group=group, of_group=of_group)
            found.setdefault(pid, dataclasses.replace(kill, held_kib=whole(held[1]) if held else None))
            group, limit = "", ""
    return list(found.values())


def link(part: Part) -> Linked:
    """The kernel's lines in `part` against the pids and groups that its other sources name."""
    known = {**part.pids, **({part.main: "its main process"} if part.main else {})}
    lines, pieces, others, by_group = list[Line](), list[Piece](), list[Kill](), 0
    for kill in kills(part.kernel):
        why = _why(kill, known, part.groups)
        if why is None:
            others.append(kill)
            continue
        lines.append(Line(where=kill.where, text=kill.text))
        by_group += kill.pid not in known
        pieces.append(_proven(kill, why, by_pid=kill.pid in known))
    pieces += [_unlinked(kill, bool(known or part.groups)) for kill in others[:MOST_UNLINKED]]
    faults, fault_pieces = _faults(part, known)
    return Linked(lines=lines + faults, pieces=pieces + fault_pieces, group_kills=by_group)


def _why(kill: Kill, known: dict[int, str], groups: dict[str, str]) -> str | None:
    if kill.pid in known:
        return f"its pid {kill.pid} is named in {known[kill.pid]}"
    return next((f"its cgroup {kill.group} holds {word} of {where}" for word, where in groups.items() if word in kill.group), None)


def _proven(kill: Kill, why: str, *, by_pid: bool) -> Piece:
    whose = WHOSE[kill.of_group]
    held = f"; it held {kill.held_kib >> 10} MiB of its own" if kill.held_kib else ""
    return Piece(
        where=kill.where,
        read=kill.text[:200],
        proves=f"the kernel killed this job's process {kill.pid} ({kill.name or 'unnamed'}) for memory: {whose}{held}; {why}",
        not_proves="why memory ran out: the kernel ends the largest, which need not be the one that grew"
        + ("; pids are reused, so compare the times" if by_pid else "; that this process began the death: give the job's own log"),
        grade="kernel, proven" if by_pid else "kernel, by its counter",
    )


def _unlinked(kill: Kill, looked: bool) -> Piece:
    why = (
        f"that it was of this job: no other source names pid {kill.pid}" + (f" or its cgroup {kill.group}" if kill.group else "")
        if looked
        else "that it was of this job: nothing else that was given names a pid or a cgroup (say --was-pid N if you know the pid)"
    )
    return Piece(
        where=kill.where,
        read=kill.text[:200],
        proves=f"the kernel killed a process {kill.pid} ({kill.name or 'unnamed'}) on that machine for memory",
        not_proves=f"{why}; a container counts pids of its own, the kernel's log the machine's",
        grade="unknown",
    )


def _faults(part: Part, known: dict[int, str]) -> tuple[list[Line], list[Piece]]:
    lines, pieces = list[Line](), list[Piece]()
    for line in part.kernel:
        for one in fault.of_kernel([line.text]):
            ours = one.tid in known or one.tid in part.threads
            if ours:
                lines.append(line)
            if ours or len(pieces) < MOST_UNLINKED:
                pieces.append(_fault(line, one.tid, one.library, one.trap, ours=ours))
    return lines, pieces


def _fault(line: Line, tid: int, library: str, trap: str, *, ours: bool) -> Piece:
    where = f" in {library}" if library else ""
    return Piece(
        where=line.where,
        read=line.text[:200],
        proves=f"thread {tid}{' of this job' if ours else ''} died of a {trap}{where}",
        not_proves="that this library is at fault: it may have been given a bad pointer, or memory was damaged before"
        if ours
        else f"that it was of this job: no other source names thread {tid} (the kernel names the thread, not the process)",
        grade="supported" if ours else "unknown",
    )
