"""What the log of a run shows: how far it came, how fast, how it ended, and the pattern of its progress."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from matrix.evidence import exit
from matrix.evidence.digits import whole
from matrix.evidence.log import python_error_at
from matrix.evidence.messages import messages
from matrix.evidence.progress import ANSI, CONTROL, EPOCH, ProgressParser
from matrix.propose.facts import Facts, kind_of_words
from matrix.propose.steps import pattern_of
from matrix.records import MessageKind, PythonError

MOST_BYTES = 8 << 20  # of the end
BLOCK_BYTES = 1 << 20
CHUNK_BYTES = 4096  # the parser of progress looks at the end of what it is given
LINE_CHARS = 2000

# How a shell, a scheduler or a launcher names the end of a process.
JOB = r"(?:^|:\s+\d+\s+)"  # a line of its own, or "run.sh: line 3: 4711 Killed    python train.py"
SHELL_WORDS = {
    "SIGSEGV": r"\bSegmentation fault\b",
    "SIGABRT": rf"{JOB}Aborted\b|\bAborted\s*\(core dumped\)",
    "SIGBUS": r"\bBus error\b",
    "SIGILL": r"\bIllegal instruction\b",
    "SIGFPE": r"\bFloating point exception\b",
    "SIGTERM": rf"{JOB}Terminated\b",
    "SIGKILL": rf"{JOB}Killed\b(?=\s*$|\s\s)|^\S*:?\s*Killed\s*$|\boom[-_]kill\b|\bOOMKilled\b|out-of-memory handler",
}
ENDINGS = {name: re.compile(form) for name, form in SHELL_WORDS.items()}
BY_NUMBER = re.compile(
    r"\bexit(?:ed)?\s*(?:with\s*)?(?:code|status)?[\s:=(]*-?(?P<status>1[2-9]\d)\b|\bexitcode\s*:?\s*-(?P<code>\d{1,2})\b"
    r"|\b[Ss]ignal[\s:]+(?P<signal>\d{1,2})\b|\b(?P<name>SIG(?:SEGV|ABRT|KILL|BUS|ILL|FPE|TERM|XCPU))\b"
)
RATE = re.compile(r"(?P<value>\d+(?:\.\d+)?)\s*(?P<unit>it/s|s/it|steps?/s|batch(?:es)?/s)")
BAR_TIME = re.compile(r"\[(?:(?P<hours>\d+):)?(?P<minutes>\d+):(?P<seconds>\d\d)<")
STAMP = re.compile(r"(?P<day>\d{4}-\d\d-\d\d)[ T](?P<time>\d\d:\d\d:\d\d)")
DEVICE = re.compile(r"\b(?:device|using|on)\W{1,4}(?:type\W{1,3})?(?P<device>cuda(?::\d+)?|mps|cpu)\b", re.I)
BATCH = re.compile(r"\b(?:batch[ _-]?size|bs)\W{1,4}(?P<size>\d{1,7})\b", re.I)


CLOSING = re.compile(
    r"\b(?:finished|completed|complete|done|succeeded|success|successfully)\b|\btrain_runtime\b|\bend of training\b"
    r"|\bmax_(?:steps|epochs)\W{1,2}\d+\W{1,3}reached|\b(?:best|final) (?:metric|model|acc\w*|loss|score)\b"
    r"|\bexit(?:ed)?\s*(?:with\s*)?(?:code|status)?[\s:=(]*0\b",
    re.IGNORECASE,
)
CLOSING_LINES = 5
# Words after which a program does not go on.
FATAL: frozenset[MessageKind] = frozenset(
    (
        "openmp conflict", "heap damaged", "stack smashed", "stack overflow", "cuda out of memory", "cuda assert", "no space",
        "bus error", "too many files", "no more processes", "out of memory", "cpu time", "file too large", "c++ exception",
        "fatal python error", "worker died", "bad instruction", "missing symbol", "missing library", "corrupt input",
    )
)  # fmt: skip


class LogError(Exception):
    """The log cannot be read; the text says why."""


def of_log(path: Path, *, shown_as: str | None = None) -> Facts:
    """Facts of a log file, `shown_as` the path that the specification names; `-` is stdin, which it cannot name.  Raises LogError."""
    from_stdin = str(path) == "-"
    if from_stdin and sys.stdin is None:
        raise LogError("standard input is closed; give the log as a file, or pipe it into this command")
    named = "on stdin" if from_stdin else str(path)
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if from_stdin else path.open("rb") as source:
            data = _end(source)
    except OSError as problem:
        raise LogError(f"the log {named} cannot be read: {problem.strerror}; give a file that you may read, or - for stdin") from None
    if not data.strip():
        raise LogError(f"the log {named} is empty; give the output of the run that died")
    return _facts(data, "" if from_stdin else shown_as or str(path))


def _end(source: BinaryIO) -> bytes:
    """At most MOST_BYTES; of a pipe, all has to be read for it."""
    if source.seekable():
        source.seek(max(0, source.seek(0, os.SEEK_END) - MOST_BYTES))
        return source.read()
    kept = b""
    while block := source.read(BLOCK_BYTES):
        kept = (kept + block)[-MOST_BYTES:]
    return kept


def _facts(data: bytes, source: str) -> Facts:
    lines = [_clean(line) for line in data.decode("utf-8", "replace").replace("\r", "\n").split("\n")]
    lines = [line for line in lines if line.strip()]
    shown, pattern, matched = _progress(data, lines)
    parser = _parsed(data, pattern)
    signal, error = _signal(lines[-200:]), _error("\n".join(lines))
    said = [message for message in messages(stdout="", stderr="\n".join(lines)) if message.kind != "bad number"]
    named = bool(signal or error)
    ended_well = not named and _ended_well(parser, lines, pattern)
    stopped = parser.last_step is not None or any(kind_of_words(message) in FATAL for message in said)
    return Facts(
        source=source,
        died=True if named or (stopped and not ended_well) else None,
        signal=signal,
        error=error.type if error else None,
        error_message=error.message if error else "",
        words=tuple(message.text for message in said[:3]),
        messages=tuple((kind_of_words(message), message.text) for message in said),
        last_lines=tuple(lines[-3:]),
        ended_well=ended_well,
        last_step=parser.last_step,
        total_steps=parser.total_steps,
        epoch=_last_number(EPOCH, lines),
        steps_per_s=_rate(lines),
        seconds=_seconds(lines),
        steps_seen=shown,
        progress=pattern,
        progress_lines=matched,
        device=next((match["device"] for line in lines if (match := DEVICE.search(line))), None),
        batch_size=_last_number(BATCH, lines),
    )


def _clean(line: str) -> str:
    return CONTROL.sub("", ANSI.sub("", line[:LINE_CHARS])).rstrip()


def _progress(data: bytes, lines: list[str]) -> tuple[str, str | None, tuple[str, ...]]:
    """(a line whose step is understood without a pattern, a pattern where none is, lines that it matches)."""
    understood = _parsed(data, None)
    learnt = understood.record().learnt  # a run may not come as far as to learn it again: then the pattern is written down
    if understood.last_step is not None and understood.last_step > 1 and not learnt:
        return next(line for line in reversed(lines) if _parsed(line.encode() + b"\n", None).last_step is not None), None, ()
    found = pattern_of(lines)
    if found is None and learnt:
        matched = [line for line in lines if re.search(learnt, line)]
        return "", learnt, (matched[0], *matched[-2:])
    return ("", None, ()) if found is None else ("", *found)


def _parsed(data: bytes, pattern: str | None) -> ProgressParser:
    parser = ProgressParser(pattern)
    for start in range(0, len(data), CHUNK_BYTES):
        parser.feed("log", data[start : start + CHUNK_BYTES], 0.0)
    parser.feed("log", b"\n", 0.0)
    return parser


# ------------------------------------------------------------------ how it ended
def _signal(lines: Iterable[str]) -> str | None:
    """The first one that is named: what follows is the launcher's account of it."""
    for line in lines:
        for name, form in ENDINGS.items():
            if form.search(line):
                return name
        if match := BY_NUMBER.search(line):
            number = whole(match["status"] or "0") - 128 if match["status"] else whole(match["code"] or match["signal"] or "0")
            named = match["name"] or exit.signal_name(number)
            if named and named != "SIGINT":
                return named
    return None


def _error(text: str) -> PythonError | None:
    """The last exception, when it was the end: what is caught and logged is followed by more output."""
    found = python_error_at(text)
    return found[0] if found and found[1] <= 5 else None


def _ended_well(parser: ProgressParser, lines: list[str], pattern: str | None) -> bool:
    """True if the last step is the last that was announced, or a line behind the last step says that the run is over."""
    last, total = parser.last_step, parser.total_steps
    steps = [at for at, line in enumerate(lines) if _is_step(line, parser, pattern)]
    if last is not None and total is not None and last + _stride(lines, steps, pattern) > total:
        return True
    behind = lines[steps[-1] + 1 if steps else 0 :]
    return any(CLOSING.search(line) for line in behind[-CLOSING_LINES:])


def _is_step(line: str, whole: ProgressParser, pattern: str | None) -> bool:
    """True if the line tells a step in the form that the log's steps are counted by."""
    alone = _parsed(line.encode() + b"\n", pattern)
    return alone.last_step is not None and alone.source == whole.source


def _stride(lines: list[str], steps: list[int], pattern: str | None) -> int:
    """Steps from one line that tells a step to the next: a run that prints every tenth does not print its last."""
    told = [_parsed(lines[at].encode() + b"\n", pattern).last_step or 0 for at in steps[-3:]]
    return max([1, *(after - before for before, after in itertools.pairwise(told))])


# ------------------------------------------------------------------ figures
def _last_number(pattern: re.Pattern[str], lines: list[str]) -> int | None:
    return next((whole(match[1]) for line in reversed(lines) if (match := pattern.search(line))), None)


def _rate(lines: list[str]) -> float | None:
    for line in reversed(lines):
        if (match := RATE.search(line)) and (value := float(match["value"])) > 0:
            return 1 / value if match["unit"] == "s/it" else value
    return None


def _seconds(lines: list[str]) -> float | None:
    """From the first to the last time stamp; else what the bars say, each epoch's last added."""
    stamps = [stamp for line in lines if (stamp := _stamp(line))]
    if len(stamps) > 1 and stamps[-1] > stamps[0]:
        return (stamps[-1] - stamps[0]).total_seconds()
    return sum(_rounds(_bar_times(lines))) or None


def _stamp(line: str) -> datetime.datetime | None:
    match = STAMP.search(line)
    try:
        return datetime.datetime.fromisoformat(f"{match['day']}T{match['time']}") if match else None
    except ValueError:
        return None


def _bar_times(lines: list[str]) -> Iterator[int]:
    for line in lines:
        if match := BAR_TIME.search(line):
            yield whole(match["hours"] or "0") * 3600 + whole(match["minutes"]) * 60 + whole(match["seconds"])


def _rounds(times: Iterable[int]) -> Iterator[int]:
    """The last time of each bar: one that is smaller than the one before begins another."""
    last = 0
    for time in times:
        if time < last:
            yield last
        last = time
    yield last
