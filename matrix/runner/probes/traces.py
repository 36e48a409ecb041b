"""What the tracers of two probes wrote: who sent which signal and who called exit (strace), which memory was misused (valgrind)."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from matrix.evidence.digits import whole
from matrix.records import ExitCall, HeapError, SignalSent

MAX_CALLS, MAX_ERRORS, MAX_FRAMES = 50, 50, 20
_CALL = re.compile(r"^(\d+) +(\d+\.\d+) (\w+)\((.*?)\) += ")
_DELIVERED = re.compile(r"^(\d+) +(\d+\.\d+) --- (SIG\w+) \{(.*)\} ---")
_FRAME = re.compile(r"^ > (\S+?)\((\w+)?")
_SENDER = re.compile(r"si_pid=(\d+)")
_KILLS = {"kill": (0, 1), "tkill": (0, 1), "tgkill": (0, 2), "rt_sigqueueinfo": (0, 1), "rt_tgsigqueueinfo": (0, 2)}  # target, signal
_PLAIN = ("libc.so", "libc-2.", "libpthread", "ld-linux", "ld-2.")  # everybody ends through these
_VALGRIND = re.compile(r"^==(\d+)== (.*)$")
_PLACE = re.compile(r"^   (?:at|by) 0x[0-9A-F]+: (.*)$")
_ABOUT = re.compile(r"^ Address 0x[0-9A-Fa-f]+ is (.*)$")
_ERRORS = (
    "Invalid ",
    "Mismatched free",
    "Conditional jump",
    "Use of uninit",
    "Syscall param",
    "Source and destination",
    "Argument ",
    "Jump to",
)


# ------------------------------------------------------------------ strace
def ends(path: Path, *, started_unix_s: float, pids: set[int], name_of: Callable[[int], str]) -> tuple[list[SignalSent], list[ExitCall]]:
    """Signals that processes of the tree got, or SIGKILLs that they sent, and their last calls of exit_group; empty without a log.

    A SIGKILL from outside the tree is seen by nobody.  `where` of a call is the innermost function outside the C library."""
    sent: list[SignalSent] = []
    exits: list[ExitCall] = []
    for head, frames in _entries(path):
        if delivered := _DELIVERED.match(head):
            pid, time, signal, details = delivered.groups()
            sender = _SENDER.search(details)
            sent.append(_sent(signal, whole(pid), whole(sender[1]) if sender else 0, float(time) - started_unix_s, pids, name_of))
        elif call := _CALL.match(head):
            pid, time, name, arguments = call.groups()
            words = arguments.split(", ")
            if name == "exit_group":
                place = _place(frames)
                time_s = round(float(time) - started_unix_s, 6)
                exits.append(ExitCall(pid=whole(pid), call=name, status=words[0], where=place, time_s=time_s))
            elif name in _KILLS and words[_KILLS[name][1] :][:1] == ["SIGKILL"]:  # of the others the target tells
                target = words[_KILLS[name][0]].lstrip("-")
                if not target.isdecimal():  # the line is damaged
                    continue
                sent.append(_sent("SIGKILL", whole(target), whole(pid), float(time) - started_unix_s, pids, name_of))
    return sent[-MAX_CALLS:], exits[-MAX_CALLS:]


def _entries(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Each event with the stack below it."""
    head, frames = "", list[str]()
    for line in path.read_text(errors="replace").splitlines() if path.exists() else []:
        if line.startswith(" > "):
            frames.append(line)
            continue
        if head:
            yield head, frames
        head, frames = line, []
    if head:
        yield head, frames


def _sent(signal: str, to: int, sender: int, time_s: float, pids: set[int], name_of: Callable[[int], str]) -> SignalSent:
    name = name_of(sender) if sender else ""
    return SignalSent(
        signal=signal,
        to_pid=to,
        from_pid=sender,
        from_name=name,
        inside=sender in pids,
        by_tool=sender == os.getpid(),
        time_s=round(time_s, 6),
    )


def _place(frames: list[str]) -> str:
    """`function (library.so)`; "" without a stack."""
    for frame in filter(None, map(_FRAME.match, frames)):
        library = Path(frame[1]).name
        if not library.startswith(_PLAIN):
            return f"{frame[2]} ({library})" if frame[2] else library
    return ""


# ------------------------------------------------------------------ valgrind
@dataclasses.dataclass
class _Error:
    pid: int
    what: str
    frames: list[str] = dataclasses.field(default_factory=list)
    about: str = ""
    freed_by: list[str] = dataclasses.field(default_factory=list)


def heap_errors(folder: Path) -> list[HeapError]:
    """What memcheck said in valgrind.<pid>.log files, each place once, in its order; leaks are none of these."""
    found: dict[tuple[int, str, tuple[str, ...], str], HeapError] = {}
    for path in sorted(folder.glob("valgrind.*.log")):
        for error in _errors(path.read_text(errors="replace")):
            key = (error.pid, error.what, tuple(error.frames[:MAX_FRAMES]), error.about)
            seen = found.get(key)
            found[key] = dataclasses.replace(seen, times=seen.times + 1) if seen else _recorded(error)
    return list(found.values())[:MAX_ERRORS]


def _recorded(error: _Error) -> HeapError:
    return HeapError(
        pid=error.pid,
        what=error.what,
        frames=error.frames[:MAX_FRAMES],
        about=error.about,
        freed_by=error.freed_by[:MAX_FRAMES],
        freed_by_other_thread=bool(error.freed_by) and _thread(error.frames) != _thread(error.freed_by),
    )


def _thread(frames: list[str]) -> str:
    """What a thread began with, "" for the main one: two that began alike cannot be told apart."""
    start = next((at for at, frame in enumerate(frames) if frame.startswith("start_thread ")), 0)
    return frames[start - 1] if start else ""


def _errors(text: str) -> Iterator[_Error]:
    """The access itself with its stack, what its address is, and the stack that freed it.  Where it came from is not kept."""
    error: _Error | None = None
    stack: list[str] | None = None  # to which the next frames belong
    for line in filter(None, map(_VALGRIND.match, text.splitlines())):
        if place := _PLACE.match(line[2]):
            if stack is not None:
                stack.append(place[1])
            continue
        if error and error.frames and not error.about and (address := _ABOUT.match(line[2])):
            error.about = address[1].strip()
            stack = error.freed_by if "free'd" in error.about else None
            continue
        if error and error.frames:
            yield error
            error = None
        stack = None
        if line[2].startswith(_ERRORS):
            error = _Error(pid=whole(line[1]), what=line[2].strip())
            stack = error.frames
    if error and error.frames:
        yield error
