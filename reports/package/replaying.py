"""What `reproduce.py` needs to run two recorded attempts somewhere else: commands without the places of this machine, and the program."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matrix.records import Attempt, Death, Observation, UsedFile
from reports.ending import ending
from reports.folder import AttemptFolder, RunFolder
from reports.package.choose import Chosen
from reports.package.kit.monitor import ANY_STEP, exceptions_in, last_step, output_of

MOST_TRIES = 20
MOST_FILES = 20_000  # of a folder of data that are counted
LARGEST_INPUT = 256 * 1024  # bytes of a text file of the program's settings that is packed with the program
LARGEST_LIBRARY = 20 << 20
TEXT_INPUTS = (".yaml", ".yml", ".json", ".toml", ".cfg", ".ini", ".conf", ".txt")
RLIMITS = {"nofile": "RLIMIT_NOFILE", "stack": "RLIMIT_STACK", "core": "RLIMIT_CORE", "cpu_time": "RLIMIT_CPU"}
FOLDERS_OF_THE_SYSTEM = ("/usr/", "/bin/", "/lib/", "/etc/", "/proc/", "/sys/", "/dev/", "/opt/")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*$")
_NATIVE_LIBRARY = re.compile(r"\.(?:so(?:\.\d+)*|pyd|dylib)$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Input:
    """A file or folder that the program reads and that is not packed."""

    size: int  # bytes; of a folder, of all files in it
    digest: str = ""  # SHA-256 in 32 digits; "": not known, or only its ends were read
    why: str = "data of the program are not packed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Program:
    """The program's own files by their name in the package, and its inputs that are not packed, by path."""

    files: dict[str, Path]
    inputs: dict[str, Input]
    elsewhere: list[str] = dataclasses.field(default_factory=list)  # files outside of the program that it read as well


def written_by(folder: RunFolder) -> set[str]:
    """Names of files that complete attempts wrote: results of the program, no inputs."""
    return {name for _, seen in folder.observed for name in seen.files_written}


def used_by(folder: RunFolder) -> dict[str, UsedFile]:
    """Files that complete attempts loaded and opened, by name; without those that any of them wrote."""
    written = written_by(folder)
    return {file.name: file for _, seen in folder.observed for file in seen.files if file.name not in written}


def program_of(attempt: Attempt, own_files: Sequence[Path], used: dict[str, UsedFile], written: set[str]) -> Program:
    """Files below the working folder keep their place in it; others go to `_outside/`."""
    cwd = Path(attempt.cwd).resolve()
    files = {place(path, cwd): path for path in own_files if path.is_file()}
    inputs: dict[str, Input] = {}
    for name, file in used.items():
        path = cwd / name
        if file.kind != "elsewhere" and (not _is_file(path) or place(path, cwd) not in files):
            if _is_file(path) and _is_packed(path, file.kind):
                files[place(path, cwd)] = path
            else:
                inputs[name] = _input_of(path, file)
    for word in _words(attempt):
        path = cwd / word
        known = {word, os.path.normpath(word), str(path)} & {*inputs, *written}
        if known or _is_own_output(path, attempt) or not os.path.lexists(path):
            continue
        if path.is_dir():
            if folder_size := _size_of(path):
                inputs.setdefault(word, Input(size=folder_size))
        elif _is_file(path) and place(path, cwd) not in files:
            if _is_packed(path, "data"):
                files[place(path, cwd)] = path
            else:
                inputs[word] = Input(size=path.stat().st_size)
    elsewhere = sorted(name for name, file in used.items() if file.kind == "elsewhere")
    return Program(files=dict(sorted(files.items())), inputs=dict(sorted(inputs.items())), elsewhere=elsewhere)


def is_native_library(name: str) -> bool:
    return bool(_NATIVE_LIBRARY.search(name))


def _is_packed(path: Path, kind: str) -> bool:
    """Code, settings and small native libraries are packed; data are not."""
    size = path.stat().st_size
    if is_native_library(path.name):
        return size <= LARGEST_LIBRARY
    return kind == "code" or (path.suffix in TEXT_INPUTS and size <= LARGEST_INPUT)


def _input_of(path: Path, file: UsedFile) -> Input:
    if file.kind == "code":
        why = "the file is not there any more" if not _is_file(path) else "it is too large"
        return Input(size=file.size, digest=file.digest, why=why)
    return Input(size=file.size, digest=file.digest)


def _words(attempt: Attempt) -> Iterator[str]:
    """Words of the command that may name files: no program of the system is one."""
    parts = (part for argument in attempt.argv[1:] for part in (argument, argument.partition("=")[2], *argument.split(",")))
    yield from (part for part in dict.fromkeys(parts) if part and len(part) < 4096 and not part.startswith(FOLDERS_OF_THE_SYSTEM))


def _is_own_output(path: Path, attempt: Attempt) -> bool:
    return f"/attempts/{attempt.id}" in str(path) or path.resolve() == Path(attempt.cwd).resolve()


def _size_of(folder: Path) -> int:
    """Bytes of what is in a folder of data (of its first files, where they are many); 0 for a folder that holds modules of the program."""
    found = [path for path in itertools.islice(folder.rglob("*"), MOST_FILES) if _is_file(path)]
    return 0 if any(path.suffix == ".py" for path in found) else sum(path.stat().st_size for path in found)


def place(path: Path, cwd: Path) -> str:
    """Where a file of the program lies in the package."""
    path = path.resolve()
    return f"program/{path.relative_to(cwd).as_posix()}" if path.is_relative_to(cwd) else f"program/_outside{path.as_posix()}"


def python_path(program: Program) -> list[str]:
    """Folders from which the modules are imported that lay outside of the program's folder."""
    roots = []
    for name in program.files:
        path = Path(name)
        if name.startswith("program/_outside/") and path.suffix == ".py":
            folder = path.parent
            while f"{folder}/__init__.py" in program.files:
                folder = folder.parent
            roots.append("{program}/" + folder.relative_to("program").as_posix())
    return list(dict.fromkeys(roots))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # too long a name, a null byte
        return False


def recipe(folder: RunFolder, chosen: Chosen, program: Program, modules: dict[str, str]) -> dict[str, Any]:
    """replay.json, for the failing and the nearest surviving cell; `modules`: the distribution of each installed module."""
    both = [(name, found) for name, found in (("failing", chosen.failing), ("surviving", chosen.surviving)) if found]
    cells = {name: _cell(found, folder, program) for name, found in both if found.attempt and found.observation}
    loaded = {name for _, found in both if found.observation for name in found.observation.packages}
    named = sorted(name for name in loaded if name in modules or not name.startswith("_"))  # _virtualenv belongs to an environment
    inputs = {name: {"size": entry.size, "digest": entry.digest} for name, entry in program.inputs.items()}
    return {
        "schema": "matrix.replay/1",
        "cells": cells,
        "inputs_not_packed": inputs,
        "packages": {name: modules.get(name, "") for name in named},
        "python_path": python_path(program),
    }


def _cell(found: AttemptFolder, folder: RunFolder, program: Program) -> dict[str, Any]:
    attempt, seen = found.attempt, found.observation
    assert attempt is not None and seen is not None  # recipe() passes no others
    exit_ = seen.exit
    slow = exit_.ended_by == "wall" and ending(seen, folder.verdict).kind == "died"  # with more time it might come to its end
    first, output = _first_death(seen), output_of(found.path)
    pattern = step_pattern(seen, output)
    environment = {**_inherited(seen), **attempt.env}
    return {
        "attempt": attempt.id,
        "cell": attempt.trial.cell,
        "argv": [_argument(word, attempt, folder, program, first=not number) for number, word in enumerate(attempt.argv)],
        "env": {name: _argument(value, attempt, folder, program, first=False) for name, value in environment.items()},
        "cwd": "{program}",
        "memory_limit_bytes": attempt.memory_limit_bytes,
        "rlimits": _rlimits(seen),
        "cpus": ",".join(map(str, attempt.cpus)) if attempt.cpus else "",
        "wall_s": math.ceil(seen.wall_s) if slow else max(60.0, math.ceil(3 * seen.wall_s)),
        "idle_s": _idle_s(seen),
        "tries": _tries(folder),
        "step_pattern": pattern,
        "ended": {
            "returncode": exit_.returncode,
            "signal": exit_.signal,
            "ended_by": exit_.ended_by,
            "slow": slow,
            "memory": bool(seen.memory.oom_kills) or exit_.ended_by == "memory_watchdog",
            "last_step": last_step(output, pattern),
            "process": first.role if first else "main",
            "process_end": _end_of(first),
            "exceptions": exceptions_in(output),
        },
    }


def _inherited(seen: Observation) -> dict[str, str]:
    """Variables that runtimes read, from the shell of the run; paths and Python's own are those of the place of the replay."""
    return {
        name: value for name, value in seen.env_at_exec.items() if "/" not in value and not name.startswith(("PYTHON", "LD_", "MATRIX_"))
    }


def _rlimits(seen: Observation) -> dict[str, int]:
    """Limits of the main process by their name in the kernel; cores are not wanted."""
    held = {RLIMITS.get(limit.name, limit.name): limit.asked if limit.had is None else limit.had for limit in seen.limits}
    return {name: value for name, value in held.items() if name.startswith("RLIMIT_") and name != "RLIMIT_CORE"}


def _first_death(seen: Observation) -> Death | None:
    return next((death for death in seen.deaths if death.part == "initiating"), None)


def _end_of(death: Death | None) -> str | None:
    if death is None:
        return None
    return death.signal or (None if death.status is None else f"exit {death.status}")


def step_pattern(seen: Observation, output: str) -> str:
    """A regular expression that finds the last step in the words of this program, or that of the usual forms."""
    last = seen.progress.last_step
    number = re.compile(rf"(?P<before>[A-Za-z_:=\[(|,\s\d-]{{1,12}})(?<![\d.]){last}(?![\d.]*\d)(?P<after>[/\]:]?)")
    for line in [seen.progress.last_line, *reversed(seen.output_tail)] if last is not None else []:
        for found in number.finditer(line):
            before = re.sub(r"\d+", r"\\d+", re.sub(r"(?:\\ |\\\t)+", r"\\s+", re.escape(found["before"].lstrip())))
            pattern = before + r"(\d+)" + re.escape(found["after"])
            if before and last_step(output, pattern) == last:
                return pattern
    return ANY_STEP


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
