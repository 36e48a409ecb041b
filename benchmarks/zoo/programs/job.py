"""What the programs beside this file share: axes on the command line, lines of progress, a compiler."""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

COMMON = {"bs": 32, "accum": 1, "workers": 0, "threads": 2, "shuffle": 0, "steps": 40, "seed": 0}


def options(**more: object) -> argparse.Namespace:
    """The common axes, most of which a program ignores, and its own."""
    parser = argparse.ArgumentParser()
    for name, value in {**COMMON, **more}.items():
        parser.add_argument(f"--{name}", type=type(value), default=value)
    return parser.parse_args()


def step(number: int, **figures: float) -> None:
    print(f"step {number:04d} " + " ".join(f"{name}={value:.4f}" for name, value in figures.items()), flush=True)


def finished() -> None:
    print("training finished", flush=True)


def native(source: str, *flags: str) -> str:
    """Path of the shared object of some C source; compiled once for each text."""
    key = hashlib.sha1(repr((source, flags)).encode()).hexdigest()[:16]
    folder = Path(tempfile.gettempdir()) / f"programs-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    path = folder / f"{key}.so"
    if not path.exists():
        code, part = folder / f"{key}.{os.getpid()}.c", folder / f"{key}.{os.getpid()}.so"
        code.write_text(source)
        subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-w", str(code), "-o", str(part), *flags], check=True)
        os.replace(part, path)
        code.unlink()
    return str(path)
