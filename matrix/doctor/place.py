"""What is looked at: an interpreter, the environment that a job would inherit, and the machine."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path

from matrix.doctor.finding import NotSeen
from matrix.doctor.interpreter import Interpreter
from matrix.doctor.native import Native, libraries
from matrix.kernel_text import kernel_text


@dataclasses.dataclass(frozen=True, kw_only=True)
class Place:
    python: Interpreter
    environment: Mapping[str, str] = dataclasses.field(default_factory=lambda: dict(os.environ))
    root: Path = Path("/")  # where /proc and /sys are
    system: str = sys.platform
    machine: str = dataclasses.field(default_factory=platform.machine)
    today: datetime.date = dataclasses.field(default_factory=datetime.date.today)
    cwd: Path = dataclasses.field(default_factory=Path.cwd)

    @functools.cached_property
    def libraries(self) -> list[Native]:
        return libraries(self.python, self.environment.get("LD_LIBRARY_PATH", "").split(":"))

    def text(self, path: str) -> str:
        """Of a file of /proc or /sys, without the white space around it.  Raises NotSeen."""
        try:
            return kernel_text(self.root / path.lstrip("/")).strip()
        except OSError as problem:
            top = "/" + path.lstrip("/").partition("/")[0]
            if not (self.root / top.lstrip("/")).is_dir() or self.system != "linux":
                raise NotSeen(f"{self.system} has no {top}") from problem
            raise NotSeen(f"{path}: {problem.strerror}") from problem

    def number(self, path: str) -> int:
        """Raises NotSeen."""
        text = self.text(path)
        try:
            return int(text)
        except ValueError:
            raise NotSeen(f"{path} is no number: {text[:40]}") from None

    def of_family(self, family: str) -> list[Native]:
        return [each for each in self.libraries if family in each.families]

    def short(self, path: Path) -> str:
        """Within the interpreter's own folder, without that."""
        prefix = Path(self.python.prefix or "/")
        return str(path.relative_to(prefix)) if prefix != Path("/") and path.is_relative_to(prefix) else str(path)

    def cpus(self) -> int:
        """Processors that this process may run on, which is what OpenMP counts."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def size(count: float) -> str:
    """Bytes in the largest unit that keeps a digit before the point."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
