"""The library that most faults in native code share: one C source, compiled once for each plant."""

from __future__ import annotations

from pathlib import Path

from reproducers.faults.fault import compile_library

SOURCE = Path(__file__).with_name("native.c")


def files(prefix: str) -> dict[str, Path]:
    return {f"{prefix}_native.c": SOURCE}


def build(folder: Path, prefix: str) -> None:
    compile_library(folder, f"{prefix}_native.c", f"lib{prefix}_native.so")
