"""Small run folders of a real little program, for the tests of packages."""

from __future__ import annotations

import sys
from pathlib import Path

from matrix.records import Attempt as AttemptRecord
from matrix.records import Cell, Failure, Fix, Progress, Ranked, RateInterval, Verdict, read, write
from tests.reports.run_folders import Story, aborted, finished

PROGRAM = """\
import os, sys
from helper import steps
batch = int(sys.argv[sys.argv.index("--bs") + 1])
out = sys.argv[sys.argv.index("--out") + 1]
os.makedirs(out)
for step in range(steps()):
    print("step", step, flush=True)
    if batch == 32 and step == 2:
        os.abort()
open(os.path.join(out, "model.txt"), "w").write("trained")
"""
BAD: Cell = {"bs": 32}


def aborting(root: Path) -> Path:
    """A program that aborts at batch size 32; the run folder that the tool would leave, with its sources beside it."""
    program = root / "job"
    program.mkdir(parents=True)
    (program / "train.py").write_text(PROGRAM)
    (program / "helper.py").write_text("def steps():\n    return 4\n")
    run = program / "runs" / "aborting" / "20260102-030405"
    story = Story(run, BAD, limit=None)
    died = [_run(story, 32, program) for _ in range(2)]
    _run(story, 8, program)
    _run(story, 16, program)
    ranking = [
        Ranked(cause="native_bad_argument", probability=0.8, grade="supported", summary="it aborts with the largest batch"),
        Ranked(cause="unknown", probability=0.2, grade="suspected", summary=""),
    ]
    fix = Fix(kind="avoids", set={"bs": 8}, cell={"bs": 8}, advice="use a batch of 8", clean_runs=1)
    failure = Failure(id="A", signature="SIGABRT", main=True, ranking=ranking, attempts=died, fix=fix)
    verdict = Verdict(
        name="aborting", complete=True, status="suspected", status_text="suspected", ranking=ranking, fix=fix, failures=[failure],
        crash_rate=RateInterval(low=0.5, median=0.9, high=1.0), never_tested=["Batches larger than 32 were not run."],
    )  # fmt: skip
    folder = story.end(verdict, {"bs": [8, 16, 32]})
    (folder / "spec.yaml").write_text("name: aborting\nrun: {command: [python, train.py]}\nmatrix: {bs: [8, 16, 32]}\n")
    return folder


def _run(story: Story, batch: int, program: Path) -> str:
    exit_ = aborted() if batch == 32 else finished()
    last = 2 if batch == 32 else 3
    progress = Progress(last_step=last, first_step_s=0.1, last_step_s=0.2, last_line=f"step {last}")
    name = story.run({"bs": batch}, exit_, steps=last, wall_s=1.0, progress=progress)
    folder = story.root / "attempts" / name
    attempt = read(AttemptRecord, folder / "attempt.json")
    argv = [sys.executable, "train.py", "--bs", str(batch), "--out", f"{folder.resolve()}/out"]
    changed = {**vars(attempt), "argv": argv, "env": {"MX_COLOUR": "blue"}, "cwd": str(program)}
    write(folder / "attempt.json", AttemptRecord(**changed))
    (folder / "out").mkdir()
    return name
