"""A run folder as far as it can be read: unfinished, damaged and foreign files are listed, never fatal."""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from matrix import records

T = TypeVar("T")
LARGEST_RECORD = 64 * 2**20  # bytes; a record file beyond this is not one of ours


@dataclasses.dataclass(frozen=True, kw_only=True)
class AttemptFolder:
    """One folder below attempts/.  observation None: it is running, was interrupted, or cannot be read."""

    path: Path
    attempt: records.Attempt | None
    observation: records.Observation | None
    files: frozenset[str] = frozenset()  # plain files in it, links left out

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def trial(self) -> records.Trial | None:
        return self.observation.trial if self.observation else self.attempt.trial if self.attempt else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunFolder:
    path: Path
    plan: records.Plan | None
    verdict: records.Verdict | None
    attempts: list[AttemptFolder]  # by number
    problems: list[str]  # sentences: what could not be read, and why

    def href(self, *parts: str) -> str | None:
        """A relative link to a file in this folder; None when there is no such file, or when it lies outside."""
        try:
            target = self.path.joinpath(*parts)
            inside = target.resolve().is_relative_to(self.path.resolve())
            return quote(target.relative_to(self.path).as_posix()) if inside and target.is_file() else None
        except (OSError, ValueError, RuntimeError):  # too long, a null byte, a loop of links
            return None

    def attempt_href(self, attempt: str, file: str) -> str | None:
        known = self._by_id.get(attempt)
        return quote(f"attempts/{attempt}/{file}") if known and file in known.files else self.href("attempts", attempt, file)

    @functools.cached_property
    def _by_id(self) -> dict[str, AttemptFolder]:
        return {folder.id: folder for folder in self.attempts}

    @property
    def observed(self) -> list[tuple[AttemptFolder, records.Observation]]:
        """The complete attempts."""
        return [(folder, folder.observation) for folder in self.attempts if folder.observation]


def load(path: Path) -> RunFolder:
    """Read what is there.  Raises FileNotFoundError when the folder itself does not exist."""
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder; a report needs a run folder, such as runs/NAME/STAMP")
    problems: list[str] = []
    plan = _read(records.Plan, path / "plan.json", path, problems)
    verdict = _read(records.Verdict, path / "verdict.json", path, problems)
    attempts = _counted(_attempts(path, problems), verdict, problems)
    return RunFolder(path=path, plan=plan, verdict=verdict, attempts=attempts, problems=problems)


def _counted(attempts: list[AttemptFolder], verdict: records.Verdict | None, problems: list[str]) -> list[AttemptFolder]:
    """What the verdict knows nothing of is not counted: after an edit of the program its old attempts are evidence of another one."""
    known = verdict.outcomes if verdict else {}
    strange = [folder.id for folder in attempts if known and folder.observation and folder.id not in known]
    if strange:
        problems.append(
            f"{len(strange)} complete attempts ({', '.join(strange[:5])}{', …' if len(strange) > 5 else ''}) are no part of the verdict: "
            "the program or the specification was edited since, or the run goes on; nothing in them is counted"
        )
    return [folder for folder in attempts if folder.id not in strange]


def _attempts(run: Path, problems: list[str]) -> list[AttemptFolder]:
    try:
        folders = sorted(folder for folder in (run / "attempts").iterdir() if folder.is_dir())
    except OSError as error:
        problems.append(f"attempts/ was not read: {_reason(error)}")
        return []
    return [_attempt(run, folder, problems) for folder in folders]


def _attempt(run: Path, folder: Path, problems: list[str]) -> AttemptFolder:
    attempt = _read(records.Attempt, folder / "attempt.json", run, problems)
    complete = (folder / "observation.json").exists()
    if not complete:
        problems.append(
            f"attempts/{folder.name}/observation.json is not there: the attempt is running, or was interrupted; nothing in it is counted"
        )
    observation = _read(records.Observation, folder / "observation.json", run, problems) if complete else None
    return AttemptFolder(path=folder, attempt=attempt, observation=observation, files=_files(folder))


def _files(folder: Path) -> frozenset[str]:
    """Their names in one look: thousands of links are made, and resolving each path takes seconds."""
    if folder.is_symlink():
        return frozenset()
    with os.scandir(folder) as entries:
        return frozenset(entry.name for entry in entries if entry.is_file(follow_symlinks=False))


def _read(kind: type[T], path: Path, run: Path, problems: list[str]) -> T | None:
    name = path.relative_to(run).as_posix()
    try:
        if path.stat().st_size > LARGEST_RECORD:
            raise ValueError(f"it is larger than {LARGEST_RECORD // 2**20} MiB")
        text = records.read_plain(path)
        record = records.from_json(kind, text)
    except (OSError, ValueError, RecursionError) as error:
        problems.append(f"{name} was not read: {_reason(error)}{_other_version(path, kind)}")
        return None
    if f'"schema": "{getattr(kind, "schema", None)}"'.encode() in text:
        return record
    if note := _other_version(path, kind):
        problems.append(f"{name} was read as far as possible{note}")
    return record


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return " ".join(str(error).split())[:240]


def _other_version(path: Path, kind: type[object]) -> str:
    """A note when the file says that it is of another version; "" when it is ours or says nothing."""
    ours = getattr(kind, "schema", None)
    try:
        found = json.loads(records.read_plain(path)).get("schema", ours)
    except (OSError, ValueError, RecursionError, AttributeError):
        return ""
    return "" if found == ours else f"; it is of version {str(found)[:40]}, this program writes {ours}"
