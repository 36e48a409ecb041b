"""What `reproduce.py` needs to run two recorded attempts somewhere else: commands without the places of this machine, and the program."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matrix.records import Attempt, Observation
from reports.ending import ending
from reports.folder import AttemptFolder, RunFolder
from reports.package.choose import Chosen

MOST_TRIES = 20
LARGEST_INPUT = 256 * 1024  # bytes of a text file named on the command line that is packed with the program
TEXT_INPUTS = (".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".conf", ".txt")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """The program's own files by their name in the package, and inputs that are not packed: name and bytes."""

    files: dict[str, Path]
    inputs: dict[str, int]


def program_of(attempt: Attempt, own_files: Sequence[Path]) -> Program:
    """Files below the working folder keep their place in it; others go to `_outside/`."""
    cwd = Path(attempt.cwd).resolve()
    files, inputs = {place(path, cwd): path for path in own_files if path.is_file()}, {}
    for word in dict.fromkeys(part for argument in attempt.argv[1:] for part in (argument, argument.partition("=")[2]) if part):
        path = cwd / word
        if not _is_file(path) or path.resolve() in files.values() or os.access(path, os.X_OK):
            continue
        size = path.stat().st_size
        if path.suffix in TEXT_INPUTS and size <= LARGEST_INPUT:
            files[place(path.resolve(), cwd)] = path
        else:
            inputs[word] = size
    return Program(files=dict(sorted(files.items())), inputs=inputs)


def place(path: Path, cwd: Path) -> str:
    """Where a file of the program lies in the package."""
    path = path.resolve()
    return f"program/{path.relative_to(cwd).as_posix()}" if path.is_relative_to(cwd) else f"program/_outside/{path.name}"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long a name, a null byte
        return False


def recipe(folder: RunFolder, chosen: Chosen, program: Program) -> dict[str, Any]:
    """replay.json, for the failing and the nearest surviving cell."""
    both = (("failing", chosen.failing), ("surviving", chosen.surviving))
    cells = {name: _cell(found, folder, program) for name, found in both if found and found.attempt and found.observation}
    return {"schema": "matrix.replay/1", "cells": cells, "inputs_not_packed": program.inputs}


def _cell(found: AttemptFolder, folder: RunFolder, program: Program) -> dict[str, Any]:
    attempt, seen = found.attempt, found.observation
    assert attempt is not None and seen is not None  # recipe() passes no others
    exit_ = seen.exit
    slow = exit_.ended_by == "wall" and ending(seen, folder.verdict).kind == "died"  # with more time it might come to its end
    return {
        "attempt": attempt.id,
        "cell": attempt.trial.cell,
        "argv": [_argument(word, attempt, folder, program, first=not number) for number, word in enumerate(attempt.argv)],
        "env": {name: _argument(value, attempt, folder, program, first=False) for name, value in attempt.env.items()},
        "cwd": "{program}",
        "memory_limit_bytes": attempt.memory_limit_bytes,
        "cpus": ",".join(map(str, attempt.cpus)) if attempt.cpus else "",
        "wall_s": math.ceil(seen.wall_s) if slow else max(60.0, math.ceil(3 * seen.wall_s)),
        "idle_s": _idle_s(seen),
        "tries": _tries(folder),
        "ended": {
            "returncode": exit_.returncode,
            "signal": exit_.signal,
            "ended_by": exit_.ended_by,
            "slow": slow,
            "memory": bool(seen.memory.oom_kills) or exit_.ended_by == "memory_watchdog",
        },
        "last_step": seen.progress.last_step,
    }


def _argument(word: str, attempt: Attempt, folder: RunFolder, program: Program, *, first: bool) -> str:
    if first and _PYTHON.search(word):
        return "{python}"
    for name, path in program.files.items():
        if "_outside/" in name:
            word = word.replace(str(path), "{program}/" + name.removeprefix("program/"))
    own = re.compile(r"(?:[^=:,]*/)?attempts/" + re.escape(attempt.id) + r"(?=$|[/=:,])")
    word = own.sub("{attempt_dir}", word.replace(str(folder.path.resolve() / "attempts" / attempt.id), "{attempt_dir}"))
    return re.sub(re.escape(attempt.cwd.rstrip("/")) + r"(?=$|/)", "{program}", word) if attempt.cwd != "/" else word


def _idle_s(seen: Observation) -> float | None:
    """How long it was silent before it was ended as a hang; None: it was not."""
    if seen.exit.ended_by not in ("startup", "idle", "stall"):
        return None
    return max(5.0, math.ceil(seen.wall_s - (seen.progress.last_step_s or 0.0)))


def _tries(folder: RunFolder) -> int:
    """Runs that meet the failure with 95 % chance at the rate that the verdict gives."""
    rate = folder.verdict.crash_rate if folder.verdict else None
    if rate is None or rate.per == "step" or not 0 < rate.median < 1:
        return 5
    return max(1, min(MOST_TRIES, math.ceil(math.log(0.05) / math.log(1 - rate.median))))
