"""What a probe starts from (`Context`) and what it changes (`Change`): plain values, nothing is started or touched here."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matrix.evidence.own_limits import inherited_limits

INFINITE = -1  # as resource.RLIM_INFINITY


class Unavailable(Exception):
    """This probe cannot be had here; the text says why."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Context:
    """How an attempt would be started without the probe."""

    argv: list[str]
    env: dict[str, str]  # complete, what is inherited included
    cwd: str
    folder: Path  # of the attempt
    temp: str  # its temp folder, where env has no TMPDIR
    cpus: list[int] | None = None  # None: every CPU of the tool
    memory_limit_bytes: int | None = None  # None: no limit of ours
    rlimits: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)  # ours; all others are inherited
    pids: int | None = None  # None: no limit of ours
    pty: bool = False
    hook: bool = True
    watch: bool = True

    def usable_cpus(self) -> list[int]:
        return self.cpus or sorted(os.sched_getaffinity(0))

    def limit(self, name: str) -> tuple[int, int]:
        """Soft and hard limit of the child; INFINITE where there is none."""
        return self.rlimits.get(name) or inherited_limits()[name]

    def changed(self, change: Change) -> Context:
        """What the next probe starts from."""
        env = {name: value for name, value in {**self.env, **change.env}.items() if name not in change.unset}
        return dataclasses.replace(
            self,
            argv=[*change.wrapper, *self.argv],
            env=env,
            cpus=change.cpus or self.cpus,
            memory_limit_bytes=change.memory_limit_bytes or self.memory_limit_bytes,
            rlimits={**self.rlimits, **change.rlimits},
            pids=change.pids or self.pids,
            pty=self.pty and not change.to_file,
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """What is done differently; each field that is set has its own check in `checks.py`."""

    env: dict[str, str] = dataclasses.field(default_factory=dict)
    unset: tuple[str, ...] = ()
    cpus: list[int] | None = None
    rlimits: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    memory_limit_bytes: int | None = None
    pids: int | None = None
    cpu_share: float | None = None  # processor seconds per second, of all processes together
    tmpfs: dict[str, int] = dataclasses.field(default_factory=dict)  # folder -> bytes of the file system that is mounted over it
    wrapper: tuple[str, ...] = ()  # goes in front of the command
    traced: bool = False  # the wrapper is a tracer
    native_threads: int | None = None  # most threads beyond Python's own; None: as many as it likes
    uses_malloc: bool = False  # nothing happens under another allocator than the C library's
    maps: tuple[str, ...] = ()  # parts of names of files that must be mapped
    maps_not: tuple[str, ...] = ()  # ... that must not be
    no_huge_pages: bool = False
    ignored: tuple[int, ...] = ()  # signals
    default: tuple[int, ...] = ()  # signals that end the process again where Python ignores them
    start_method: str = ""
    to_file: bool = False  # output to plain files, and no terminal

    def plus(self, other: Change) -> Change:
        """Both changes; where they differ, the later one's."""
        return Change(**{field.name: _joined(getattr(self, field.name), getattr(other, field.name)) for field in dataclasses.fields(self)})


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, Mapping):
        return {**first, **second}
    if isinstance(first, tuple):
        return first + tuple(item for item in second if item not in first)
    return first if second is None or second == "" or second is False else second


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared:
    """The probes of one attempt."""

    settings: dict[str, str] = dataclasses.field(default_factory=dict)
    each: dict[str, Change] = dataclasses.field(default_factory=dict)  # by probe
    refused: dict[str, str] = dataclasses.field(default_factory=dict)  # probe -> why it cannot be had here
    total: Change = Change()
