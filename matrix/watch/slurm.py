"""What Slurm says of the job that this runs in: by its variables, and by `scontrol show job`."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import time
from collections.abc import Mapping

from matrix.records import Scheduler

ASK_S = 5.0  # a controller that is busy does not hold up the recorder
FIELD = re.compile(r"\b(JobState|Reason|EndTime|PreemptTime|Restarts)=(\S+)")
WHEN = "%Y-%m-%dT%H:%M:%S"


def job(env: Mapping[str, str]) -> str | None:
    """Number of the job that a process with this environment belongs to; None: of none."""
    return env.get("SLURM_JOB_ID") or None


def ask(env: Mapping[str, str]) -> Scheduler | None:
    """What Slurm says now; None outside of it.  Fields that it does not tell have their defaults."""
    number = job(env)
    if number is None:
        return None
    found = _shown(number)
    return Scheduler(
        name="slurm",
        job=number,
        state=found.get("JobState", ""),
        reason=found.get("Reason", "None").replace("None", ""),
        preempted=_time(found.get("PreemptTime", "")) is not None,
        ends_unix_s=_time(found.get("EndTime", "")) or _number(env.get("SLURM_JOB_END_TIME", "")),
        requeued=int(found.get("Restarts", 0)) > (_number(env.get("SLURM_RESTART_COUNT", "")) or 0),
    )


def ends(env: Mapping[str, str]) -> float | None:
    """When the time of the job is over; None: outside of Slurm, or without a limit."""
    if job(env) is None:
        return None
    told = _number(env.get("SLURM_JOB_END_TIME", ""))  # set by Slurm 23.02 and later
    return told or _time(_shown(env["SLURM_JOB_ID"]).get("EndTime", ""))


def _shown(number: str) -> dict[str, str]:
    if not (program := shutil.which("scontrol")):
        return {}
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):  # a number with a NUL is none
        argv = [program, "show", "job", number]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=ASK_S)
        return dict(FIELD.findall(done.stdout.decode(errors="replace")))
    return {}


def _time(text: str) -> float | None:
    with contextlib.suppress(ValueError, OverflowError):
        return time.mktime(time.strptime(text, WHEN))
    return None


def _number(text: str) -> float | None:
    with contextlib.suppress(ValueError):
        return float(text)
    return None
