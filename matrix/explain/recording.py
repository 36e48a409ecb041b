"""A run folder whose recorder was ended before it could write a verdict: what it had on disk by then.

`watch` writes the output, samples of memory and its warnings as they come, and the verdict at the end; a SIGKILL of it (the OOM killer's,
a scheduler's after its grace) leaves the former.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from matrix import records
from matrix.evidence import memory_curve
from matrix.evidence.digits import whole
from matrix.evidence.environment import END, read_hook
from matrix.evidence.processes import hook_folder
from matrix.explain import recognise, sources
from matrix.explain.part import Part, Piece, joined
from matrix.explain.sources import Unreadable
from matrix.records import Observation

LOGS = ("stdout.log", "stderr.log", "stacks.txt")
MOST_WARNINGS = 6
MIB = 1 << 20
NOT_HOW = "how it ended: the recorder was gone by then, or went with it"


def is_one(path: Path) -> bool:
    with contextlib.suppress(OSError):  # a name that is too long
        return (path / "attempts").is_dir() or (path / "attempt.json").is_file()
    return False


def read(folder: Path) -> Part:
    """Raises Unreadable when there is a verdict, which says more, or when several runs are in it."""
    attempts = [folder] if (folder / "attempt.json").is_file() else sorted((folder / "attempts").glob("*/"))
    if len(attempts) != 1:
        hint = f"python -m matrix report {folder} shows what they say together; or give one of {folder / 'attempts'}"
        raise Unreadable(f"{folder}: holds {len(attempts)} runs; {hint}")
    (attempt,) = attempts
    if _is_complete(attempt):
        where = folder if folder != attempt else attempt.parent.parent
        raise Unreadable(f"{folder}: its recorder saw the end and judged it: python -m matrix report {where}")
    main = _main(attempt / "memory.csv")
    parts = [Part(kinds=frozenset(("recording",)), main=main, pieces=[*_samples(attempt), *_hook(attempt, main), *_warnings(attempt)])]
    return joined([*parts, *_logs(attempt)])


def _is_complete(attempt: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        return records.read(Observation, attempt / "observation.json").exit.ended_by != "nobody"
    return False


def _logs(attempt: Path) -> Iterator[Part]:
    """Of those that say anything that is known; the others need no complaint, for nobody named them."""
    names = [str(attempt / name) for name in LOGS if (attempt / name).is_file() and (attempt / name).stat().st_size]
    with sources.opened(tuple(names)) as opened:
        for source in opened:
            with contextlib.suppress(Unreadable):
                yield recognise.read(source)


def _main(path: Path) -> int | None:
    """Its pid, from the rows of its memory."""
    with contextlib.suppress(OSError), path.open(encoding="utf-8", errors="replace") as rows:
        for row in rows:
            fields = row.split(",")
            if len(fields) > 3 and fields[3] == "main" and fields[2].isdecimal():
                return whole(fields[2])
    return None


def _samples(attempt: Path) -> Iterator[Piece]:
    path = attempt / "memory.csv"
    series = None
    with contextlib.suppress(OSError):
        series = memory_curve.read(path)
    if series is None:
        yield Piece(
            where=str(attempt),
            read="the recorder wrote no sample, so it was ended within the first second or so",
            proves="nothing about the program",
            not_proves=NOT_HOW,
            grade="suspected",
        )
        return
    step = next((step for step in reversed(series.steps) if step is not None), None)
    at = f", at step {step:,}" if step is not None else ""
    whose = "charged to its group, without file cache" if series.kind == "group" else "private to its processes"
    now, most = (f"{value / MIB:,.0f} MiB" for value in (series.values[-1], max(series.values)))
    yield Piece(
        where=str(path),
        read=f"last sample {series.times[-1]:,.0f} s after the start{at}: {now} {whose}; most: {most}",
        proves="it still ran then, with that much memory",
        not_proves=f"{NOT_HOW}, nor what its memory did in the seconds after: of a long run one sample in some seconds is written",
        grade="supported",
    )


def _hook(attempt: Path, main: int | None) -> Iterator[Piece]:
    """Whether the main process was on its way out by itself, or is there still."""
    path = attempt / "hook.jsonl"
    if any(call.pid == main and call.call == END for call in read_hook(path, 0.0).exit_calls):
        yield Piece(
            where=str(path),
            read="the main process came to the end of the interpreter",
            proves="it was not killed before: it ended by itself, well or with an exception",
            not_proves="its exit status",
            grade="supported",
        )
    elif main and hook_folder(main) == attempt.resolve():
        yield Piece(
            where=f"pid {main}",
            read="the program still runs: only its recorder is gone",
            proves="it did not die",
            not_proves=f"that it makes progress: python -m matrix explain --pid {main} looks at it, watch --pid {main} records on",
            grade="supported",
        )


def _warnings(attempt: Path) -> Iterator[Piece]:
    """The last ones: each was said when it was true."""
    path = attempt.parent.parent / "watch.log"
    said: list[str] = []
    with contextlib.suppress(OSError):
        said = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if "] WARNING: " in line]
    for line in said[-MOST_WARNINGS:]:
        yield Piece(
            where=str(path),
            read=line,
            proves="that it was so when it was said",
            not_proves="that it ended because of it",
            grade="suspected",
        )
