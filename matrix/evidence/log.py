"""What a program's own text says about its end: tracebacks, faulthandler's stacks, the last lines."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Iterator
from pathlib import Path

from matrix.evidence.progress import ANSI, CONTROL
from matrix.records import CrashDump, PythonError

READ_BYTES = 4 << 20
LINE_CHARS = 400
NATIVE = "<native thread>"  # first entry of a crash stack whose thread ran no Python code

HEADER = re.compile(r"^(?P<prefix>.*?)(?P<group>\+ Exception Group )?Traceback \(most recent call last\):\s*$")
NESTED = re.compile(r"\s*\|[\s|]*")  # within an exception group; a progress bar in front of a traceback has more than this
FRAME = re.compile(r'^\s+File "(?P<file>.+?)", line (?P<line>\d+|\?\?\?)(?:,? in (?P<function>.+))?$')
ERROR = re.compile(r"^(?P<type>[A-Za-z_][\w.<>]*)(?:: ?(?P<message>.*))?$")
SYNTAX = re.compile(r"^(?:SyntaxError|IndentationError|TabError)\b")
# Printed by the interpreter or by logging about an exception that ended nothing.
IGNORED = re.compile(r"^(?:Exception ignored |--- Logging error ---)")
FATAL = re.compile(r"^Fatal Python error: ", re.MULTILINE)
DIRECT_CAUSE = "The above exception was the direct cause of the following exception:"
CUT_OFF = "\n  ...\n"  # there were more frames than the 100 that it prints
EXTENSIONS = re.compile(r"^Extension modules: (.+?) \(total: \d+\)$", re.MULTILINE)
THREAD = re.compile(r"^(?P<current>Current thread|Thread) 0x[0-9a-f]+.*\(most recent call first\):")


def text(path: Path | str) -> str:
    """The last few MiB of a file, decoded whatever is in it; "" when it is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY)  # at every attempt, mostly of a small file or none
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb", buffering=0) as source:
        source.seek(max(0, os.fstat(descriptor).st_size - READ_BYTES))
        return source.read().decode("utf-8", "replace")


def last_lines(text: str, lines: int) -> list[str]:
    """Those that a terminal would still show: of a bar its last state, without colours and control characters."""
    shown: list[str] = []
    for line in reversed(text.split("\n")):
        visible = CONTROL.sub("", ANSI.sub("", line.rstrip("\r").rpartition("\r")[2])).rstrip()
        if visible:
            shown.append(visible[:LINE_CHARS])
        if len(shown) == lines:
            break
    return shown[::-1]


def short_path(path: str) -> str:
    """`faiss/swigfaiss.py` for a file of an installed package, the bare name for anything else: no home folders."""
    inside = re.split(r"/(?:site|dist)-packages/|/lib/python3\.\d+/(?!(?:site|dist)-packages/)", path)[-1]
    return inside if inside != path else path.rpartition("/")[2]


# ------------------------------------------------------------------ tracebacks
def python_error(text: str) -> PythonError | None:
    """The last traceback in the text that is complete; None when there is none."""
    found = python_error_at(text)
    return found[0] if found else None


LAUNCHERS = ("ChildFailedError", "CalledProcessError", "ProcessExitedException")  # say that a process ended, whose own words came before


def first_error(text: str) -> PythonError | None:
    """Return the exception that ended the program: of a launcher that raises about a process, the exception of that process.

    The ranks' tracebacks come before the launcher's; of several the first one began it, the others lost their peer."""
    last = python_error(text)
    if last is None or last.type.rpartition(".")[2] not in LAUNCHERS:
        return last
    lines = [ANSI.sub("", line) for line in text.replace("\r", "\n").split("\n")]
    found = (error for start in range(len(lines)) if (error := _traceback(lines, start)))
    return next((error for error, _ in found if error.type.rpartition(".")[2] not in LAUNCHERS), last)


def python_error_at(text: str) -> tuple[PythonError, int] | None:
    """The last complete traceback and the number of lines after it: 0 or few when it was the end of the program.

    Of a chain it is the exception that came out at last, of a group the group itself.  A traceback that was caught and
    only logged looks the same; what followed it tells.
    """
    lines = [ANSI.sub("", line) for line in text.replace("\r", "\n").split("\n")]
    for start in reversed(range(len(lines))):
        found = _traceback(lines, start) or _bare_syntax_error(lines, start)
        if found:
            error, end = found
            error = dataclasses.replace(error, raised_from=_direct_causes(lines, start))
            return error, sum(1 for line in lines[end:] if line.strip())
    return None


def _traceback(lines: list[str], start: int) -> tuple[PythonError, int] | None:
    header = HEADER.match(lines[start])
    if header is None or NESTED.fullmatch(header["prefix"]) or (start and IGNORED.match(lines[start - 1])):
        return None
    prefix = header["prefix"] + "| " if header["group"] else header["prefix"]
    return _after_header(lines, start + 1, prefix)


def _direct_causes(lines: list[str], start: int) -> list[str]:
    """Return the exceptions that the traceback at `start` names as its direct causes, the first one first.

    Python prints them above.  "During handling of" is left out: there the later exception may be an error of its own."""
    found: list[str] = []
    while (above := _last_said_above(lines, start)) is not None and DIRECT_CAUSE in lines[above]:
        starts = (at for at in reversed(range(above)) if HEADER.match(lines[at]))
        start = next(starts, -1)
        cause = _traceback(lines, start) if start >= 0 else None
        if cause is None:
            break
        error, _ = cause
        found.append(f"{error.type}: {error.message}")
    return found[::-1]


def _last_said_above(lines: list[str], start: int) -> int | None:
    """Return the number of the nearest line above that is not empty."""
    return next((at for at in reversed(range(start)) if lines[at].strip(" |")), None)


def _bare_syntax_error(lines: list[str], start: int) -> tuple[PythonError, int] | None:
    """A script that cannot be compiled: one File line, no header."""
    frame = FRAME.match(lines[start])
    if frame is None or frame["function"]:
        return None
    found = _after_header(lines, start, "")
    return found if found and SYNTAX.match(found[0].type) else None


def _after_header(lines: list[str], start: int, prefix: str) -> tuple[PythonError, int] | None:
    """Frames until the first line that is not indented, which names the exception."""
    frames: list[str] = []
    for at in range(start, len(lines)):
        line = lines[at].removeprefix(prefix)
        if frame := FRAME.match(line):
            frames.append(_frame(frame))
        elif line[:1].strip():
            error = ERROR.match(line.rstrip())
            if error is None:
                return None
            message = error["message"] or _next_line(lines[at + 1 :], prefix)
            return PythonError(type=error["type"], message=message, frames=frames), at + 1
    return None  # it was cut off


def _next_line(lines: list[str], prefix: str) -> str:
    """A message that begins with a line break, as multiprocessing's do; it is indented, other output is not."""
    following = next((line.removeprefix(prefix) for line in lines if line.strip()), "")
    return following.strip() if following[:1].isspace() and not FRAME.match(following) else ""


def _frame(match: re.Match[str]) -> str:
    function = match["function"]
    return f"{short_path(match['file'])}:{match['line']}" + (f" in {function}" if function else "")


# ------------------------------------------------------------------ faulthandler
def crash_stack(text: str) -> list[str]:
    """Python frames of the thread that crashed, innermost first; [] without a fatal error in the text.

    When that thread ran no Python code (an OpenMP worker, say) the first entry is `<native thread>` and the main
    thread's frames follow.  Of several fatal errors the first counts.
    """
    fatal = FATAL.search(text)
    if fatal is None:
        return []
    threads = list(_threads(text[fatal.start() :]))
    current = next((frames for is_current, frames in threads if is_current), [])
    if current or not threads:
        return current
    return [NATIVE, *threads[-1][1]]


def crash_dump(pid: int, text: str) -> CrashDump | None:
    """The first fatal error in what faulthandler wrote in that process; None when there is none."""
    fatal = FATAL.search(text)
    if fatal is None:
        return None
    error = text[fatal.end() :].partition("\n")[0].strip()
    dump = text[fatal.start() :]
    threads = sum(1 for line in dump.split("\n") if THREAD.match(line))
    return CrashDump(pid=pid, error=error, frames=crash_stack(text), cut_off=CUT_OFF in _of_current(dump), threads=threads)


def extension_modules(text: str) -> list[str]:
    """Modules in native code, in the order of their import, as faulthandler lists them below a fatal error."""
    found = EXTENSIONS.search(text)
    return found[1].split(", ") if found else []


def _of_current(dump: str) -> str:
    """The part of a dump about the thread that crashed; "" when no thread is marked."""
    _, marked, rest = dump.partition("\nCurrent thread ")
    return re.split(r"\nThread 0x|\n\n", rest)[0] + "\n" if marked else ""


def dumped_stacks(text: str) -> list[list[str]]:
    """Frames of every thread in one of faulthandler's dumps, innermost first; the main thread comes first."""
    return [frames for _, frames in _threads(text)][::-1]


def _threads(text: str) -> Iterator[tuple[bool, list[str]]]:
    """(is it the current thread, its frames) in the order printed: the main thread is the last one of a dump."""
    is_current, frames = None, list[str]()
    for line in text.split("\n"):
        thread, frame = THREAD.match(line), FRAME.match(line)
        if thread:
            if is_current is not None:
                yield is_current, frames
            is_current, frames = thread["current"] == "Current thread", []
        elif frame and is_current is not None:
            frames.append(_frame(frame))
        elif line.startswith("Fatal Python error") and is_current is not None:
            break
    if is_current is not None:
        yield is_current, frames
