"""The library that most faults in native code share: one C source, compiled once for each plant."""

from __future__ import annotations

import functools
from pathlib import Path

from reproducers.faults.fault import Fault, compile_library, with_compiler

SOURCE = Path(__file__).with_name("native.c")


def files(prefix: str) -> dict[str, Path]:
    return {f"{prefix}_native.c": SOURCE}


def build(folder: Path, prefix: str) -> None:
    compile_library(folder, f"{prefix}_native.c", f"lib{prefix}_native.so")


fault = functools.partial(
    Fault, when="seconds:1", platforms="Linux", needs="a C compiler", why_not=with_compiler, files=files, build=build
)  # one of that library's; what it has otherwise it says
