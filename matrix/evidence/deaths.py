"""Which process of the tree died first, and which only followed.

A parent that raises because its worker was killed hides a second death with evidence of its own.  Nothing but a
process's parent can wait for it, so four sources are joined by pid: the main process's wait status, the kernel's process
events, the kernel log, and what frameworks print about their workers.
"""

from __future__ import annotations

import dataclasses
import re
import signal
from collections.abc import Iterable, Mapping, Sequence

from matrix.evidence import exit
from matrix.evidence.digits import whole
from matrix.evidence.exits import ExitEvent
from matrix.records import Death, DeathPart, Exit

MAX_DEATHS = 64
GRACE_S = 10.0  # a parent that ends by itself has ended its workers by SIGTERM within this time
READER_S = 1.0  # who writes to a process that dies gets SIGPIPE when its pipes are closed, which is before it is gone
NEXT_WRITE = 2.0  # times the longest step: who writes something in each meets a closed pipe within it
POLITE = ("SIGTERM", "SIGINT", "SIGHUP", "SIGPIPE")  # how parents, shells and closed pipes end a process that did nothing wrong
# Linux; macOS: "memorystatus: killing_specific_process pid 12 [python]", "killing largest compressed process with pid 12".
OOM = re.compile(
    r"[Kk]illed process (\d+)\b|killing_?\w* (?:\w+ )*?(?:process )?(?:with )?pid (\d+)\b|memorystatus: killing process (\d+)\b"
)

POOL = ("worker", "miner", "rank")
# torch's DataLoader names pids; torchrun and torch.multiprocessing name ranks; subprocess names only the signal.
WORKER = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? (?P<pids>[\d, ]+)\) "
    r"(?:is killed by signal: (?P<text>[A-Za-z ]+?)\.|exited unexpectedly(?: with exit code (?P<code>-?\d+))?)"
)
ELASTIC = re.compile(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<rank>\d+) \(pid: (?P<pid>\d+)\)")
SPAWNED = re.compile(r"process (?P<rank>\d+) terminated with (?:signal (?P<signal>SIG\w+)|exit code (?P<code>\d+))")
BY_TEXT = {signal.strsignal(number): name for number in signal.valid_signals() if (name := exit.signal_name(number)) and number < 32}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Said:
    """What a framework printed about a process of its own that died."""

    pid: int | None  # None: it names none
    signal: str | None
    status: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scene:
    """What is known about one tree, with times in seconds since the start of the attempt."""

    main: int
    ending: Exit
    end_s: float  # the main process ended, or we began to end it
    events: Mapping[int, tuple[ExitEvent, float]]  # by pid, with the time
    roles: Mapping[int, str]
    kernel_lines: Sequence[str]
    said: Sequence[Said]
    step_s: float = 0.0  # the longest one: so long may pass between two writes


def said(text: str) -> list[Said]:
    """Every message about a dead worker in the text, in its order."""
    found = [(match.start(), said) for match in WORKER.finditer(text) for said in _workers(match)]
    found += [(match.start(), _with_code(whole(match["pid"]), match["code"])) for match in ELASTIC.finditer(text)]
    for match in SPAWNED.finditer(text):
        one = _with_code(None, match["code"]) if match["code"] else Said(pid=None, signal=match["signal"], status=None)
        found.append((match.start(), one))
    return list(dict.fromkeys(one for _, one in sorted(found, key=lambda pair: pair[0])))


def deaths(scene: Scene) -> list[Death]:
    """Bad ends in the tree, the earliest first, at most 64."""
    killed = {whole("".join(filter(None, match.groups()))) for line in scene.kernel_lines for match in OOM.finditer(line)}
    vague_first = sorted(scene.said, key=lambda one: one.signal is not None or one.status is not None)  # torch says it twice
    named = {one.pid: one for one in vague_first if one.pid is not None}
    pids = set(scene.events) | (killed & set(scene.roles)) | set(named)
    found = [_death(scene, pid, pid in killed, named.get(pid)) for pid in pids if pid != scene.main]
    if scene.ending.signal or scene.ending.returncode:
        found.append(_main(scene, scene.main in killed))
    found.sort(key=lambda death: (_began_s(scene, death), death.role == "main"))
    return _with_parts(scene, found, set(named))[:MAX_DEATHS]


def _began_s(scene: Scene, death: Death) -> float:
    """When it began to die, for the order: a reader that crashed is gone only after the main process that its closed pipe ended."""
    at = scene.end_s if death.time_s is None else death.time_s
    return min(at, scene.end_s) if _was_read_by(scene, death) else at


def _was_read_by(scene: Scene, death: Death) -> bool:
    """Whether it may be the reader whose end left the main process with SIGPIPE; whom we ended with the rest got SIGKILL."""
    crashed = death.role != "main" and death.signal is not None and death.signal not in (*POLITE, "SIGKILL")
    return crashed and scene.ending.signal == "SIGPIPE" and death.time_s is not None and death.time_s <= scene.end_s + READER_S


def _main(scene: Scene, oom: bool) -> Death:
    event = scene.events.get(scene.main)
    return Death(
        pid=scene.main,
        role="main",
        signal=scene.ending.signal,
        status=None if scene.ending.signal else scene.ending.returncode,
        time_s=event[1] if event else scene.end_s,
        oom=oom,
        sources=["wait status"],
    )


def _death(scene: Scene, pid: int, oom: bool, message: Said | None) -> Death:
    event = scene.events.get(pid)
    ending = exit.decode(event[0].status) if event else None
    name = ending.signal if ending else message.signal if message else None
    status = ending.returncode if ending and not ending.signal else message.status if message and not ending else None
    found = (("kernel event", event), ("kernel log", oom), ("message", message))
    return Death(
        pid=pid,
        role=scene.roles.get(pid, "worker" if message else "other"),
        signal="SIGKILL" if oom else name,
        status=status,
        time_s=round(event[1], 6) if event else None,
        oom=oom,
        sources=[source for source, there in found if there],
    )


# ------------------------------------------------------------------ who followed whom
def _with_parts(scene: Scene, found: list[Death], named: set[int]) -> list[Death]:
    """The earliest death that could have caused the others initiates; what came at or after the end is teardown."""
    failed = bool(scene.ending.returncode) or scene.ending.ended_by in ("startup", "idle", "stall")
    first = next((death for death in found if failed and _may_begin(scene, death, named)), None)
    parts: list[Death] = []
    for death in found:
        part: DeathPart = "unknown"
        if death is first:
            part = "initiating"
        elif first is not None and (death.role == "main" or death.pid in named) and scene.ending.ended_by == "itself":
            part = "cascade"
        elif _tears_down(scene, death):
            part = "teardown"
        elif first is not None and death.signal not in POLITE and parts and parts[-1].part in ("initiating", "cascade"):
            part = "cascade"
        parts.append(dataclasses.replace(death, part=part))
    return parts


def _gone_for_long(scene: Scene, death: Death) -> bool:
    """Whether a main process that SIGPIPE ended would have met this one's closed pipe far earlier: then it wrote to another."""
    if scene.ending.signal != "SIGPIPE" or death.time_s is None or death.role in POOL:
        return False
    return scene.end_s - death.time_s > max(READER_S, NEXT_WRITE * scene.step_s)


def _may_begin(scene: Scene, death: Death, named: set[int]) -> bool:
    if death.role == "main" or death.pid in named:
        return death.role != "main" or scene.ending.ended_by == "itself"
    if _tears_down(scene, death) or death.signal in POLITE or _gone_for_long(scene, death):
        return False
    return death.signal is not None or death.role in POOL  # a helper may end with any status: `git` in no repository


def _tears_down(scene: Scene, death: Death) -> bool:
    if (death.role == "main" and scene.ending.ended_by == "itself") or _was_read_by(scene, death):
        return False
    late = death.time_s is not None and death.time_s >= scene.end_s
    polite = death.signal in POLITE and death.time_s is not None and scene.end_s - death.time_s < GRACE_S
    return late or polite


def initiating(found: Iterable[Death]) -> Death | None:
    return next((death for death in found if death.part == "initiating"), None)


# ------------------------------------------------------------------ messages
def _workers(match: re.Match[str]) -> list[Said]:
    pids = [whole(word) for word in re.findall(r"\d+", match["pids"])]
    if match["text"]:
        return [Said(pid=pid, signal=BY_TEXT.get(match["text"]), status=None) for pid in pids]
    return [_with_code(pid, match["code"]) for pid in pids]


def _with_code(pid: int | None, code: str | None) -> Said:
    """multiprocessing's exit codes are negative for a signal."""
    if code is None:
        return Said(pid=pid, signal=None, status=None)
    number = whole(code)
    return Said(pid=pid, signal=exit.signal_name(-number) if number < 0 else None, status=None if number < 0 else number)
