"""What a fault tells about itself."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path


@dataclasses.dataclass(frozen=True, kw_only=True)
class Amount:
    """The one number that a fault can be given."""

    default: int
    text: str  # what it counts, for people: "MiB kept each time"
    least: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fault:
    name: str
    family: str  # as in matrix/diagnosis
    cause: str  # in the catalogue of the diagnosis
    about: str | None  # a summary line, then what is real about it, what is arranged, and where people meet it
    dies: str  # how the process ends, in words
    when: str  # the moment that is taken when none is named; "": it comes by itself, and none can be named
    platforms: str
    needs: str
    why_not: Callable[[], str | None]  # why it cannot be planted on this machine; None: it can
    files: Callable[[str], dict[str, Path]] = lambda prefix: {}  # prefix -> name in the plant's folder -> the file that is copied there
    build: Callable[[Path, str], None] = lambda folder, prefix: None  # makes further files out of them, in that folder
    again: bool = False  # it does its harm at every such moment from then on, not once
    on_a_call: bool = False  # it acts on the call that is the moment, so that no time can be named
    amount: Amount | None = None  # None: nothing to be counted
    damages_file: bool = False  # it wants to know which file of the program's

    @property
    def summary(self) -> str:
        return (self.about or "").strip().partition("\n\n")[0].strip()

    @property
    def details(self) -> str:
        return (self.about or "").strip().partition("\n\n")[2].strip()


class CannotPlant(RuntimeError):
    """The surroundings do not allow it: platform, missing package, unwritable cache."""


# ------------------------------------------------------------------ what machines lack
def on_linux() -> str | None:
    return None if sys.platform.startswith("linux") else f"it is done as Linux does it, and this is {sys.platform}"


def with_compiler(compiler: str = "cc") -> str | None:
    """`cc` for C, `c++` for C++."""
    if reason := on_linux():
        return reason
    language, package = ("C++", "g++") if compiler == "c++" else ("C", "gcc")
    return (
        None if _compiler(compiler) else f"no {language} compiler was found ({compiler} or {package}); on Debian: apt-get install {package}"
    )


def _compiler(compiler: str) -> str | None:
    return shutil.which(compiler) or shutil.which({"cc": "gcc", "c++": "g++"}[compiler])


def compile_library(folder: Path, source: str, target: str, *, compiler: str = "cc", options: Sequence[str] = ()) -> None:
    """A shared library in `folder`, with symbols, so that stacks have names.  Raises CannotPlant with the compiler's own words."""
    argv = [_compiler(compiler) or compiler, "-shared", "-fPIC", "-g", "-O0", "-pthread", *options, "-o", target, source]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise CannotPlant(f"{argv[0]} did not compile {source}: {done.stderr.strip()[-500:]}")
