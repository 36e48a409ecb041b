"""`explain --pid`: the autopsy of a job that hangs right now.  Several looks, a run folder that `package` can pack, nothing ended.

That nothing moved for some seconds proves no hang: a job may wait for a slow disk, a download or another rank.  It is told apart
from a job that is busy, and what would prove a hang is said.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import time
from pathlib import Path
from typing import Literal

import psutil

from matrix import records
from matrix.diagnosis import judge, ranking
from matrix.diagnosis.case import Case
from matrix.diagnosis.hangs import HangClass, hang_class
from matrix.evidence import environment, log, process_memory, runtimes
from matrix.evidence.native_stacks import program
from matrix.evidence.processes import command
from matrix.evidence.settings import Settings
from matrix.explain import living
from matrix.explain.living import Look, Movement
from matrix.explain.remains import no_search
from matrix.kernel_text import kernel_text
from matrix.records import (
    Attempt,
    Exit,
    Library,
    Memory,
    NotCollected,
    Observation,
    ProcessMemory,
    ProcessSettings,
    Progress,
    Ranked,
    Trial,
)

ATTEMPT = "0001-autopsy"
STILL_RUNS = "it still ran; nothing was ended"
SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
TAIL_LINES = 20
State = Literal["moves", "busy at one place", "busy", "still", "between"]


class CannotLook(Exception):
    """There is no such process, or this user may not look at it."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Autopsy:
    attempt: Attempt
    observation: Observation
    looks: list[Look]
    movements: list[Movement]
    classes: dict[int, HangClass]
    state: State
    silent_s: float | None  # since its output was last written to; None: it goes to no file
    ranking: list[Ranked]  # []: it moves, so there is nothing to explain
    maps: dict[int, str]
    threads: dict[int, list[str]]

    @property
    def span_s(self) -> float:
        return sum(look.processes[0].window_s for look in self.looks if look.processes)


def examine(pid: int, *, looks: int, every_s: float) -> Autopsy:
    """Takes `looks` times `every_s` seconds, and the time of the stacks.  Raises CannotLook."""
    _check(pid)
    started, attempt, began = _created(pid), _attempt(pid), time.time()
    before = living.tree(pid)
    maps = {each: text for each in before if (text := _read(each, "maps"))}
    libraries = [library for each, text in sorted(maps.items()) for library in runtimes.census(text, pid=each, seen="sampled")]
    taken = living.looks(pid, looks, every_s)
    if not taken[-1].processes or taken[-1].processes[0].pid != pid or taken[-1].processes[0].state == "Z":
        raise CannotLook(f"process {pid} ended while it was looked at; explain what is left of it: its log, its exit status")
    moves = living.movements(taken)
    state, silent_s = _state(moves, taken), _silent_s(taken[-1])
    seen = _observation(pid, attempt, moves, taken[-1], libraries, wall_s=began - started, started=started)
    return Autopsy(
        attempt=attempt,
        observation=seen,
        looks=taken,
        movements=moves,
        classes={one.seen.pid: hang_class(one.seen, ()) for one in moves},
        state=state,
        silent_s=silent_s,
        ranking=_ranking(seen) if state in ("still", "busy at one place", "busy") else [],
        maps=maps,
        threads={each.pid: living.threads(each.pid) for each in taken[-1].processes},
    )


# ------------------------------------------------------------------ who may be looked at
def _check(pid: int) -> None:
    if pid in (os.getpid(), 1):
        raise CannotLook(f"--pid {pid} is {'this command itself' if pid != 1 else 'the system itself'}; give the pid of the job")
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            raise CannotLook(f"process {pid} has ended already, and its parent {process.ppid()} has not asked how: look at the parent")
        owner, argv = process.username(), command(pid)
    except psutil.NoSuchProcess:
        raise CannotLook(f"there is no process {pid} here; a pid from within a container counts only in there") from None
    except psutil.AccessDenied:
        raise CannotLook(f"this user may not look at process {pid}; run it as the process's owner or as root") from None
    if not argv:
        raise CannotLook(f"process {pid} has no command line, so it is the kernel's own; give the pid of the job")
    if not os.access(f"/proc/{pid}/fd", os.R_OK) and Path("/proc").exists():
        raise CannotLook(f"process {pid} belongs to {owner}, and this user may not look at it; run it as {owner} or as root")


def _created(pid: int) -> float:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).create_time()
    return time.time()


def _attempt(pid: int) -> Attempt:
    argv, cwd = [str(pid)], "/"
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        argv, cwd = command(pid) or argv, process.cwd()
    trial = Trial(id=1, cell={}, why="A job that was not started here, looked at while it runs.")
    return Attempt(id=ATTEMPT, trial=trial, argv=argv, env={}, cwd=cwd, key="", program="")


def why_no_stack(pid: int) -> str:
    """In the words of py-spy, and what to do."""
    reader = program("py-spy")
    if reader is None:
        return "py-spy is not installed; install it beside this program (pip install py-spy)"
    scope = ""
    with contextlib.suppress(OSError):
        scope = kernel_text(SCOPE).strip()
    if scope not in ("", "0") and os.geteuid():
        return f"this user may not read its memory (kernel.yama.ptrace_scope is {scope}); run it with sudo, or set that to 0"
    try:
        argv = [reader, "dump", "--nonblocking", "--pid", str(pid)]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, text=True, errors="replace")
    except (OSError, subprocess.SubprocessError) as problem:
        return str(problem)
    said = (done.stderr.strip().splitlines() or [""])[0][:160]
    if "permission" in done.stderr.lower():
        return f"{said}; run it as root, and in a container with the capability SYS_PTRACE (docker --cap-add SYS_PTRACE)"
    return said or "py-spy found no Python frame"


# ------------------------------------------------------------------ what moved
def _state(moves: list[Movement], taken: list[Look]) -> State:
    if any(one.works for one in moves) or _grew(taken):
        return "moves"
    if busy := [one for one in moves if one.busy]:
        return "busy at one place" if any(one.same_stack for one in busy) else "busy"
    return "still" if moves and all(one.still for one in moves) else "between"


def _grew(taken: list[Look]) -> bool:
    first, last = ({one.path: one.size for one in look.logs} for look in (taken[0], taken[-1]))
    return any(size > first.get(path, size) for path, size in last.items())


def _silent_s(look: Look) -> float | None:
    return max(0.0, time.time() - max(one.written_unix_s for one in look.logs)) if look.logs else None


# ------------------------------------------------------------------ the record
def _observation(
    pid: int, attempt: Attempt, moves: list[Movement], last: Look, libraries: list[Library], *, wall_s: float, started: float
) -> Observation:
    found = [one.seen for one in moves]
    progress, tail = _output(last)
    missing = [NotCollected(what=f"stack of {pid}", why=why_no_stack(pid))] if not any(one.stack for one in found) else []
    if not last.logs:
        missing.append(NotCollected(what="progress", why="its output goes to no file that can be read from here, so no step is known"))
    return Observation(
        attempt=ATTEMPT,
        key="",
        trial=attempt.trial,
        exit=Exit(returncode=None, ended_by="nobody"),
        wall_s=round(max(0.0, wall_s), 1),
        started_unix_s=started,
        progress=progress,
        memory=_memory(found),
        processes=found,
        libraries=libraries,
        output_tail=tail,
        settings=_settings(pid, found),
        env_at_exec=environment.kept(_environment(pid)),
        not_collected=missing,
    )


def _output(last: Look) -> tuple[Progress, list[str]]:
    if not last.logs:
        return Progress(), []
    parsers = [living.last_step(one) for one in last.logs]
    best = max(parsers, key=lambda one: one.last_step or -1)
    tail = [line for one in last.logs for line in log.last_lines(log.text(one.path), TAIL_LINES)]
    return Progress(last_step=best.last_step, total_steps=best.total_steps, last_line=best.last_line), tail


def _settings(pid: int, found: list[records.ProcessSeen]) -> list[ProcessSettings]:
    reader = Settings()
    reader.look(0.0, [one.pid for one in found], pid)
    return reader.record({one.pid: one.role for one in found})


def _memory(found: list[records.ProcessSeen]) -> Memory:
    held = [one for seen in found if (one := _held(seen))]
    rss = sum(one.anon_bytes + one.file_bytes + one.shmem_bytes for one in held)
    pss = [one.pss_bytes for one in held]
    return Memory(
        peak_tree_pss_bytes=sum(one or 0 for one in pss) if pss and None not in pss else None,
        peak_main_rss_bytes=held[0].peak_rss_bytes if held else None,
        last_tree_rss_bytes=rss or None,
        peak_tree_rss_bytes=rss or None,
        system_available_bytes=process_memory.system_available(),
        processes=sorted(held, key=lambda one: -one.peak_rss_bytes),
    )


def _held(seen: records.ProcessSeen) -> ProcessMemory | None:
    found = process_memory.details(seen.pid)
    if not found:
        return None
    shares = process_memory.shares(seen.pid)
    return ProcessMemory(
        pid=seen.pid,
        role=seen.role,
        rank=seen.rank,
        peak_rss_bytes=found.get("hwm", 0),
        anon_bytes=found.get("anon", 0),
        file_bytes=found.get("file", 0),
        shmem_bytes=found.get("shmem", 0),
        swap_bytes=found.get("swap", 0),
        pss_bytes=shares.pss if shares else None,
        uss_bytes=shares.uss if shares else None,
        huge_bytes=shares.huge if shares else None,
        minor_faults=found.get("minor_faults", 0),
        major_faults=found.get("major_faults", 0),
        threads=found.get("threads", 0),
        descriptors=found.get("descriptors"),
        descriptor_limit=process_memory.descriptor_limit(seen.pid),
    )


def _environment(pid: int) -> dict[str, str]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).environ()
    return {}


def _read(pid: int, name: str) -> str:
    with contextlib.suppress(OSError):
        return kernel_text(f"/proc/{pid}/{name}")
    return ""


# ------------------------------------------------------------------ judged as if it hung
def _ranking(seen: Observation) -> list[Ranked]:
    """What the rules would say had it been ended as a hang; that it is one is not claimed."""
    hung = dataclasses.replace(seen, exit=Exit(returncode=None, ended_by="idle"), trial=Trial(id=1, cell={}))
    outcome = judge.outcome(hung)
    case = Case(
        known_bad={}, observations=[hung], outcomes={ATTEMPT: outcome}, environments={}, result=no_search(), signature=outcome.signature
    )
    return _only_suspected(ranking.rank(case, ranking.collect(case)))


def _only_suspected(ranked: list[Ranked]) -> list[Ranked]:
    """Nothing was tried: what the first cause has beyond that grade's share goes to the unknown."""
    excess = sum(max(0.0, entry.probability - ranking.CAPS["suspected"]) for entry in ranked if entry.cause != "unknown")
    found = []
    for entry in ranked:
        share = entry.probability + excess if entry.cause == "unknown" else min(entry.probability, ranking.CAPS["suspected"])
        found.append(dataclasses.replace(entry, grade="suspected", probability=round(share, 4)))
    return sorted(found, key=lambda entry: -entry.probability)
