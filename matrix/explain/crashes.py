"""A core, or a crash report of macOS: the one kind of remains that holds the moment itself."""

from __future__ import annotations

import json

from matrix.evidence import crash_report, fault, native_stacks, runtimes
from matrix.evidence.core_image import CoreImage
from matrix.evidence.core_notes import read_core
from matrix.evidence.exit import signal_name
from matrix.explain.part import NUMBERS, WAITED, Line, Part, Piece, by_signal
from matrix.explain.sources import Source, Unreadable
from matrix.records import Fault, Frame, Library

CORE_TYPE = 4  # e_type of an ELF core
SHOWN_FRAMES = 6


def is_core(head: bytes) -> bool:
    return head[:4] == b"\x7fELF" and int.from_bytes(head[16:18], "little" if head[5:6] == b"\x01" else "big") == CORE_TYPE


def read_core_file(source: Source) -> Part:
    """Raises Unreadable for a core that is cut off or damaged before its notes."""
    notes = read_core(source.path)
    if notes is None:
        why = "its notes are cut off or damaged, so not even the process is known; was it limited by ulimit -c, or the disk full?"
        raise Unreadable(f"{source.name}: a core, but {why}")
    crashed = fault.of_core(source.path, notes.maps, stack_limit_bytes=None)
    number, stacks = _signal(source), native_stacks.read(source.path, notes)
    libraries = runtimes.census(notes.maps, pid=notes.pid, seen="core")
    pieces = [_core(source, notes.pid, len(notes.threads), number, crashed, stacks.crashed, stacks.why_none)]
    if twice := runtimes.duplicates(libraries):
        pieces.append(_duplicates(source, twice))
    name = signal_name(number) if number else None
    ending = [by_signal(name, source.name, WAITED, core=True)] if name else []
    return Part(
        kinds=frozenset(("core",)),
        pieces=pieces,
        endings=ending,
        main=notes.pid,
        threads=frozenset(notes.threads),
        stack=stacks.crashed,
        other_stacks=stacks.others,
        faults=[crashed] if crashed else [],
        libraries=libraries,
    )


def _signal(source: Source) -> int | None:
    try:
        with source.path.open("rb") as stream:
            return CoreImage(stream).signal
    except (ValueError, OSError):
        return None


def _core(source: Source, pid: int, threads: int, number: int | None, crashed: Fault | None, stack: list[Frame], why_none: str) -> Piece:
    frames = "; innermost: " + " < ".join(map(shown, stack[:SHOWN_FRAMES])) if stack else f"; no stack ({why_none})"
    failed = f"; {described(crashed)}" if crashed else ""
    name = signal_name(number) if number else None
    return Piece(
        where=source.name,
        read=f"a core of process {pid}, {threads} threads, {name or 'of an unknown signal'}{failed}{frames}",
        proves="that process died so, at that instruction; every library in it is known",
        not_proves="that the crashing library is at fault; that the files of the libraries are still those of then; "
        "that this core is of this death: compare its time",
        grade="supported",
    )


def described(one: Fault) -> str:
    at = f" at address {one.address:#x}" + (f" ({one.mapping})" if one.mapping else "") if one.address is not None else ""
    return f"{one.trap}{at}" + (f" in {one.library}" if one.library else "")


def shown(frame: Frame) -> str:
    return f"{frame.function or '?'}" + (f" ({frame.library or frame.place})" if frame.library or frame.place else "")


def _duplicates(source: Source, twice: list[list[Library]]) -> Piece:
    listed = "; ".join(", ".join(library.path for library in group) for group in twice)
    return Piece(
        where=source.name,
        read=f"OpenMP runtimes of one family, more than once in one process: {listed}",
        proves="two runtimes that know nothing of each other were loaded at the moment of death",
        not_proves="that they caused it: the same process may have run with both for long",
        grade="supported",
    )


# ------------------------------------------------------------------ macOS
def read_report(source: Source) -> Part | None:
    """None: it is no report of a crash or of jetsam."""
    text = source.head.decode("utf-8", "replace") if source.size <= len(source.head) else source.tail
    if killed := crash_report.jetsam(text):
        return _jetsam(source, killed)
    report = crash_report.parse(text)
    if report is None:
        return None
    name = _named_signal(text)
    where = source.name
    failed = f"; {described(report.fault)}" if report.fault else ""
    frames = "; innermost: " + " < ".join(map(shown, report.stack[:SHOWN_FRAMES])) if report.stack else ""
    said = f"; noted: {' '.join(report.said)[:120]}" if report.said else ""
    piece = Piece(
        where=where,
        read=f"a macOS crash report of process {report.pid}, {name or 'of an unknown signal'}{failed}{frames}{said}",
        proves="that process died so, in that thread",
        not_proves="which Python line it was: macOS lists native frames only; that the crashing library is at fault",
        grade="supported",
    )
    return Part(
        kinds=frozenset(("crash report",)),
        pieces=[piece],
        endings=[by_signal(name, where, WAITED)] if name in NUMBERS else [],
        main=report.pid,
        stack=report.stack,
        other_stacks=report.others,
        faults=[report.fault] if report.fault else [],
    )


def _named_signal(text: str) -> str | None:
    """The parser's record has the fault; the name of the signal is beside it."""
    body = json.loads(text.partition("\n")[2])
    exception = body.get("exception")
    name = exception.get("signal") if isinstance(exception, dict) else None
    return name if isinstance(name, str) and name.startswith("SIG") else None


def _jetsam(source: Source, killed: dict[int, str]) -> Part:
    listed = ", ".join(f"pid {pid} ({reason})" for pid, reason in list(killed.items())[:8])
    piece = Piece(
        where=source.name,
        read=f"a macOS jetsam report: {listed}",
        proves="the system ended these processes for memory",
        not_proves="that one of them was this job: compare the pids",
        grade="unknown",
    )
    lines = [f"memorystatus: killing process {pid} ({reason})" for pid, reason in killed.items()]
    return Part(kinds=frozenset(("crash report",)), pieces=[piece], kernel=[Line(where=source.name, text=line) for line in lines])
