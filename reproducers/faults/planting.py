"""Puts a fault's files into a private cache folder and makes the environment that plants it."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from reproducers.faults import child, device_overrun, endings, figures, fork, harm, limits, memory, native, omp_conflict, room, stalls
from reproducers.faults.fault import CannotPlant, Fault

FAULTS: dict[str, Fault] = {
    fault.name: fault
    for fault in (
        omp_conflict.FAULT,
        *fork.FAULTS,
        *memory.FAULTS,
        *limits.FAULTS,
        *room.FAULTS,
        *native.FAULTS,
        *figures.FAULTS,
        *endings.FAULTS,
        device_overrun.FAULT,
        *stalls.FAULTS,
    )
}
MOMENTS = {
    "seconds:S": "S seconds after the start, in the main thread (another thread looks at the clock)",
    "print:N": "before the N-th print() of the program",
    "call:MODULE:FUNCTION[:N]": "before the N-th call of any function that a module has, as in call:numpy.linalg:solve:20",
    "step:N": "after the N-th optimiser step (torch.optim)",
    "backward": "the first backward pass (torch.autograd.backward)",
    "mining": "the first FAISS search (an index's search, or faiss.knn)",
    "epoch-end": "the first checkpoint (torch.save), which ends an epoch in most programs",
}
_NUMBER = r"[1-9]\d*"
_MOMENT = re.compile(
    rf"mining|backward|epoch-end|step:{_NUMBER}|print:{_NUMBER}|seconds:\d+(\.\d+)?|call:[\w.]+:[A-Za-z_][\w.]*(:{_NUMBER})?", re.ASCII
)
RUNTIMES = ("two", "one")
SWITCH = ("on", "off")
MOST_TO_COPY = 1 << 30  # bytes of a file that is damaged in a copy

# `if`: a tool that chains to this file may do so more than once.
_SITECUSTOMIZE = """\
import sys

if "{module}" not in sys.modules:
    import {module}

    {module}.start()
    {module}.run_next_sitecustomize(__file__)
"""


def plant(
    fault: str,
    *,
    when: str | None = None,
    amount: int | None = None,
    file: Path | None = None,
    first: str = "torch",
    rename: str = "planted",
    cache: Path | None = None,
) -> dict[str, str]:
    """The environment variables that plant a fault into any Python program started with them on top of `os.environ`.

    fault   a name in FAULTS
    when    a moment in the form of a key of MOMENTS; None: the fault's own, and the only one for those that have no other
    amount  the number that the fault can be given; None: its own
    file    the program's file that damaged-file damages (a copy of)
    first   the module whose import uses the first OpenMP runtime (omp-conflict only)
    rename  prefix of every file, module, folder and variable that the plant adds
    cache   folder for the copies; None: the user's cache folder

    The program's Python must read PYTHONPATH (no -I, -E or -S).  Every Python process that the program starts is planted too.
    Raises ValueError for a bad argument and CannotPlant when this machine does not allow it.
    """
    chosen = find(fault)
    settings: dict[str, Any] = {
        "fault": fault,
        "when": _moment(chosen, when),
        "again": chosen.again,
        "amount": _amount(chosen, amount),
        "file": _file(chosen, file),
        "first": first,
        "variable": _runtimes(rename),
        "switch": _switch(rename),
    }
    _check_prefix(rename)
    if reason := chosen.why_not():
        raise CannotPlant(reason)
    folder = _folder(chosen, settings, rename, cache or _user_cache())
    inherited = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": f"{folder}{os.pathsep}{inherited}" if inherited else str(folder)}


def find(name: str) -> Fault:
    """Raises ValueError, which says what there is, for a name that is none."""
    if name not in FAULTS:
        near = difflib.get_close_matches(name, FAULTS, n=1)
        raise ValueError(f"no fault is named {name!r}; {f'did you mean {near[0]}? T' if near else 't'}here are: {', '.join(FAULTS)}")
    return FAULTS[name]


def _moment(fault: Fault, when: str | None) -> str:
    if when and not fault.when:
        raise ValueError(f"--when {when!r}: {fault.name} comes at a moment of its own")
    moment = when or fault.when
    if moment and not _MOMENT.fullmatch(moment):
        raise ValueError(f"--when {moment!r} is no moment; allowed: {', '.join(MOMENTS)}, N being a number from 1")
    if fault.on_a_call and moment.startswith("seconds:"):
        raise ValueError(f"--when {moment!r}: {fault.name} acts on a call, so its moment is one; allowed: {', '.join(_calls())}")
    return moment


def _calls() -> Iterable[str]:
    return (moment for moment in MOMENTS if not moment.startswith("seconds:"))


def _amount(fault: Fault, amount: int | None) -> int:
    if fault.amount is None:
        if amount is not None:
            raise ValueError(f"--amount {amount}: {fault.name} has nothing that is counted")
        return 0
    chosen = fault.amount.default if amount is None else amount
    if chosen < fault.amount.least:
        raise ValueError(f"--amount {chosen} is too little: {fault.amount.text}, at least {fault.amount.least}")
    return chosen


def _file(fault: Fault, file: Path | None) -> str:
    if not fault.damages_file:
        if file is not None:
            raise ValueError(f"--file {file}: {fault.name} damages no file")
        return ""
    if file is None:
        raise ValueError(f"{fault.name} wants to know which file of the program's: --file PATH")
    if not file.is_file():
        raise ValueError(f"--file {file} is no file")
    if not 0 < file.stat().st_size <= MOST_TO_COPY:
        raise ValueError(f"--file {file} holds {file.stat().st_size} bytes; it is copied, so allowed are 1 byte to 1 GiB")
    return str(file.resolve())


def check_variables(environment: Mapping[str, str], rename: str) -> None:
    """Raises ValueError when one of the variables that the plant reads holds something else than it may."""
    for variable, allowed in ((_runtimes(rename), RUNTIMES), (_switch(rename), SWITCH)):
        value = environment.get(variable, allowed[0])
        if value not in allowed:
            raise ValueError(f"the environment variable {variable} is {value!r}; allowed: {', '.join(allowed)}; absent means {allowed[0]}")


def _runtimes(prefix: str) -> str:
    return f"{prefix.upper()}_RUNTIMES"


def _switch(prefix: str) -> str:
    return f"{prefix.upper()}_FAULT"


def _check_prefix(prefix: str) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", prefix):
        raise ValueError(f"--rename {prefix!r} must be small letters, digits and underscores, beginning with a letter")
    if importlib.util.find_spec(prefix) is not None:
        raise ValueError(f"--rename {prefix!r} would hide the module of that name; choose another prefix")


# ------------------------------------------------------------------ the folder
def _user_cache() -> Path:
    if sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "crash-matrix" / "faults"


def _folder(fault: Fault, settings: dict[str, Any], prefix: str, cache: Path) -> Path:
    """The plant's folder; named by its content and made once, so that runs side by side can share it."""
    files = {**fault.files(prefix), f"{prefix}.py": Path(child.__file__), f"{prefix}_harm.py": Path(harm.__file__)}
    if fault.damages_file:
        files[f"{prefix}_copy"] = Path(settings["file"])
    texts = {f"{prefix}.json": json.dumps(settings), "sitecustomize.py": _SITECUSTOMIZE.format(module=prefix)}
    content = hashlib.sha256(json.dumps(texts, sort_keys=True).encode())
    for name, source in sorted(files.items()):
        content.update(name.encode() + source.read_bytes())
    folder = cache.resolve() / f"{prefix}-{content.hexdigest()[:12]}"
    if not folder.is_dir():
        try:
            _make(folder, files, texts, lambda part: _finish(fault, settings, part, prefix))
        except OSError as error:
            raise CannotPlant(f"the cache folder {cache} cannot be written ({error}); name another one with --cache DIR") from error
    return folder


def _finish(fault: Fault, settings: dict[str, Any], part: Path, prefix: str) -> None:
    fault.build(part, prefix)
    if fault.damages_file:
        _invert(part / f"{prefix}_copy", settings["amount"])


def _invert(path: Path, count: int) -> None:
    """Invert so many bytes in the middle of a file."""
    with path.open("r+b") as file:
        start = max(0, (path.stat().st_size - count) // 2)
        file.seek(start)
        damaged = bytes(byte ^ 0xFF for byte in file.read(count))
        file.seek(start)
        file.write(damaged)


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
