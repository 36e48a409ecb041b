"""What shells and launchers say of the process that they started: bash, torchrun, DeepSpeed, accelerate, Ray."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from matrix.evidence.deaths import Said
from matrix.evidence.digits import whole
from matrix.evidence.exit import signal_name
from matrix.explain.meanings import SPECIAL
from matrix.explain.part import INFERRED, SHELL, WAITED, Ending, Part, Piece, by_signal
from matrix.explain.sources import Source
from matrix.records import Exit, Finding

WORDS = {
    "Killed": "SIGKILL", "Segmentation fault": "SIGSEGV", "Aborted": "SIGABRT", "Bus error": "SIGBUS", "Terminated": "SIGTERM",
    "Illegal instruction": "SIGILL", "Floating point exception": "SIGFPE", "Hangup": "SIGHUP",
}  # fmt: skip
NAMES = "|".join(WORDS)
# "./run.sh: line 3: 4242 Killed   python train.py", and the word alone as an interactive shell prints it.
SCRIPT = re.compile(rf"line \d+: +(?P<pid>\d+) (?P<word>{NAMES})\b")
ALONE = re.compile(rf"^(?:\[\d+\][+-]? +(?:\d+ )?)?(?P<word>{NAMES})(?P<core> \(core dumped\))?(?: {{2,}}.*)?\s*$", re.M)
TABLE = re.compile(r"^-{20,}\s*\nRoot Cause \(first observed failure\):(?P<root>.*?)^={20,}", re.M | re.S)
OTHERS = re.compile(r"^Failures:\s*$(?P<rest>.*?)^-{20,}", re.M | re.S)
ENTRY = re.compile(
    r"time\s*: (?P<time>\S+)\s+host\s*: \S+\s+rank\s*: (?P<rank>\d+).*?exitcode\s*: (?P<code>-?\d+)(?: \(pid: (?P<pid>\d+)\))?", re.S
)
DIED = re.compile(r"died with <Signals\.(SIG\w+): \d+>")
RETURN_CODE = re.compile(r"exits with return code = (-?\d+)")
RAY_GUESSES = re.compile(r"There are some potential root causes|The worker died unexpectedly while executing this task|WorkerCrashedError")
RAY_MEMORY = re.compile(r"due to the node running low on memory|ray\.exceptions\.OutOfMemoryError")
NCCL = re.compile(r"Watchdog caught collective operation timeout.*")
NCCL_NATS = 3.5  # the watchdog is certain; what kept the other rank is open


def read(source: Source) -> Iterator[Part]:
    yield from _shell(source)
    yield from _torchrun(source)
    yield from _codes(source)
    yield from _ray(source)
    yield from _nccl(source)


# ------------------------------------------------------------------ shells
def _shell(source: Source) -> Iterator[Part]:
    named = list(SCRIPT.finditer(source.tail))
    matches = named or list(ALONE.finditer(source.tail))
    if not matches:
        return
    last = matches[-1]
    name = WORDS[last["word"]]
    pid = whole(last["pid"]) if named else None
    where = source.place(last[0].strip())
    core = "core dumped" in source.tail[last.start() : last.end() + 20]
    piece = Piece(
        where=where,
        read=last[0].strip()[:160],
        proves=f"the shell waited for its child, and {name} ended it" + ("; a core was written" if core else ""),
        not_proves="who sent it, and that memory ran out: the shell prints this word for every SIGKILL" if name == "SIGKILL" else "why",
        grade="unknown" if name == "SIGKILL" else "suspected",
    )
    yield Part(pieces=[piece], endings=[by_signal(name, where, SHELL, core=core)], main=pid)


# ------------------------------------------------------------------ torchrun
@dataclasses.dataclass(frozen=True, kw_only=True)
class Failed:
    """One rank of torchrun's table."""

    time: str
    rank: int
    code: int
    pid: int | None
    root: bool

    @property
    def how(self) -> str:
        name = signal_name(-self.code) if self.code < 0 else None
        return name or f"status {self.code}"


def _torchrun(source: Source) -> Iterator[Part]:
    table = TABLE.search(source.tail)
    if table is None:
        return
    before = source.tail[: table.start() + 1]
    rest = OTHERS.search(before[max(0, before.rfind("Failures:") - 1) :] + "-" * 20)
    root = [_failed(match, True) for match in ENTRY.finditer(table["root"])][:1]
    others = [_failed(match, False) for match in ENTRY.finditer(rest["rest"])] if rest else []
    if not root:
        return
    first, known = root[0], {one.pid for one in root}
    every = root + [one for one in others if one.pid is None or one.pid not in known]
    earlier = [one for one in every if one.time < first.time]
    where = source.place("Root Cause (first observed failure)")
    yield Part(
        pieces=[_table(where, first, every, earlier)],
        said=[_as_said(min(every, key=lambda one: one.time))],
        pids={one.pid: where for one in every if one.pid is not None},
        endings=[Ending(exit=Exit(returncode=1), where=where, by=INFERRED)],
    )


def _failed(match: re.Match[str], root: bool) -> Failed:
    pid = whole(match["pid"]) if match["pid"] else None
    return Failed(time=match["time"], rank=whole(match["rank"]), code=whole(match["code"]), pid=pid, root=root)


def _as_said(one: Failed) -> Said:
    name = signal_name(-one.code) if one.code < 0 else None
    return Said(pid=one.pid, signal=name, status=None if name else one.code)


def _table(where: str, first: Failed, every: list[Failed], earlier: list[Failed]) -> Piece:
    listed = ", ".join(f"rank {one.rank}{f' (pid {one.pid})' if one.pid else ''}: {one.how}" for one in every[:8])
    doubt = f"; by the table's own times rank {earlier[0].rank} failed before it" if earlier else ""
    return Piece(
        where=where,
        read=f"torchrun's table, {len(every)} failed ranks: {listed}",
        proves=f"rank {first.rank} ended by {first.how}, and torchrun noticed it first; it ended the others",
        not_proves="that it died first or is the cause: torchrun looks at its ranks in turns, and a rank on another machine may have died "
        f"before{doubt}",
        grade="suspected",
    )


# ------------------------------------------------------------------ codes of other launchers
def _codes(source: Source) -> Iterator[Part]:
    """accelerate and DeepSpeed raise about the child that they waited for."""
    for pattern in (DIED, RETURN_CODE):
        match = next(iter(pattern.finditer(source.tail)), None)
        name = None if match is None else match[1] if pattern is DIED else signal_name(-whole(match[1]))
        if match is None or name is None:
            continue
        where = source.place(match[0])
        piece = Piece(
            where=where,
            read=match[0],
            proves=f"a launcher waited for the job, and {name} ended it",
            not_proves="who sent it, and that memory ran out" if name == "SIGKILL" else "why; the launcher's own status 1 only follows",
            grade="unknown" if name == "SIGKILL" else "suspected",
        )
        yield Part(pieces=[piece], endings=[by_signal(name, where, WAITED)])


# ------------------------------------------------------------------ Ray
def _ray(source: Source) -> Iterator[Part]:
    if match := RAY_MEMORY.search(source.tail):
        yield _ray_part(
            source,
            match,
            proves="Ray's own memory monitor ended a worker, because the machine's memory was nearly used up; not the kernel",
            not_proves="that this worker held the memory: Ray chooses by its own rule",
            grade="another process",
        )
    elif match := RAY_GUESSES.search(source.tail):
        yield _ray_part(
            source,
            match,
            proves="Ray lost the connection to a worker process",
            not_proves="any of the causes that the message lists: they are guesses that Ray prints for every such loss",
            grade="suspected",
        )


# ------------------------------------------------------------------ NCCL
def _nccl(source: Source) -> Iterator[Part]:
    """Its watchdog ends a rank that waited for another one."""
    match = NCCL.search(source.tail)
    if match is None:
        return
    proves, not_proves, grade = SPECIAL["collective operation timeout"]
    fact = f"NCCL's watchdog ended a rank that waited in a collective: {match[0][:120]}"
    where = source.place(match[0][:60])
    yield Part(
        pieces=[Piece(where=where, read=match[0][:200], proves=proves, not_proves=not_proves, grade=grade)],
        findings=[Finding(cause="watchdog_or_time_limit", rule="nccl", weight=NCCL_NATS, fact=fact, attempt="remains", file=where)],
    )


def _ray_part(source: Source, match: re.Match[str], *, proves: str, not_proves: str, grade: str) -> Part:
    piece = Piece(where=source.place(match[0]), read=f"Ray: {match[0]}", proves=proves, not_proves=not_proves, grade=grade)
    return Part(pieces=[piece])
