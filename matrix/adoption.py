"""Which complete attempts of a run folder count for this specification and this program, and why the others do not.

An attempt counts when the same question was asked (`Assembly.key`), when every file of the program that the attempt used has the
same content now, and when no edited limit could have changed how it ended.  What does not count is kept.
"""

from __future__ import annotations

import dataclasses
import re
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from matrix import records
from matrix.assembly import Assembly, working_folder
from matrix.evidence.hook_file import hook_records
from matrix.evidence.used_files import CHANGED, present
from matrix.records import Attempt, Observation, UsedFile
from matrix.runner.leftovers import remove_registrations
from matrix.spec.model import Limits

NAME = re.compile(r"(\d{4,})-[0-9a-f]{8}")
BY_TIME = ("startup", "idle", "stall", "starved", "wall")  # how an attempt ends that has met a limit of time
MOST_NAMED = 5


class Refused(Exception):
    """An attempt that does not count; the text says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Adopted:
    """The attempts that count, by number, and sentences about all others."""

    attempts: list[tuple[Attempt, Observation]]
    notes: list[str]


def adopt(assembly: Assembly) -> Adopted:
    """Read what is complete in the run folder; what is not complete is removed.

    An attempt.json that is missing or damaged is written again where the specification still asks the same."""
    complete: list[tuple[Attempt, Observation]] = []
    refused: dict[str, list[str]] = {}
    notes: list[str] = []
    for folder in attempt_folders(assembly.folder):
        try:
            found = _read(folder, assembly, notes)
        except Refused as why:
            refused.setdefault(str(why), []).append(folder.name)
        else:
            complete += [found] if found else []
    written = {name for _, observation in complete for name in observation.files_written}
    counted = []
    for attempt, observation in complete:
        if reason := why_not(attempt, observation, assembly, written):
            refused.setdefault(reason, []).append(attempt.id)
        else:
            counted.append((attempt, observation))
    notes += [f"not used, because {reason}: {_listed(names)}" for reason, names in refused.items()]
    return Adopted(attempts=counted, notes=notes)


def attempt_folders(run: Path) -> list[Path]:
    """Folders named as the tool names them, by number; a copy under another name is nobody's business here."""
    return sorted(path for path in (run / "attempts").glob("*-*") if NAME.fullmatch(path.name) and path.is_dir())


def highest_number(run: Path) -> int:
    return max((int(path.name.partition("-")[0]) for path in attempt_folders(run)), default=0)


def why_not(attempt: Attempt, observation: Observation, assembly: Assembly, written: Collection[str]) -> str:
    """Why an attempt does not count; "": it counts."""
    try:
        same = attempt.key == assembly.key(attempt.trial)
    except ValueError:
        return "their cell is not on the grid any more"
    if not same:
        return "the specification asks something else now (command, environment, cell, evidence), or another version wrote them"
    changed = changed_files(observation, str(working_folder(assembly.spec)), written)
    return changed[0] if changed else limit_that_matters(observation, assembly.spec.limits)


def changed_files(observation: Observation, cwd: str, written: Collection[str] = ()) -> list[str]:
    """Which files of the program are not as they were in an attempt, in words."""
    inputs = [file for file in observation.files if file.kind != "elsewhere" and file.name not in written]
    return [words for file in inputs if (words := _difference(file, cwd))]


def _difference(file: UsedFile, cwd: str) -> str:
    if file.digest == CHANGED:
        return f"{file.name} was changed while they ran"
    now = present(file, cwd)
    if now is None:
        return f"{file.name} is gone"
    return "" if now.digest == file.digest else f"{file.name} was changed since"


# ------------------------------------------------------------------ limits
def limit_that_matters(observation: Observation, now: Limits) -> str:
    """Which edited limit could have changed the end of an attempt; "": none.

    A limit of time matters only to an attempt that met the limit or would meet the new one.  Any other limit is felt by the
    program itself, so it must be the same."""
    then = observation.asked_limits
    for name, field in Limits.model_fields.items():
        before, after = then.get(name, field.default), getattr(now, name)
        if then and before == after:
            continue
        words = f"limits.{field.alias or name} was {_shown(name, before)} and is {_shown(name, after)}"
        if not then or name not in ("wall_s", "startup_s", "idle_s", "stall_s"):
            return words
        if observation.exit.ended_by in BY_TIME:
            return f"{words}, and a limit of time ended them"
        if after is not None and longest_wait_s(observation, name) > after:
            return f"{words}, which they would exceed"
    return ""


def longest_wait_s(observation: Observation, limit: str) -> float:
    """The longest time in an attempt that a limit of time may have counted."""
    progress, wall_s = observation.progress, observation.wall_s
    if limit == "wall_s" or progress.first_step_s is None:
        return wall_s
    if limit == "startup_s":
        return progress.first_step_s
    return max(progress.longest_gap_s or 0.0, progress.first_step_s, wall_s - (progress.last_step_s or 0.0))


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "no limit"
    if name.endswith("_bytes"):
        return f"{value / 2**20:g} MiB"
    return f"{value:g} s" if name.endswith("_s") else f"{value:g}"


# ------------------------------------------------------------------ reading
def _read(folder: Path, assembly: Assembly, notes: list[str]) -> tuple[Attempt, Observation] | None:
    """A complete attempt.  None: it was not complete, and is removed.  Raises Refused."""
    try:
        observation = records.read(Observation, folder / "observation.json")
    except FileNotFoundError:  # its processes may have ended when nobody was left to tidy up
        remove_registrations({record["pid"] for record in hook_records(folder / "hook.jsonl")})
        shutil.rmtree(folder)
        return None
    except (OSError, ValueError) as problem:
        raise Refused("observation.json cannot be read (damaged, or of another version)") from problem
    try:
        attempt = records.read(Attempt, folder / "attempt.json")
    except (OSError, ValueError):
        attempt = _restored(folder, observation, assembly)
        notes.append(f"attempts/{folder.name}/attempt.json was missing or damaged, and was written again from the observation")
    if {attempt.id, observation.attempt} != {folder.name}:
        raise Refused("they are copies of other attempts")
    return attempt, observation


def _restored(folder: Path, observation: Observation, assembly: Assembly) -> Attempt:
    """The attempt as the specification asks for it; its observation says that the question is the same.  Raises Refused."""
    try:
        same = observation.key == assembly.key(observation.trial)
    except ValueError:
        same = False
    if not same:
        raise Refused("attempt.json is missing or damaged, and the specification asks something else now")
    number = int(folder.name.partition("-")[0])
    attempt, _ = assembly.attempt(number, observation.trial, None)
    attempt = dataclasses.replace(attempt, id=folder.name)
    records.write(folder / "attempt.json", attempt)
    return attempt


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


# ------------------------------------------------------------------ while the matrix runs
class Sources:
    """The program's own text in the attempts of one matrix: an edit in between makes two programs of it."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    def edited(self, observation: Observation) -> str:
        """The file that an earlier attempt had with another content; "": none."""
        return next(self._edits(observation), "")

    def _edits(self, observation: Observation) -> Iterator[str]:
        for file in observation.files:
            is_text = file.name.endswith((".py", ".sh")) and file.digest != CHANGED
            if is_text and self._digests.setdefault(file.name, file.digest) != file.digest:
                yield file.name
