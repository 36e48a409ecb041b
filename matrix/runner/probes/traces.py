"""What the tracers of two probes wrote: who sent which signal and who called exit (strace), which memory was misused (valgrind)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

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
            sent.append(_sent(signal, int(pid), int(sender[1]) if sender else 0, float(time) - started_unix_s, pids, name_of))
        elif call := _CALL.match(head):
            pid, time, name, arguments = call.groups()
            words = arguments.split(", ")
            if name == "exit_group":
                place = _place(frames)
                exits.append(ExitCall(pid=int(pid), call=name, status=words[0], where=place, time_s=round(float(time) - started_unix_s, 6)))
            elif name in _KILLS and words[_KILLS[name][1]] == "SIGKILL":  # of the others the target tells
                target = abs(int(words[_KILLS[name][0]]))
                sent.append(_sent("SIGKILL", target, int(pid), float(time) - started_unix_s, pids, name_of))
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
def heap_errors(folder: Path) -> list[HeapError]:
    """What memcheck said in valgrind.<pid>.log files, each place once, in its order; leaks are none of these."""
    found: dict[tuple[int, str, tuple[str, ...], str], int] = {}
    for path in sorted(folder.glob("valgrind.*.log")):
        for pid, what, frames, about in _errors(path.read_text(errors="replace")):
            key = (pid, what, tuple(frames), about)
            found[key] = found.get(key, 0) + 1
    errors = [
        HeapError(pid=pid, what=what, frames=list(frames), times=times, about=about) for (pid, what, frames, about), times in found.items()
    ]
    return errors[:MAX_ERRORS]


def _errors(text: str) -> Iterator[tuple[int, str, list[str], str]]:
    """The first stack of each error, the access itself, and what its address is.  Later stacks tell where the memory came from."""
    what, frames, pid, about, open_stack = "", list[str](), 0, "", False
    for line in filter(None, map(_VALGRIND.match, text.splitlines())):
        if place := _PLACE.match(line[2]):
            if open_stack and len(frames) < MAX_FRAMES:
                frames.append(place[1])
            continue
        if what and frames and (address := _ABOUT.match(line[2])):
            about, open_stack = address[1].strip(), False
            continue
        if what and frames:
            yield pid, what, frames, about
            what, frames, about = "", [], ""
        open_stack = line[2].startswith(_ERRORS)
        if open_stack:
            pid, what = int(line[1]), line[2].strip()
    if what and frames:
        yield pid, what, frames, about
