"""Slurm's account of a job: a table of sacct, `scontrol show job`, or a state by its name.

sacct(1) lists the states and the fields.  ExitCode is code:signal.  Numbers that are no signal of the system are Slurm's own,
cut down to the seven bits of a wait status: 125 stands for out of memory (SIG_OOM, 253, in slurm.h).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator

from matrix.diagnosis.memory_causes import NAMES as MEMORY
from matrix.evidence.digits import whole
from matrix.evidence.exit import signal_name
from matrix.explain.part import INFERRED, SCHEDULER, Ending, Part, Piece, by_signal
from matrix.explain.sources import Source
from matrix.explain.statuses import SLURM_OOM, of_pair
from matrix.records import Finding

FIELDS = ("JobID", "State", "ExitCode", "MaxRSS", "ReqMem", "Elapsed", "Timelimit", "NodeList", "DerivedExitCode")
SACCT = "sacct -j JOBID -P --format=" + ",".join(FIELDS)
SAW_NATS = 4.0
Meaning = tuple[str, str, str, str | None, float]  # proves, does not prove, grade, cause, nats
STATES: dict[str, Meaning] = {
    "OUT_OF_MEMORY": (
        "the kernel killed at least one process in a step's cgroup for memory: Slurm read the group's counter",
        "which process, and that it was the main one: a worker's kill marks the whole job; nor what held the memory",
        "kernel, by its counter",
        None,
        0.0,
    ),
    "TIMEOUT": (
        "the job reached its time limit, and Slurm ended it: SIGTERM, then SIGKILL after KillWait",
        "that it would have gone on: a job that hangs reaches its limit too",
        "another process",
        "watchdog_or_time_limit",
        4.5,
    ),
    "DEADLINE": ("the job reached its deadline", "that it would have gone on", "another process", "watchdog_or_time_limit", 4.0),
    "NODE_FAIL": (
        "Slurm lost one of the job's nodes",
        "why: a reboot, a lost network, a full disk, a kernel panic; the program may have pulled it down (memory without a limit)",
        "another process",
        "external_signal",
        3.0,
    ),
    "PREEMPTED": (
        "Slurm ended it to make room for another job",
        "anything about the program",
        "another process",
        "external_signal",
        4.5,
    ),
    "CANCELLED": (
        "somebody asked Slurm to end it",
        "who, unless a uid is named, and why; Slurm also shows the steps of a job so that reached its time limit",
        "another process",
        "external_signal",
        3.5,
    ),
    "FAILED": ("the job ended with another status than 0", "why", "suspected", None, 0.0),
    "RUNNING": ("the job still ran when Slurm was asked", "that it goes on, or that it hangs: ask again later", "suspected", None, 0.0),
    "BOOT_FAIL": ("a node did not start; the program never ran", "anything about the program", "another process", None, 0.0),
    "COMPLETED": (
        "the batch script ended with status 0",
        "that the program did: the script may end with another command",
        "suspected",
        None,
        0.0,
    ),
}
# What a state implies where no step tells more.
ASKED = ("TIMEOUT", "DEADLINE", "PREEMPTED", "CANCELLED")
ENDS = dict.fromkeys(ASKED, "SIGTERM") | dict.fromkeys(("OUT_OF_MEMORY", "NODE_FAIL"), "SIGKILL")
STATE = re.compile(rf"^\s*(?P<state>{'|'.join(STATES)})\+?(?: by (?P<uid>\d+))?\s*$")
CONTROL = re.compile(rf"\bJobState=(?P<state>{'|'.join(STATES)})\b")
EVENTS = re.compile(r"Detected (?P<count>\d+) oom[_-]kill events?(?:\(s\))? in (?:StepId=|step )(?P<step>[\w.+]+)")
LIMIT_LINE = re.compile(r"(?:STEP|JOB) (?P<id>\S+) .*CANCELLED AT (?P<when>\S+) (?P<why>DUE TO [A-Z ]+)?")
EXCEEDED = re.compile(
    r"(?:(?:StepId=|[Ss]tep |[Jj]ob )(?P<step>\d[\w.+]*) exceeded (?:memory limit|\w+ memory limit) \((?P<held>\d+) > (?P<limit>\d+)\)"
    r"|Exceeded job memory limit)(?:, being killed)?"
)
PAIR = re.compile(r"(\d+):(\d+)")
SIZE = re.compile(r"^(\d{1,15}(?:\.\d{1,15})?)([KMGT]?)[nc]?$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Row:
    """One job or step of sacct's table."""

    line: int
    values: dict[str, str]

    @property
    def state(self) -> str:
        """In full, though sacct cuts a long one short: `OUT_OF_ME+`."""
        words = self.values.get("State", "").split()
        shown = words[0].rstrip("+") if words else ""
        return next((state for state in STATES if state.startswith(shown)), shown) if shown else ""

    @property
    def id(self) -> str:
        return self.values.get("JobID", "")

    @property
    def exit(self) -> tuple[int, int] | None:
        match = PAIR.fullmatch(self.values.get("ExitCode", ""))
        return (whole(match[1]), whole(match[2])) if match else None


def from_state(text: str) -> Part | None:
    """From `--slurm 'CANCELLED by 1000'`; None when it names no state."""
    match = STATE.match(text.upper().replace(" BY ", " by "))
    if match is None:
        return None
    return _of_state("--slurm", f"state {text.strip()}", match["state"], _uid(match["uid"]))


def read(source: Source) -> Part | None:
    """A table of sacct or the text of `scontrol show job`; None when it is neither."""
    if rows := table(source.tail):
        return _of_table(source, rows)
    if match := CONTROL.search(source.tail):
        part = _of_state(source.place(match[0]), match[0], match["state"], "")
        job = re.search(r"\bJobId=(\d+)", source.tail)
        return dataclasses.replace(part, groups={f"job_{job[1]}": source.name} if job else {})
    return None


def lines(source: Source) -> Iterator[Part]:
    """What slurmstepd writes into the job's own output."""
    for match in EVENTS.finditer(source.tail):
        where, job = source.place(match[0]), re.match(r"\d+", match["step"])
        piece = Piece(
            where=where,
            read=match[0],
            proves=f"the kernel's counter of the step's own group says {match['count']} kills for memory",
            not_proves="which process was killed, and what held the memory",
            grade="kernel, by its counter",
        )
        groups = {f"job_{job[0]}": where} if job else {}
        yield Part(kinds=frozenset(("slurm",)), pieces=[piece], group_kills=whole(match["count"]), groups=groups)
        return
    if exceeded := EXCEEDED.search(source.tail):
        yield _exceeded(source, exceeded)
        return  # the CANCELLED that follows is Slurm's own doing
    for match in LIMIT_LINE.finditer(source.tail):
        state = {"DUE TO TIME LIMIT": "TIMEOUT", "DUE TO PREEMPTION": "PREEMPTED", "DUE TO NODE FAILURE": "NODE_FAIL"}
        why = next((name for words, name in state.items() if (match["why"] or "").startswith(words)), "CANCELLED")
        yield _of_state(source.place(match[0][:60]), match[0][:160], why, "")
        return


def _exceeded(source: Source, match: re.Match[str]) -> Part:
    """Slurm without cgroups bounds memory by its own looks (OverMemoryKill); no counter of the kernel knows of it."""
    where, job = source.place(match[0]), re.match(r"\d+", match["step"] or "")
    held = f": {_shown_memory(match['held'])} held, {_shown_memory(match['limit'])} asked for" if match["held"] else ""
    fact = f"Slurm itself ended it for memory{held}"
    return Part(
        kinds=frozenset(("slurm",)),
        pieces=[
            Piece(
                where=where,
                read=match[0],
                proves=f"{fact}: it saw more than the job had asked for, and killed all of the step",
                not_proves="what held the memory; pages that processes share are counted in each of them",
                grade="another process",
            )
        ],
        endings=[by_signal("SIGKILL", f"{where} (Slurm's words)", INFERRED)],
        groups={f"job_{job[0]}": where} if job else {},
        findings=[Finding(cause=cause, rule="scheduler", weight=SAW_NATS, fact=fact, attempt="remains", file=where) for cause in MEMORY],
    )


def _shown_memory(number: str) -> str:
    """Old versions count in KiB, new ones in bytes: a job of less than 64 MiB is rarer than one of 64 GiB."""
    count = whole(number)
    return _shown_bytes(count if count >= 64 << 20 else count * 1024)


# ------------------------------------------------------------------ sacct
def table(text: str) -> list[Row]:
    """Rows of `sacct` in its columns, or with -P between bars; [] when it is no such table."""
    found = text.splitlines()
    for at, line in enumerate(found):
        if "JobID" in line and "State" in line:
            cut = _bars if "|" in line else _columns(found[at + 1] if at + 1 < len(found) else "")
            names = cut(line)
            if "JobID" in names:
                rows = [(number, cut(row)) for number, row in enumerate(found[at + 1 :], start=at + 2) if row.strip("- |")]
                return [Row(line=number, values=dict(zip(names, cells, strict=False))) for number, cells in rows]
    return []


def _bars(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _columns(ruler: str) -> Callable[[str], list[str]]:
    """By the line of dashes below the names; sacct puts some columns flush right, so names alone do not tell."""
    spans = [match.span() for match in re.finditer(r"-+", ruler)]
    return lambda line: [line[start:end].strip() for start, end in spans]


def _of_table(source: Source, rows: list[Row]) -> Part:
    job = next((row for row in rows if "." not in row.id), rows[0])
    where = f"{source.name}:{job.line + source.tail_line - 1}"
    uid = re.search(r"by (\d+)", job.values.get("State", ""))
    part = _of_state(where, _shown(job), job.state, _uid(uid[1] if uid else None))
    steps = [row for row in rows if "." in row.id and not row.id.endswith(".extern")]
    ending = _ending(source, [*steps, job])
    pieces = [*part.pieces, *(_step(source, row) for row in steps if row.exit and row.exit != (0, 0))]
    number = re.match(r"\d+", job.id)
    return dataclasses.replace(
        part,
        pieces=[*pieces, *_memory(source, rows)],
        endings=[*ending, *part.endings],
        groups={f"job_{number[0]}": where} if number else {},
    )


def _shown(row: Row) -> str:
    return ", ".join(f"{name} {value}" for name, value in row.values.items() if value and name in FIELDS)


def _ending(source: Source, rows: list[Row]) -> list[Ending]:
    """The first step whose number is the system's own."""
    for row in rows:
        if row.exit and row.exit != (0, 0) and row.exit[1] != SLURM_OOM:
            found = of_pair(*row.exit)
            if found.returncode is not None:
                return [Ending(exit=found, where=f"{source.name}:{row.line + source.tail_line - 1}", by=SCHEDULER)]
    return []


def _step(source: Source, row: Row) -> Piece:
    code, number = row.exit or (0, 0)
    name = signal_name(number) if number else None
    if number == SLURM_OOM:
        proves, not_proves = "Slurm's own number for out of memory: 253, cut to seven bits; no signal of the system", "which process it was"
    elif number == 53 and not code:
        proves = "the step ended by number 53, which no program is sent: clusters document it where the output file cannot be opened"
        not_proves = "that the program ever ran; look whether the folders of --output and --chdir exist on the node"
    elif name:
        proves, not_proves = f"the step's task ended by {name}", "who sent it" + ("; that memory ran out" if name == "SIGKILL" else "")
    else:
        proves, not_proves = f"the step ended with status {code}", "why: srun and the batch script pass on what their program ended with"
    grade = "unknown" if name == "SIGKILL" else "suspected"
    where = f"{source.name}:{row.line + source.tail_line - 1}"
    return Piece(
        where=where, read=f"step {row.id}: ExitCode {code}:{number}, state {row.state}", proves=proves, not_proves=not_proves, grade=grade
    )


def _memory(source: Source, rows: list[Row]) -> Iterator[Piece]:
    most = max(rows, key=lambda row: _bytes(row.values.get("MaxRSS", "")), default=None)
    if most is None or not (held := _bytes(most.values.get("MaxRSS", ""))):
        return
    asked = next((row.values["ReqMem"] for row in rows if row.values.get("ReqMem")), "")
    yield Piece(
        where=f"{source.name}:{most.line + source.tail_line - 1}",
        read=f"MaxRSS {most.values['MaxRSS']} of step {most.id}" + (f", asked for {asked}" if asked else ""),
        proves=f"one task held {_shown_bytes(held)} at one of Slurm's looks",
        not_proves="that it never held more: Slurm looks every 30 s unless told otherwise, and a steep rise falls between two looks; "
        "shared pages are counted in every process",
        grade="suspected",
    )


def _bytes(text: str) -> float:
    match = SIZE.match(text.strip())
    return float(match[1]) * 1024 ** " KMGT".index(match[2] or " ") if match else 0.0


def _shown_bytes(count: float) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"


# ------------------------------------------------------------------ states
def _of_state(where: str, read: str, state: str, uid: str) -> Part:
    if state not in STATES:
        piece = Piece(where=where, read=read, proves="nothing that is known here", not_proves="anything", grade="unknown")
        return Part(kinds=frozenset(("slurm",)), pieces=[piece])
    proves, not_proves, grade, cause, weight = STATES[state]
    memory = state == "OUT_OF_MEMORY"
    fact = f"Slurm says {state}{uid}: {proves}"
    name = ENDS.get(state)
    return Part(
        kinds=frozenset(("slurm",)),
        pieces=[Piece(where=where, read=f"{read}{uid}", proves=proves, not_proves=not_proves, grade=grade)],
        endings=[by_signal(name, f"{where} (the state)", INFERRED)] if name else [],
        group_kills=1 if memory else None,
        findings=[Finding(cause=cause, rule="scheduler", weight=weight, fact=fact, attempt="remains", file=where)] if cause else [],
    )


def _uid(uid: str | None) -> str:
    if uid is None:
        return ""
    return " (uid 0: root or Slurm itself)" if uid == "0" else f" (uid {uid}: `id {uid}` names the person)"
