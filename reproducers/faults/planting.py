"""Puts a fault's files into a private cache folder and makes the environment that plants it."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from reproducers.faults import bad_pointer, child, device_overrun, omp_conflict
from reproducers.faults.fault import CannotPlant, Fault

FAULTS: dict[str, Fault] = {fault.name: fault for fault in (omp_conflict.FAULT, bad_pointer.FAULT, device_overrun.FAULT)}
MOMENTS = {
    "mining": "the first FAISS search (an index's search, or faiss.knn)",
    "backward": "the first backward pass (torch.autograd.backward)",
    "epoch-end": "the first checkpoint (torch.save), which ends an epoch in most programs",
    "step:N": "after the N-th optimiser step (torch.optim)",
}
RUNTIMES = ("two", "one")

# `if`: a tool that chains to this file may do so more than once.
_SITECUSTOMIZE = """\
import sys

if "{module}" not in sys.modules:
    import {module}

    {module}.start()
    {module}.run_next_sitecustomize(__file__)
"""


def plant(
    fault: str, *, when: str | None = None, first: str = "torch", rename: str = "planted", cache: Path | None = None
) -> dict[str, str]:
    """The environment variables that plant a fault into any Python program started with them on top of `os.environ`.

    fault   a name in FAULTS
    when    a key of MOMENTS, N being a number from 1 (`step:20`); None: the fault's own, and the only one that device-overrun has
    first   the module whose import uses the first OpenMP runtime (omp-conflict only)
    rename  prefix of every file, module, folder and variable that the plant adds
    cache   folder for the copies; None: the user's cache folder

    The program's Python must read PYTHONPATH (no -I, -E or -S).
    Raises ValueError for a bad argument and CannotPlant when this machine does not allow it.
    """
    if fault not in FAULTS:
        raise ValueError(f"no fault is named {fault!r}; there are: {', '.join(FAULTS)}")
    chosen = FAULTS[fault]
    moment = when or chosen.when
    if when and not chosen.when:
        raise ValueError(f"--when {when!r}: {fault} comes at a moment of its own")
    if moment and moment not in MOMENTS.keys() - {"step:N"} and not re.fullmatch(r"step:[1-9]\d*", moment):
        raise ValueError(f"--when {moment!r} is no moment; allowed: {', '.join(MOMENTS)}, N being a number from 1")
    _check_prefix(rename)
    if reason := chosen.why_not():
        raise CannotPlant(reason)
    settings = {"fault": fault, "when": moment, "first": first, "variable": _variable(rename)}
    folder = _folder(chosen, settings, rename, cache or _user_cache())
    inherited = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{inherited}" if inherited else str(folder)}


def check_runtimes(environment: Mapping[str, str], rename: str) -> None:
    """Raises ValueError when the variable that chooses between two runtimes and one holds something else."""
    value = environment.get(_variable(rename), RUNTIMES[0])
    if value not in RUNTIMES:
        raise ValueError(f"the environment variable {_variable(rename)} is {value!r}; allowed: {', '.join(RUNTIMES)}; absent means two")


def _variable(prefix: str) -> str:
    return f"{prefix.upper()}_RUNTIMES"


def _check_prefix(prefix: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", prefix):
        raise ValueError(f"--rename {prefix!r} must be small letters, digits and underscores, beginning with a letter")
    if importlib.util.find_spec(prefix) is not None:
        raise ValueError(f"--rename {prefix!r} would hide the module of that name; choose another prefix")


def _user_cache() -> Path:
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "crash-matrix" / "faults"


def _folder(fault: Fault, settings: dict[str, str], prefix: str, cache: Path) -> Path:
    """The plant's folder; named by its content and made once, so that runs side by side can share it."""
    files = {**fault.files(prefix), f"{prefix}.py": Path(child.__file__)}
    texts = {f"{prefix}.json": json.dumps(settings), "sitecustomize.py": _SITECUSTOMIZE.format(module=prefix)}
    content = hashlib.sha256(json.dumps(texts, sort_keys=True).encode())
    for name, source in sorted(files.items()):
        content.update(name.encode() + source.read_bytes())
    folder = cache.resolve() / f"{prefix}-{content.hexdigest()[:12]}"
    if not folder.is_dir():
        try:
            _make(folder, files, texts, lambda part: fault.build(part, prefix))
        except OSError as error:
            raise CannotPlant(f"the cache folder {cache} cannot be written ({error}); name another one with --cache DIR") from error
    return folder


def _make(folder: Path, files: dict[str, Path], texts: dict[str, str], build: Callable[[Path], None] = lambda part: None) -> None:
    """Fill a folder of this process's own (mode 0700), then move it into place: nobody meets half a plant."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = Path(tempfile.mkdtemp(prefix=".part-", dir=folder.parent))
    try:
        for name, source in files.items():
            shutil.copyfile(source, part / name)
        for name, text in texts.items():
            (part / name).write_text(text, encoding="utf-8")
        build(part)
        part.rename(folder)
    except OSError:
        if not folder.is_dir():  # else: another run was quicker, and its folder is as good
            raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
