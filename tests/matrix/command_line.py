"""The command line in a process of its own, as users have it, and what it leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from matrix import records
from matrix.records import Observation, Verdict
from matrix.runner import cgroup
from matrix.runner.launcher import SHORT_TEMP
from matrix.runner.tree import MARK, marked_processes

ROOT = Path(__file__).parents[2]
SHM = Path("/dev/shm")
TOOL = [sys.executable, "-m", "matrix"]
PATIENCE_S = 900.0  # only what hangs is waited for so long: a guest, or a busy machine, may have little of a processor
# Root without its capabilities: permission bits bind it, mounts and the like are refused, and it still reaches its interpreter.
NO_RIGHTS = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
CAN_DROP_RIGHTS = os.geteuid() != 0 or (sys.platform == "linux" and shutil.which("setpriv") is not None)


def matrix(*words: str, cwd: Path, prefix: Sequence[str] = (), timeout: float = PATIENCE_S) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run([*prefix, *TOOL, *words], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=timeout)


def start(*words: str, cwd: Path) -> subprocess.Popen[str]:
    """Start a command; its standard output can be read line by line."""
    return subprocess.Popen(
        [*TOOL, *words], cwd=cwd, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"}


def specification(folder: Path, content: Mapping[str, Any], name: str = "spec.yaml") -> Path:
    """A specification file (JSON is YAML)."""
    path = folder / name
    path.write_text(json.dumps(content))
    return path


# ------------------------------------------------------------------ what there is
def only_run(folder: Path) -> Path:
    """The one run folder below `folder`/runs."""
    (found,) = (folder / "runs").glob("*/*")
    return found


def verdict(run: Path) -> Verdict:
    return records.read(Verdict, run / "verdict.json")


def observations(run: Path) -> list[Observation]:
    return [records.read(Observation, path) for path in sorted(run.glob("attempts/*/observation.json"))]


def complete(run: Path) -> dict[str, tuple[bytes, int]]:
    """Content and time of every observation, by attempt."""
    return {path.parent.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in run.glob("attempts/*/observation.json")}


def left_by(tool: int) -> list[str]:
    """Temp folders, cgroups and processes of the attempts of a tool with that pid."""
    token = f"mx-{tool}-"
    folders = [str(path) for place in (SHORT_TEMP, *cgroup.homes()) for path in place.glob(f"{token}*")]
    return folders + [f"process {pid}" for pid in marked_processes(f"{MARK}={token}".encode()) if alive(pid)]


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def registrations(pids: Sequence[int]) -> list[str]:
    return [path.name for pid in pids for path in SHM.glob(f"__KMP_REGISTERED_LIB_{pid}_*")]


# ------------------------------------------------------------------ waiting and killing
def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_S) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


def kill(tool: subprocess.Popen[str], *, guardian: bool) -> None:
    """SIGKILL to the tool, and in the same moment to its guardian."""
    pids = [tool.pid]
    if guardian:
        pids += [child.pid for child in psutil.Process(tool.pid).children() if any("guardian.py" in word for word in child.cmdline())]
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    tool.communicate()
