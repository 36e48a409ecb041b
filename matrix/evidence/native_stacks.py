"""The stack of the thread that crashed, Python and native frames in one list, read from a core file.

pystack merges both (0.4 s for a core of 180 MB of torch).  Without it gdb's native frames and py-spy's Python frames are put
one behind the other.  Every reader runs in a process of its own with a time limit: a core of a damaged process may hang it.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from matrix.evidence.core_notes import CoreNotes
from matrix.evidence.digits import whole
from matrix.evidence.log import short_path
from matrix.records import Frame, Trust

READER_S = {"pystack": 20.0, "py-spy": 10.0, "gdb": 40.0}
MAX_FRAMES = 80
OTHERS, OTHER_FRAMES = 16, 24  # threads beside the one that crashed, and frames of each
TRAMPOLINES = ("__restore_rt", "<signal handler called>")  # below them is what was interrupted by the signal

PYSTACK_THREAD = re.compile(r"^Traceback for thread (?P<tid>\d+)")
PYSTACK_FRAME = re.compile(r'^ +\((?P<kind>C|Python|Cython)\) File "(?P<file>.*)", line (?P<line>\d+), in (?P<rest>.+)$')
LIBRARY = re.compile(r" \((?P<library>[^()\s]+)\)$")
GDB_FRAME = re.compile(r"^#\d+ +(?:(?P<address>0x[0-9a-f]+) in )?(?P<rest>.+)$")
GDB_PLACE = re.compile(r" (?:at (?P<file>\S+):(?P<line>\d+)|from (?P<library>\S+))$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stacks:
    """Innermost frame first; without the signal handler's own frames."""

    crashed: list[Frame] = dataclasses.field(default_factory=list)
    others: list[list[Frame]] = dataclasses.field(default_factory=list)  # of the other threads; []: only pystack tells
    text: str = ""  # all output of the readers
    why_none: str = ""  # why there are no frames; "": there are


def read(core: Path, notes: CoreNotes) -> Stacks:
    """The stack of the thread that crashed, and those of the others where a reader tells them."""
    executable = notes.maps.partition("\n")[0].split(maxsplit=5)[-1]
    text, why = _run("pystack", ["core", str(core), *([executable] if Path(executable).exists() else []), "--native-all"])
    stacks = _pystack(text)
    crashed = notes.threads[0] if notes.threads else None  # the first in the core's notes
    if frames := _interrupted(stacks.pop(crashed, []) if crashed is not None else []):
        others = [stack[:OTHER_FRAMES] for stack in list(stacks.values())[:OTHERS]]
        return Stacks(crashed=frames[:MAX_FRAMES], others=others, text=text)
    native, why_gdb = _run("gdb", ["-batch", "-nx", "-q", "-ex", f"bt {MAX_FRAMES}", executable, str(core)])
    python, why_py_spy = _run("py-spy", ["dump", "--json", "--core", str(core)])
    frames = _interrupted(list(_gdb(native, notes.maps))) + list(_py_spy(python, notes.threads))
    whys = [f"{name}: {reason}" for name, reason in (("pystack", why), ("gdb", why_gdb), ("py-spy", why_py_spy)) if reason]
    none = "" if frames else "; ".join(whys) or "no reader found a frame of the thread that died"
    return Stacks(crashed=frames[:MAX_FRAMES], text=native + python, why_none=none)


def program(name: str) -> str | None:
    """A reader's path: beside our interpreter, or wherever the shell finds it."""
    beside = Path(sys.executable).with_name(name)
    return str(beside) if beside.exists() else shutil.which(name)


def _run(name: str, arguments: list[str]) -> tuple[str, str]:
    """What it printed, and why nothing came."""
    found = program(name)
    if found is None:
        return "", "not installed"
    try:
        done = subprocess.run([found, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=READER_S[name])
    except (OSError, subprocess.SubprocessError) as problem:
        return "", "took too long" if isinstance(problem, subprocess.TimeoutExpired) else str(problem)
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return done.stdout.decode(errors="replace"), "" if not done.returncode else (said[-1][:200] if said else f"status {done.returncode}")


def _interrupted(frames: list[Frame]) -> list[Frame]:
    """What ran when the signal came: a handler (faulthandler's, say) lies on top of it, the trampoline between them."""
    last = max((at for at, frame in enumerate(frames) if frame.function in TRAMPOLINES), default=-1)
    return frames[last + 1 :]


# ------------------------------------------------------------------ one parser a reader
def _pystack(text: str) -> dict[int, list[Frame]]:
    """Frames by thread, innermost first; pystack prints the outermost first."""
    stacks: dict[int, list[Frame]] = {}
    current: list[Frame] = []
    for line in text.splitlines():
        if thread := PYSTACK_THREAD.match(line):
            current = stacks.setdefault(whole(thread["tid"]), [])
        elif frame := PYSTACK_FRAME.match(line):
            current.append(_pystack_frame(frame))
    return {tid: frames[::-1] for tid, frames in stacks.items()}


def _pystack_frame(match: re.Match[str]) -> Frame:
    name, library = match["rest"], ""
    if match["kind"] == "Python":
        return Frame(function=name, place=f"{short_path(match['file'])}:{match['line']}", kind="python", trust="interpreter")
    if found := LIBRARY.search(name):
        name, library = name[: found.start()].removesuffix(" (inlined)"), found["library"]
    place = f"{short_path(match['file'])}:{match['line']}" if match["line"] != "0" else ""
    return _native(name if name != "???" else "", library, place)


def _gdb(text: str, maps: str) -> Iterator[Frame]:
    """The innermost frame is also printed when the core is loaded: the last backtrace counts.  No library is named beside a source line."""
    lines = text.splitlines()
    start = max((at for at, line in enumerate(lines) if line.startswith("#0 ")), default=0)
    for line in lines[start:]:
        if frame := GDB_FRAME.match(line):
            rest, place = frame["rest"], ""
            library = _library_at(maps, int(frame["address"], 16)) if frame["address"] else ""
            if found := GDB_PLACE.search(rest):
                rest = rest[: found.start()]
                library = library or (found["library"] or "").rpartition("/")[2]
                place = f"{short_path(found['file'])}:{found['line']}" if found["file"] else ""
            name = rest if rest in TRAMPOLINES else rest.partition(" (")[0]
            yield _native("" if name == "??" else name, library, place)


def _library_at(maps: str, address: int) -> str:
    for line in maps.splitlines():
        start, _, end = line.partition(" ")[0].partition("-")
        if int(start, 16) <= address < int(end, 16):
            return line.rpartition("/")[2]
    return ""


def _py_spy(text: str, threads: tuple[int, ...]) -> Iterator[Frame]:
    try:
        stacks = json.loads(text or "[]")
    except ValueError:
        return
    for thread in stacks:
        if threads and thread["os_thread_id"] in (None, threads[0]):
            for frame in thread["frames"]:
                place = f"{short_path(frame['filename'])}:{frame['line']}"
                yield Frame(function=frame["name"], place=place, kind="python", trust="interpreter")
            return


def _native(function: str, library: str, place: str) -> Frame:
    trust: Trust = "symbol" if function else "library" if library else "none"
    return Frame(function=function, library=library, place=place, kind="native", trust=trust)
