"""Three training scripts of strangers, from `init` to a verdict: `python -m benchmarks.strangers`.

The scripts are in examples/strangers; each has a trap that such scripts really have, and none was written for this tool.  Needs
lightning, transformers and faiss in the interpreter, and for Lightning's story a memory cgroup that can be made: it stands for the
container in which the script runs.  Nothing of the written specifications is edited.
"""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.record import save
from matrix.runner import cgroup

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "examples" / "strangers"
OPEN_FILES = 1024  # the soft limit of most Linux distributions
CONTAINER_BYTES = 880 << 20


@dataclass(frozen=True)
class Stranger:
    script: str
    flags: str
    needs: tuple[str, ...]
    cause: str
    where: str  # what stands around it
    open_files: int | None = None
    memory_bytes: int | None = None


STRANGERS = (
    Stranger(
        script="plain_pytorch.py",
        flags="--batch-size 16 --workers 2",
        needs=("torch",),
        cause="resource_limit",
        where=f"ulimit -n {OPEN_FILES}",
        open_files=OPEN_FILES,
    ),
    Stranger(
        script="lightning_module.py",
        flags="--batch-size 1024 --max-steps 60 --out runs/autoencoder",
        needs=("torch", "lightning"),
        cause="memory_retention",
        where=f"a container of {CONTAINER_BYTES >> 20} MiB",
        memory_bytes=CONTAINER_BYTES,
    ),
    Stranger(
        script="hf_trainer.py",
        flags="--output_dir runs/bert --num_train_epochs 2 --per_device_train_batch_size 8 --dataloader_num_workers 2",
        needs=("torch", "transformers", "faiss"),
        cause="fork_unsafe",
        where="two cores or more",
    ),
)


def story(stranger: Stranger) -> dict[str, Any]:
    """What came of it, and what the two commands printed."""
    if missing := [name for name in stranger.needs if importlib.util.find_spec(name) is None]:
        return {"skipped": f"not installed: {', '.join(missing)}"}
    with tempfile.TemporaryDirectory(prefix="stranger-") as place:
        folder = Path(place)
        shutil.copy(SCRIPTS / stranger.script, folder)
        specification = f"{Path(stranger.script).stem}.yaml"
        container = cgroup.create(f"container-{os.getpid()}", stranger.memory_bytes) if stranger.memory_bytes else None
        if stranger.memory_bytes and container is None:
            return {"skipped": f"no memory cgroup can be made here: {cgroup.why_not()}"}
        began = time.perf_counter()
        try:
            enter = _enter(stranger, container)
            init = _tool(["init", "--", "python", stranger.script, *stranger.flags.split()], folder, enter)
            run = _tool(["run", specification], folder, enter)
        finally:
            if container:
                container.end()
                container.remove()
        return {**_verdict(folder, stranger), "wall_s": round(time.perf_counter() - began, 1), "init": init, "run": run[-1500:]}


def _enter(stranger: Stranger, container: cgroup.Group | None) -> Callable[[], None]:
    """What the shell around it would have: its limit of open files, its container."""

    def enter() -> None:
        if stranger.open_files:
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (stranger.open_files, hard))
        if container:
            (container.path / "cgroup.procs").write_text(str(os.getpid()))

    return enter


def _tool(words: list[str], folder: Path, enter: Callable[[], None]) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-m", "matrix", *words], cwd=folder, env=env, capture_output=True, text=True, preexec_fn=enter)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")
    return done.stdout


def _verdict(folder: Path, stranger: Stranger) -> dict[str, Any]:
    (path,) = folder.glob("runs/*/*/verdict.json")
    verdict = json.loads(path.read_text())
    first, fix = verdict["ranking"][0], verdict["fix"]
    return {
        "where": stranger.where,
        "right": first["cause"] == stranger.cause,
        "status": verdict["status"],
        "cause": first["cause"],
        "wanted": stranger.cause,
        "grade": first["grade"],
        "probability": round(first["probability"], 3),
        "fix": fix and fix["set"],
        "fix_kind": fix and fix["kind"],
        "attempts": verdict["runs"],
    }


def main() -> None:
    """What is known is written after each script: the three take a quarter of an hour on two idle cores, and hours on busy ones."""
    told: dict[str, Any] = {}
    for stranger in STRANGERS:
        print(f"{stranger.script}, {stranger.where} ...", file=sys.stderr, flush=True)
        told[stranger.script] = story(stranger)
        save("strangers", {"scripts": told, "complete": len(told) == len(STRANGERS)})


if __name__ == "__main__":
    main()
