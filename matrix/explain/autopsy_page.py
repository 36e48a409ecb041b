"""The autopsy as text for people, and as JSON."""

from __future__ import annotations

import dataclasses
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

from matrix.explain.autopsy import Autopsy, State
from matrix.explain.living import Movement
from matrix.explain.next_time import next_command
from matrix.records import ProcessMemory

WIDTH = 110
GIB, MIB = 1 << 30, 1 << 20
SHOWN_FRAMES, SHOWN_CAUSES = 6, 3
NEAR = 0.9  # of a limit
READINGS: dict[State, tuple[str, str]] = {
    "moves": (
        "it works: a stack changes while it uses the processor or moves data, or its output grows",
        "that it makes progress: a loop that polls moves too",
    ),
    "busy at one place": (
        "it uses the processor, and its Python code is at one place at every look: one long native call, or a spinning lock",
        "which of the two: only a step that comes, or does not, tells",
    ),
    "busy": (
        "it uses the processor; its Python stack was not read twice, so whether it stays at one place is not known",
        "that it works, and that it hangs: a spinning lock uses the processor too",
    ),
    "still": (
        "nothing that was looked at moved: hardly any processor time",  # and what else was looked at
        "that it hangs: it may wait for a slow disk, a download, another rank or machine",
    ),
    "between": ("a little moved: too little to say that it works, too much to say that it is still", "that it hangs, and that it works"),
}


def text(found: Autopsy, where: Path, package: Path | None) -> str:
    return "\n".join(
        [*_head(found), "", *_reading(found), "", *_processes(found), *_limits(found), *_causes(found), "", *_files(found, where, package)]
    )


def to_json(found: Autopsy, where: Path, package: Path | None) -> str:
    proves, not_proves = _readings(found)
    return json.dumps(
        {
            "schema": "matrix.autopsy/1",
            "state": found.state,
            "proves": proves,
            "does_not_prove": not_proves,
            "looks": len(found.looks),
            "seconds": round(found.span_s, 1),
            "silent_s": None if found.silent_s is None else round(found.silent_s, 1),
            "last_step": found.observation.progress.last_step,
            "processes": [_entry(found, one) for one in found.movements],
            "near_limits": list(_near(found)),
            "ranking_if_it_hangs": [{"cause": e.cause, "probability": e.probability, "grade": e.grade} for e in found.ranking],
            "not_collected": [dataclasses.asdict(one) for one in found.observation.not_collected],
            "folder": str(where),
            "package": str(package) if package else None,
        },
        indent=1,
        ensure_ascii=False,
    )  # fmt: skip


def _entry(found: Autopsy, one: Movement) -> dict[str, object]:
    known = {"class": found.classes[one.seen.pid], "cpu_share": round(one.cpu_share, 3), "same_stack": one.same_stack}
    return dataclasses.asdict(one.seen) | known


def _head(found: Autopsy) -> Iterator[str]:
    seen = found.observation
    command = " ".join(found.attempt.argv)
    yield f"pid {seen.processes[0].pid}: {command[:90]}, running for {_span(seen.wall_s)}, {len(seen.processes)} processes"
    yield f"{len(found.looks)} looks in {found.span_s:.0f} s; nothing was ended, and it goes on"


# ------------------------------------------------------------------ what it does
def _readings(found: Autopsy) -> tuple[str, str]:
    """What its state proves and what not; of one that is still only what was looked at."""
    proves, not_proves = READINGS[found.state]
    if found.state != "still":
        return proves, not_proves
    looked = (
        ("no stack that changed", "stacks", all(one.same_stack is not None for one in found.movements)),
        ("next to nothing read or written", "what it reads and writes", all(one.moved_bytes is not None for one in found.movements)),
        ("no output", "its output", bool(found.looks[-1].logs)),
    )
    unknown = [what for _, what, known in looked if not known]
    proves = ", ".join([proves, *(words for words, _, known in looked if known)])
    return proves + (f"; not seen: {', '.join(unknown)}" if unknown else ""), not_proves


def _reading(found: Autopsy) -> Iterator[str]:
    proves, not_proves = _readings(found)
    yield f"READING: {found.state}"
    yield from _wrapped(f"proves: {proves}", "  ", "    ")
    yield from _wrapped(f"does not prove: {not_proves}", "  ", "    ")
    yield from _wrapped(_progress(found), "  ", "    ")
    if found.state != "moves":
        yield from _wrapped(f"What would prove a hang: {_proof(found)}", "  ", "    ")


def _progress(found: Autopsy) -> str:
    progress = found.observation.progress
    if found.silent_s is None:
        return "progress: unknown, its output goes to no file that can be read from here (a terminal, a pipe, another container's file)"
    step = "no step can be read in its output" if progress.last_step is None else f"step {progress.last_step}"
    total = f" of {progress.total_steps}" if progress.total_steps else ""
    return f"progress: {step}{total}; its output was last written {_span(found.silent_s)} ago"


def _proof(found: Autopsy) -> str:
    pid = found.observation.processes[0].pid
    return (
        "no step for ten times the longest gap that a healthy run has between two, with the same stacks all along. "
        f"Look for longer: python -m matrix explain --pid {pid} --looks 10 --every 60; or follow it: python -m matrix watch --pid {pid}"
    )


# ------------------------------------------------------------------ processes
def _processes(found: Autopsy) -> Iterator[str]:
    yield "PROCESSES"
    for one in found.movements:
        yield from _process(found, one)
    yield from (f"  not collected: {gap.what}: {gap.why}" for gap in found.observation.not_collected)


def _process(found: Autopsy, one: Movement) -> Iterator[str]:
    seen = one.seen
    moved = "" if one.moved_bytes is None else f", {one.moved_bytes / 1024:.0f} KiB read and written"
    rank = "" if seen.rank is None else f" rank {seen.rank}"
    stack = {True: ", same stack at every look", False: ", its stack changes", None: ""}[one.same_stack]
    doing = " ".join(filter(None, [seen.state, seen.wchan]))
    used = f"{one.cpu_share:.0%} of a processor, {seen.threads} threads"
    yield f"  {seen.role}{rank} {seen.pid} ({seen.name}): {'runs' if one.works else found.classes[seen.pid]} ({doing}, {used}"
    yield f"      {_held(found, seen.pid)}{moved}{stack})"
    if seen.gil_holder:
        yield f"      the interpreter lock is held by {seen.gil_holder}, which runs no Python code"
    yield from (f"      {frame}" for frame in seen.stack[:SHOWN_FRAMES])


def _held(found: Autopsy, pid: int) -> str:
    held = next((one for one in found.observation.memory.processes if one.pid == pid), None)
    return f"{_own(held) / MIB:.0f} MiB of its own" if held else "memory unknown"


def _own(held: ProcessMemory) -> int:
    return held.uss_bytes if held.uss_bytes is not None else held.anon_bytes


# ------------------------------------------------------------------ limits and causes
def _limits(found: Autopsy) -> Iterator[str]:
    memory = found.observation.memory
    free = memory.system_available_bytes
    if memory.peak_tree_pss_bytes and free is not None:
        yield f"  all together {memory.peak_tree_pss_bytes / GIB:.2f} GiB (PSS); {free / GIB:.1f} GiB are free on the machine"
    yield from (f"  near a limit: {words}" for words in _near(found))


def _near(found: Autopsy) -> Iterator[str]:
    for settings in found.observation.settings:
        for bound in settings.bounds:
            if bound.used is not None and bound.name != "stack" and bound.used >= NEAR * bound.soft:
                yield f"{settings.role} {settings.pid} uses {bound.used} of {bound.soft} ({bound.name})"


def _causes(found: Autopsy) -> Iterator[str]:
    if not found.ranking:
        return
    yield ""
    yield "CAUSES, if it hangs (nothing was tried, so nothing is more than suspected)"
    for entry in found.ranking[:SHOWN_CAUSES]:
        yield f"  {entry.probability:6.1%}  {entry.cause} ({entry.grade}){f': {entry.title}' if entry.title else ''}"
        for fact in entry.supports[:2]:
            yield from _wrapped(f"for: {fact.fact}", " " * 10, " " * 12)


def _files(found: Autopsy, where: Path, package: Path | None) -> Iterator[str]:
    yield f"folder (private): {where}"
    yield f"package (secrets taken out): {package}"
    logs = [str(one.path) for one in found.looks[-1].logs]
    yield f"NEXT: {next_command(logs, found.attempt.argv)}"


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _wrapped(words: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(words, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False)
