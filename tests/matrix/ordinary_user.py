"""Run the tool as a user without any right: `nobody`, where the tests are run by root."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.matrix.command_line import ROOT

NOBODY = 65534
DROP = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--inh-caps=-all", "env"]  # rights go at the second exec


@functools.cache
def interpreter() -> str:
    """A Python of this version that `nobody` may start; "" where there is none."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, shutil.which(version, path="/usr/local/bin:/usr/bin")):
        if path and subprocess.run([*prefix(), path, "-c", ""], capture_output=True).returncode == 0:
            return path
    return ""


def prefix() -> list[str]:
    """Words that begin a command of an ordinary user."""
    return DROP if os.geteuid() == 0 else []


def lacking() -> str:
    """Reason why nothing can be run as an ordinary user; "" if it can."""
    if os.geteuid():
        return ""
    if shutil.which("setpriv") is None:
        return "setpriv is not installed"
    return "" if interpreter() else "no Python of this version that nobody may start"


def tool() -> list[str]:
    """The command line of the tool as an ordinary user."""
    return [*prefix(), interpreter(), "-m", "matrix"]


def environment() -> dict[str, str]:
    packages = sysconfig.get_path("purelib")
    home = {"HOME": "/nonexistent", "MPLCONFIGDIR": "/tmp"}
    return {**os.environ, "PYTHONPATH": f"{ROOT}:{packages}", "TERM": "dumb", **home}


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that an ordinary user may write to: those of pytest are for their owner only."""
    made = Path(tempfile.mkdtemp(prefix="matrix-test-", dir="/tmp"))
    made.chmod(0o777)
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)
