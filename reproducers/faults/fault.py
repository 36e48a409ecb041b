"""What a fault tells about itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    name: str
    about: str | None  # docstring of its module: a summary line, then what is real about it
    dies: str  # how the process ends, in words
    when: str  # the moment that is taken when none is named; "": it comes by itself, and none can be named
    platforms: str
    needs: str
    why_not: Callable[[], str | None]  # why it cannot be planted on this machine; None: it can
    files: Callable[[str], dict[str, Path]]  # prefix -> name in the plant's folder -> the file that is copied there
    build: Callable[[Path, str], None] = lambda folder, prefix: None  # makes further files out of them, in that folder

    @property
    def summary(self) -> str:
        return (self.about or "").partition("\n\n")[0].strip()

    @property
    def details(self) -> str:
        return (self.about or "").partition("\n\n")[2].strip()


class CannotPlant(RuntimeError):
    """The surroundings do not allow it: platform, missing package, unwritable cache."""
