"""What one source contributes: pieces of evidence in words, and the facts that the diagnosis can judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from matrix.evidence.deaths import Said
from matrix.evidence.exit import signal_name
from matrix.records import CrashDump, Exit, Fault, Finding, Frame, Library, Message, Metric, Progress, PythonError

GIVEN, SCHEDULER, WAITED, SHELL, INFERRED = range(5)  # who says how it ended, the most direct first


NUMBERS = {name: number for number in range(1, 65) if (name := signal_name(number))}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Piece:
    """One piece of evidence: where it is, what it proves and what it does not."""

    where: str  # "train.log:231", "--status"
    read: str
    proves: str
    not_proves: str
    grade: str  # supported | suspected, as in a ranking; or a grade of who sent a SIGKILL (diagnosis.sigkill)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Ending:
    """How the main process ended, as one source says."""

    exit: Exit
    where: str
    by: int  # GIVEN ... INFERRED


def by_signal(name: str, where: str, by: int, *, core: bool = False) -> Ending:
    """It ended by that signal, `SIGSEGV`; numbers are those of this machine."""
    return Ending(exit=Exit(returncode=-NUMBERS[name], signal=name, core_dumped=core), where=where, by=by)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a kernel log."""

    where: str
    text: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """What one source says; what it is silent about has the default."""

    kinds: frozenset[str] = frozenset()  # of sources: output, kernel log, core, crash report, slurm, kubernetes, status
    logs: list[str] = dataclasses.field(default_factory=list)  # files that hold its output
    pieces: list[Piece] = dataclasses.field(default_factory=list)
    endings: list[Ending] = dataclasses.field(default_factory=list)
    main: int | None = None  # pid of the main process
    pids: dict[int, str] = dataclasses.field(default_factory=dict)  # other processes of the job, and where they are named
    groups: dict[str, str] = dataclasses.field(default_factory=dict)  # words of its cgroup's path, and where they are from
    kernel: list[Line] = dataclasses.field(default_factory=list)
    said: list[Said] = dataclasses.field(default_factory=list)
    messages: list[Message] = dataclasses.field(default_factory=list)
    metrics: list[Metric] = dataclasses.field(default_factory=list)
    python_error: PythonError | None = None
    dumps: list[CrashDump] = dataclasses.field(default_factory=list)
    progress: Progress | None = None
    tail: list[str] = dataclasses.field(default_factory=list)
    native_imports: list[str] = dataclasses.field(default_factory=list)
    stack: list[Frame] = dataclasses.field(default_factory=list)
    other_stacks: list[list[Frame]] = dataclasses.field(default_factory=list)
    faults: list[Fault] = dataclasses.field(default_factory=list)
    libraries: list[Library] = dataclasses.field(default_factory=list)
    threads: frozenset[int] = frozenset()  # thread ids of the process that crashed
    group_kills: int | None = None  # OOM kills that a counter of the job's own group has; None: no counter
    findings: list[Finding] = dataclasses.field(default_factory=list)  # judgements on what only a scheduler knows


def joined(parts: Iterable[Part]) -> Part:
    """All parts as one: lists one after the other, of single values the first."""
    found: dict[str, object] = {}
    for part in parts:
        for field in dataclasses.fields(Part):
            value = getattr(part, field.name)
            known = found.get(field.name)
            if known is None:
                found[field.name] = value
            elif isinstance(value, list):
                found[field.name] = [*known, *value]  # type: ignore[misc]  # the same field of two parts
            elif isinstance(value, dict | frozenset):
                found[field.name] = known | value  # type: ignore[operator]
    return Part(**found)  # type: ignore[arg-type]
