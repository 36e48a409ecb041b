"""The run folder of an autopsy: one attempt, so that `report` and `package` read it like any other."""

from __future__ import annotations

import os
from pathlib import Path

from matrix import folder as folders
from matrix import records
from matrix.evidence import log, machine
from matrix.explain.autopsy import ATTEMPT, STILL_RUNS, Autopsy
from matrix.explain.living import Look
from matrix.records import Outcome, Plan, Ranked, Verdict

LOG_BYTES = 1 << 20  # of the end of its output go into the folder


def must_be_writable() -> None:
    """To be asked before minutes are spent on looks.  Raises FolderError."""
    where = folders.RUNS if folders.RUNS.exists() else Path()
    if not os.access(where, os.W_OK):
        raise folders.FolderError(
            f"an autopsy writes a run folder, and {where.absolute()} cannot be written to; run from a folder that can"
        )


def write(found: Autopsy) -> Path:
    """A run folder with one attempt.  Raises FolderError and OSError."""
    name = f"autopsy-{Path(found.attempt.argv[0]).name}"
    where = folders.create(name)
    attempt = where / "attempts" / ATTEMPT
    attempt.mkdir(mode=0o700)
    for file, text in _texts(found).items():
        records.write_text(attempt / file, text)
    records.write(attempt / "attempt.json", found.attempt)
    records.write(where / "plan.json", _plan(found, name), mode=records.PRIVATE)
    records.write(where / "verdict.json", _verdict(found, name))
    records.write(attempt / "observation.json", found.observation)
    return where


def _texts(found: Autopsy) -> dict[str, str]:
    stacks = [line for look in found.looks for line in _stacks_of(look)]
    states = [f"# pid {pid}\n" + "\n".join(lines) for pid, lines in found.threads.items()]
    maps = [f"# pid {pid} seen: sampled\n{text}" for pid, text in sorted(found.maps.items())]
    texts = {"stacks.txt": "\n".join(stacks) + "\n", "threads.txt": "\n".join(states) + "\n", "maps.txt": "\n".join(maps)}
    for name, one in zip(("stdout.log", "stderr.log"), found.looks[-1].logs, strict=False):
        texts[name] = log.text(one.path)[-LOG_BYTES:]
    return texts


def _stacks_of(look: Look) -> list[str]:
    lines = [f"# look after {look.at_s:.1f} s"]
    for seen in look.processes:
        used = f"{seen.cpu_delta_s:.2f} s CPU in {seen.window_s:.1f} s"
        lines += [f"pid {seen.pid} ({seen.role}, {seen.name}) {seen.state} {seen.wchan} {used}", *(f"  {frame}" for frame in seen.stack)]
    return [*lines, ""]


def _plan(found: Autopsy, name: str) -> Plan:
    notice = "The job was looked at from outside while it ran; it was not started here, and nothing of it was ended."
    return Plan(
        name=name, command=found.attempt.argv, axes=[], known_bad={}, strategy="none", jobs=1, machine=machine.here(), notices=[notice]
    )


def _verdict(found: Autopsy, name: str) -> Verdict:
    unknown = Ranked(cause="unknown", probability=1.0, grade="suspected", summary="It still runs, and nothing was tried.")
    return Verdict(
        name=name,
        complete=True,
        status="inconclusive",
        status_text=f"Inconclusive: it still runs. In {found.span_s:.0f} s it was: {found.state}.",
        ranking=found.ranking or [unknown],
        outcomes={ATTEMPT: Outcome(kind="censored", steps=found.observation.progress.last_step, reason=STILL_RUNS)},
    )
