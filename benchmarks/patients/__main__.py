"""Programs that nobody here wrote, killed from outside: are `init` and `run` right about them at the first try?

    python -m benchmarks.patients --sources DIR [--only NAME ...] [--out FILE] [--resume] [--keep DIR]

DIR holds the public repositories of the patients by their names (nanoGPT, examples, transformers, ...).  No program is edited, and no
specification.  Each patient is first run without the tool: with the fault it has to die, without the fault it has to live.  Then
`init` and `run` are asked, in the same surroundings, and the fix of the verdict is launched there as well.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib.util
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.patients.score import scored
from benchmarks.patients.surroundings import NOTHING, Entrance, NotHere, arranged
from benchmarks.patients.table import PATIENTS, Patient, copied

ROOT = Path(__file__).parents[2]
PYTHON_FOLDER = Path(sys.executable).parent
MOST_INIT_S = 120.0
END_S = 30.0  # what the tool gets to write its verdict when its time is over
WANTED_MINUTES = 10.0
LAST_LINES = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, help="the folder of the public repositories")
    parser.add_argument("--only", nargs="*", default=[], help="names of patients")
    parser.add_argument("--out", type=Path, default=record.RESULTS / "patients.json")
    parser.add_argument("--resume", action="store_true", help="skip the patients that the file has already")
    parser.add_argument("--outside", action="store_true", help="run the programs without the tool only")
    parser.add_argument("--keep", type=Path, help="keep the folders of the tool here")
    parser.add_argument("--minutes", type=float, default=15.0, help="end `run` after so many minutes")
    options = parser.parse_args()
    if unknown := sorted(set(options.only) - {patient.name for patient in PATIENTS}):
        parser.error(f"no such patient: {', '.join(unknown)}; there are {', '.join(patient.name for patient in PATIENTS)}")
    told = _earlier(options.out)
    for patient in PATIENTS:
        if options.only and patient.name not in options.only:
            continue
        if options.resume and ("outside" if options.outside else "minutes") in told.get(patient.name, {}):
            continue
        before = told.get(patient.name, {}).get("outside") if options.resume else None
        told[patient.name] = story(patient, options, before)
        _save(options.out, told)
        print(_line(patient.name, told[patient.name]), flush=True)
    print(json.dumps(summary(told)))


def _earlier(out: Path) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, KeyError):
        return dict(json.loads(out.read_text())["patients"])
    return {}


def _save(out: Path, told: dict[str, Any]) -> None:
    figures = {"benchmark": "patients", "machine": record.machine(), "summary": summary(told), "patients": told}
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(figures, indent=1) + "\n")


def summary(told: dict[str, Any]) -> dict[str, Any]:
    """Counts over the patients that were here; `right`: cause, fix and safety within the wanted minutes."""
    rows = [row for row in told.values() if "marks" in row]
    marks = [row["marks"] for row in rows]
    counts = {key: sum(mark[key] for mark in marks) for key in ("cause", "place", "fix", "safe", "confirmed_and_wrong")}
    right = sum(row["marks"]["right"] and row["minutes"] <= WANTED_MINUTES for row in rows)
    return {"patients": len(rows), "right": right, **counts, "not_here": [name for name, row in told.items() if "not_here" in row]}


def _line(name: str, row: dict[str, Any]) -> str:
    if "marks" not in row:
        ends = {key: (run["ended"], run["seconds"]) for key, run in row.get("outside", {}).items()}
        return f"{name}: not here: {row['not_here']} {ends}" if "not_here" in row else f"{name}: {ends}"
    marks = " ".join(f"{key}={'yes' if value else 'no'}" for key, value in row["marks"].items())
    said = row["said"]
    return f"{name}: {said['cause']} {said['grade']} {marks} runs={said['runs']} minutes={row['minutes']}"


# ------------------------------------------------------------------ one patient
def story(patient: Patient, options: argparse.Namespace, outside: dict[str, Any] | None) -> dict[str, Any]:
    """Everything about one patient.  A patient that is not here or does not die outside of the tool gets no marks."""
    if missing := [name for name in patient.needs if importlib.util.find_spec(name) is None]:
        return {"not_here": f"not installed: {', '.join(missing)}"}
    fault = patient.around.told if patient.spoil is None else " ".join((patient.spoil.__doc__ or patient.spoil.__name__).split())
    try:
        with folder_of(patient, options) as (folder, why):
            if why:
                return {"not_here": why}
            log = folder.parent / "death.log"
            outside = outside or {
                "with_fault": bare(patient, options, log=log),
                "without_fault": bare(patient, options, well=True),
            }
            told = {"fault": fault, "command": patient.command, "outside": outside}
            if not outside["with_fault"]["died"] or outside["without_fault"]["died"]:
                return {**told, "not_here": "it does not die of this fault here, or it dies without"}
            if options.outside:
                return told
            if patient.log and not log.exists():
                bare(patient, options, log=log)
            return {**told, **treated(patient, folder, options, log if patient.log else None)}
    except NotHere as reason:
        return {"not_here": str(reason)}


@contextlib.contextmanager
def folder_of(patient: Patient, options: argparse.Namespace, *, well: bool = False) -> Iterator[tuple[Path, str]]:
    """(a fresh copy of the program with its inputs, why there is none)."""
    top = Path(tempfile.mkdtemp(prefix="job-"))
    folder = top / "work"
    folder.mkdir()
    try:
        why = copied(patient, options.sources, folder)
        if not why:
            _make_inputs(patient, folder)
            if patient.spoil and not well:
                patient.spoil(folder)
        yield folder, why
        if options.keep and not well and (folder / "runs").exists():
            shutil.copytree(top, options.keep / f"{patient.name}-{time.strftime('%H%M%S')}", symlinks=True)
    finally:
        shutil.rmtree(top, ignore_errors=True)


def _make_inputs(patient: Patient, folder: Path) -> None:
    for name in patient.inputs:
        argv = [sys.executable, "-m", "benchmarks.patients.inputs", name, str(folder)]
        subprocess.run(argv, cwd=ROOT, check=True, capture_output=True, timeout=300)


def _environment(patient: Patient, folder: Path, entrance: Entrance) -> dict[str, str]:
    own = {name: value.format(folder=folder) for name, value in patient.env}
    path = f"{PYTHON_FOLDER}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, **own, **entrance.env}


def bare(patient: Patient, options: argparse.Namespace, *, well: bool = False, log: Path | None = None) -> dict[str, Any]:
    """Run the program without the tool: how it ended, after how many seconds, with which last lines."""
    with folder_of(patient, options, well=well) as (folder, _), arranged(NOTHING if well else patient.around, folder) as entrance:
        argv = [*entrance.prefix, *shlex.split(patient.command)]
        return _outcome(patient, argv, folder, entrance, log=log)


def _outcome(patient: Patient, argv: list[str], folder: Path, entrance: Entrance, *, log: Path | None = None) -> dict[str, Any]:
    """A run that lives for `lives_s` seconds without an end is told as `lived on`: nobody can say more without the tool."""
    began = time.monotonic()
    output = folder.parent / "output.log"
    with output.open("wb") as sink:
        child = subprocess.Popen(
            argv,
            cwd=folder,
            env=_environment(patient, folder, entrance),
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            preexec_fn=entrance.enter,
            start_new_session=True,
        )
        try:
            status: int | None = child.wait(timeout=patient.lives_s)
        except subprocess.TimeoutExpired:
            status = None
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    text = output.read_text(errors="replace")
    if log:
        log.write_text(text)
    lines = [line.rstrip()[-300:] for line in text.splitlines() if line.strip()]
    hung = status is None and patient.hangs
    return {
        "died": hung or bool(status),
        "status": status,
        "ended": "hung" if hung else "lived on" if status is None else "died" if status else "finished",
        "seconds": round(time.monotonic() - began, 1),
        "last_lines": lines[-LAST_LINES:],
    }


# ------------------------------------------------------------------ with the tool
def treated(patient: Patient, folder: Path, options: argparse.Namespace, log: Path | None) -> dict[str, Any]:
    """`init`, `run`, and the fix."""
    before = _state(folder)
    with arranged(patient.around, folder) as entrance:
        began = time.monotonic()
        hand_over = ["--from-log", str(log)] if log else []
        init = _tool(["init", *hand_over, "-o", "job.yaml", "--", *shlex.split(patient.command)], patient, folder, entrance, MOST_INIT_S)
        run = _tool(["run", "job.yaml"], patient, folder, entrance, options.minutes * 60)
        minutes = (time.monotonic() - began) / 60
        after = _state(folder)
        harmed = sorted(name for name, state in before.items() if after.get(name) != state)
        verdict = _verdict(folder)
        fix = _launched(patient, folder, entrance, verdict)
    survived = None if fix is None else not fix["died"]
    marks = scored(patient, verdict, fix_survived=survived, harmed=harmed)
    return {
        "minutes": round(minutes, 1),
        "marks": marks,
        "said": _said(verdict),
        "wanted": list(patient.causes),
        "harmed": harmed,
        "fix_outside": fix,
        "init": init,
        "run": {**run, "text": run["text"][-4000:]},
    }


def _tool(words: list[str], patient: Patient, folder: Path, entrance: Entrance, most_s: float) -> dict[str, Any]:
    """One command of the tool; SIGINT when its time is over, so that it writes what it knows."""
    env = {**_environment(patient, folder, entrance), "PYTHONPATH": str(ROOT), "COLUMNS": "140"}
    output = folder.parent / f"{words[0]}.log"
    began = time.monotonic()
    with output.open("wb") as sink:
        argv = [*entrance.prefix, sys.executable, "-m", "matrix", *words]
        child = subprocess.Popen(
            argv,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            preexec_fn=entrance.enter,
            start_new_session=True,
        )
        for number, patience_s in ((signal.SIGINT, most_s), (signal.SIGKILL, END_S)):
            try:
                child.wait(timeout=patience_s)
                break
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, number)
        status = child.wait()
    text = output.read_text(errors="replace")
    return {"status": status, "seconds": round(time.monotonic() - began, 1), "text": text}


def _state(folder: Path) -> dict[str, str]:
    """Hash of every file of the user's: those that are there before the tool is started."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    inside = [path for path in files if not {"runs", ".hf", "__pycache__"} & set(path.relative_to(folder).parts)]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in inside}


def _verdict(folder: Path) -> dict[str, Any]:
    found = sorted(folder.glob("runs/*/*/verdict.json"))
    return dict(json.loads(found[-1].read_text())) if found else {"status": "no verdict", "ranking": [{}], "runs": 0}


def _launched(patient: Patient, folder: Path, entrance: Entrance, verdict: dict[str, Any]) -> dict[str, Any] | None:
    """How the launch script of the verdict ends in the same surroundings, without the tool; None where there is none."""
    script = next(iter(sorted(folder.glob("runs/*/*/launch.sh"))[-1:]), None)
    if script is None or not verdict.get("fix"):
        return None
    return _outcome(patient, [*entrance.prefix, "sh", str(script), "fixed"], folder, entrance)


def _said(verdict: dict[str, Any]) -> dict[str, Any]:
    first = (verdict.get("ranking") or [{}])[0]
    fix = verdict.get("fix") or {}
    return {
        "status": verdict.get("status"),
        "text": verdict.get("status_text", ""),
        "cause": first.get("cause"),
        "grade": first.get("grade"),
        "probability": round(first.get("probability", 0.0), 3),
        "summary": first.get("summary", ""),
        "culprit": first.get("culprit"),
        "fix": {key: fix[key] for key in ("kind", "set", "env", "limits", "advice", "verified") if fix.get(key)} or None,
        "runs": verdict.get("runs"),
        "complete": verdict.get("complete"),
        "others": {entry["cause"]: round(entry["probability"], 3) for entry in (verdict.get("ranking") or [])[1:4] if "cause" in entry},
    }


if __name__ == "__main__":
    main()
