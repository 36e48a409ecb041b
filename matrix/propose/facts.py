"""What a run is known to have shown, whoever saw it: a log that was kept, or a run that was watched."""

from __future__ import annotations

import dataclasses
import re

from matrix.diagnosis.judge import signature
from matrix.evidence.runtimes import duplicates
from matrix.records import Message, MessageKind, Observation

NO_THREADS = re.compile(r"thread creation failed|resource temporarily unavailable|can't start new thread", re.IGNORECASE)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Facts:
    """Of one run.  None and empty: not known."""

    source: str = ""  # the log's path, as the specification is to name it; "": there is no file
    died: bool | None = None
    signal: str | None = None  # "SIGABRT": of the process that died first
    error: str | None = None  # type of the exception that ended it
    words: tuple[str, ...] = ()  # lines whose words have one meaning, whoever prints them: "Killed", "OMP: Error #15"
    error_message: str = ""  # what that exception says
    messages: tuple[tuple[MessageKind, str], ...] = ()  # those lines with the kind of their words
    last_lines: tuple[str, ...] = ()
    ended_well: bool = False  # it came to its end, or says so
    last_step: int | None = None
    total_steps: int | None = None  # what the program said it would do
    epoch: int | None = None  # the last one that was named
    steps_per_s: float | None = None
    seconds: float | None = None  # from its start to its end
    startup_s: float | None = None  # to the first step
    longest_gap_s: float | None = None  # between two steps
    steps_seen: str = ""  # a line with a step that the tool understands by itself
    progress: str | None = None  # regular expression; None: none is needed, or none was found
    progress_lines: tuple[str, ...] = ()  # what it matches
    device: str | None = None  # as the program named it: "cuda:0"
    batch_size: int | None = None  # as the program printed it
    memory_peak_bytes: int | None = None  # of the whole process tree
    memory_limit_bytes: int | None = None  # that it ran under
    forked_with_threads: bool = False  # a process forked itself while more than one of its threads was alive
    openmp_runtimes: tuple[str, ...] = ()  # files of those that refuse each other, when there were two or more in one process


def of_observation(seen: Observation, *, source: str = "") -> Facts:
    """What one watched run showed; `source`: its log, as the specification is to name it."""
    progress, memory = seen.progress, seen.memory
    died = signature(seen)
    two = duplicates(seen.libraries)
    return Facts(
        source=source,
        died=None if seen.exit.ended_by in ("starved", "wall", "interrupt") else died is not None,
        signal=next((death.signal for death in seen.deaths if death.signal), seen.exit.signal),
        error=seen.python_error.type if seen.python_error and died else None,
        error_message=seen.python_error.message if seen.python_error and died else "",
        words=tuple(message.text for message in seen.messages),
        messages=tuple((kind_of_words(message), message.text) for message in seen.messages),
        last_step=progress.last_step,
        total_steps=progress.total_steps,
        steps_per_s=_rate(seen),
        seconds=seen.wall_s,
        startup_s=progress.first_step_s,
        longest_gap_s=progress.longest_gap_s,
        steps_seen=progress.last_line if progress.last_step is not None else "",
        memory_peak_bytes=memory.peak_group_bytes or memory.peak_tree_rss_bytes,
        memory_limit_bytes=memory.limit_bytes,
        forked_with_threads=any(fork.threads_alive > 1 for fork in seen.forks),
        openmp_runtimes=tuple(library.path for library in two[0]) if two else (),
    )


def kind_of_words(message: Message) -> MessageKind:
    """Return the kind of a line; a library's warning with a reason in it is of the reason's kind."""
    return "no more processes" if message.kind == "openmp warning" and NO_THREADS.search(message.text) else message.kind


def _rate(seen: Observation) -> float | None:
    """Steps a second after the first one."""
    progress = seen.progress
    if progress.last_step is None or progress.first_step_s is None or progress.last_step_s is None:
        return None
    seconds = progress.last_step_s - progress.first_step_s
    return progress.last_step / seconds if seconds > 0 else None
