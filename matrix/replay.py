"""Run one recorded attempt again, in the same isolation, and say whether it ends alike.  Nothing of the run folder's evidence is touched:
a replay has a folder of its own below replays/."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from matrix import records
from matrix.adoption import changed_files
from matrix.assembly import Assembly
from matrix.diagnosis import judge
from matrix.executors.local import LocalPool, clean_up_after_the_dead
from matrix.folder import NoSuchRun
from matrix.records import Attempt, Observation, Outcome
from matrix.runner.attempt import Job
from matrix.spec import Spec, load_spec


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replayed:
    """How it ended then and now."""

    then: Outcome
    now: Outcome
    folder: Path
    notes: list[str]  # what may make it end otherwise

    @property
    def alike(self) -> bool:
        return (self.then.kind, self.then.signature) == (self.now.kind, self.now.signature)

    def lines(self) -> list[str]:
        verdict = "it ended alike" if self.alike else "it did not end alike"
        return [
            *(f"note: {note}" for note in self.notes),
            f"then: {said(self.then)}",
            f"now:  {said(self.now)}",
            f"{verdict}; {self.folder}",
        ]


def said(outcome: Outcome) -> str:
    step = f" at step {outcome.steps}" if outcome.steps is not None else ""
    why = outcome.signature or outcome.reason
    return f"{outcome.kind}{step} after {outcome.seconds:.1f} s" + (f" ({why})" if why else "")


def replay(run: Path, wanted: str) -> Replayed:
    """`wanted`: an attempt's number or name, or the beginning of its name.

    Raises NoSuchRun when there is no such complete attempt, or when its working folder is gone; SpecError when the specification
    in the run folder cannot be read; RunnerError when the surroundings fail."""
    attempt, before = find(run, wanted)
    if not Path(attempt.cwd).is_dir():
        raise NoSuchRun(f"the working folder of {attempt.id}, {attempt.cwd}, is not there any more; put the program back to replay it")
    assembly = Assembly(in_place(load_spec(run / "spec.yaml"), attempt.cwd), run)
    folder = _fresh_folder(run, attempt.id)
    notes = list(_notes(assembly, attempt, before))
    clean_up_after_the_dead()
    with LocalPool(1) as pool:
        pool.submit(_job(assembly, attempt, run, folder))
        after = pool.wait()
    assert after is not None  # without a time limit wait() gives an observation or raises
    return Replayed(then=judge.outcome(before), now=judge.outcome(after), folder=folder, notes=notes)


def find(run: Path, wanted: str) -> tuple[Attempt, Observation]:
    """The complete attempt that is meant.  Raises NoSuchRun when there is none, or more than one."""
    names = sorted(path.parent.name for path in (run / "attempts").glob("*/observation.json"))
    number = f"{int(wanted):04d}-" if wanted.isascii() and wanted.isdecimal() else None
    found = [name for name in names if name.startswith(number or wanted)] if wanted else []
    if len(found) != 1:
        listed = ", ".join((found or names)[:8]) or "none"
        what = "is not a complete attempt" if not found else f"may be any of {len(found)} attempts"
        raise NoSuchRun(
            f"{wanted!r} {what} of {run}; give the number or the name of one: {listed}{', …' if len(found or names) > 8 else ''}"
        )
    where = run / "attempts" / found[0]
    try:
        return records.read(Attempt, where / "attempt.json"), records.read(Observation, where / "observation.json")
    except (OSError, ValueError) as problem:
        raise NoSuchRun(f"{where} cannot be read: {' '.join(str(problem).split())[:200]}; choose another attempt") from problem


def _fresh_folder(run: Path, name: str) -> Path:
    number = 1
    while (folder := run.resolve() / "replays" / f"{name}-{number:02d}").exists():
        number += 1
    return folder


def _job(assembly: Assembly, attempt: Attempt, run: Path, folder: Path) -> Job:
    """The recorded command with the new folder in place of the old one, under the specification's limits."""
    moved = dataclasses.replace(
        attempt,
        id=folder.name,
        argv=[_moved(word, attempt.id, run, folder) for word in attempt.argv],
        env={name: _moved(value, attempt.id, run, folder) for name, value in attempt.env.items()},
    )
    holders = {"attempt_dir": str(folder), "attempt": attempt.id.partition("-")[0], "port": "", "cpu_list": "", "gpu": ""}
    return dataclasses.replace(assembly.job(moved, holders, stacks=True), folder=folder)


def _moved(word: str, name: str, run: Path, folder: Path) -> str:
    """The run folder may have been moved since, so its old place is found by its form."""
    old = re.compile(r"(^|(?<=[=:,]))(?:[^=:,]*/)?attempts/" + re.escape(name) + r"(?=$|[/=:,])")
    return old.sub(lambda _: str(folder), word.replace(str(run.resolve() / "attempts" / name), str(folder)))


def _notes(assembly: Assembly, attempt: Attempt, before: Observation) -> Iterator[str]:
    changed = changed_files(before, attempt.cwd, before.files_written)
    if changed or assembly.program != attempt.program:
        named = f" ({', '.join(changed[:5])})" if changed else ""
        yield f"the program was edited since{named}; this replays it as it is now"
    if not attempt.trial.watched:
        yield "this attempt went without instruments, and so does its replay"


def in_place(spec: Spec, cwd: str) -> Spec:
    """The specification lies in the run folder now; its program does not."""
    return spec.model_copy(update={"run": spec.run.model_copy(update={"cwd": cwd})})
