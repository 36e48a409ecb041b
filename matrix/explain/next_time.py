"""What to collect next time, as commands: only what is missing here, and would tell more about this death."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence

from matrix.evidence.cores import SIGNALS
from matrix.explain.remains import Explained
from matrix.explain.slurm import SACCT


@dataclasses.dataclass(frozen=True, kw_only=True)
class Advice:
    command: str
    tells: str
    now: bool = False  # may still be there: worth trying before the next run


def advice(found: Explained) -> list[Advice]:
    return [*_still_there(found), *_next_run(found)]


def next_command(logs: Sequence[str], argv: Sequence[str] = ()) -> str:
    """Running it again on purpose is what proves a cause."""
    log = next((f"--from-log {shlex.quote(name)} " for name in logs if name != "stdin" and not name.startswith("/dev/")), "")
    return (
        f"python -m matrix init {log}-- {shlex.join(argv) or 'COMMAND'}   # then: python -m matrix run NAME.yaml, the file that it writes"
    )


def _still_there(found: Explained) -> Iterator[Advice]:
    kinds, sender = found.kinds, found.sender
    proven = sender is not None and sender.grade == "kernel, proven"
    if sender and not proven:
        yield Advice(
            command="sudo dmesg -T | grep -iE 'killed process|oom-kill' > kernel.log   # or: journalctl -k --since '2 hours ago'",
            tells="whether the kernel's out-of-memory killer did it, with the pid: give it together with the log",
            now=True,
        )
    if "slurm" in kinds and not any("ExitCode" in piece.read for piece in found.pieces):
        yield Advice(command=f"{SACCT} > sacct.txt", tells="the state and the exit of every step, and its memory", now=True)
    if "kubernetes" in kinds:
        yield Advice(
            command="kubectl logs POD --previous > previous.log; kubectl get events --field-selector involvedObject.name=POD",
            tells="the output of the container that died, and who decided to end it; events are kept for an hour",
            now=True,
        )
    if _crashed(found) and not _has_core(found):
        yield Advice(
            command="coredumpctl list; cat /proc/sys/kernel/core_pattern",
            tells="whether a core of this death is kept somewhere: `coredumpctl dump PID > core`, then --core core",
            now=True,
        )


def _next_run(found: Explained) -> Iterator[Advice]:
    kinds = found.kinds
    if found.ending is None:
        yield Advice(command='COMMAND; echo "status $?"', tells="how it ended: a status, or 128 + the signal")
    if "output" not in kinds:
        yield Advice(command="COMMAND > train.log 2>&1", tells="the last words of the program and of its libraries, stderr above all")
    if _crashed(found) and not found.observation.crash_dumps:
        yield Advice(command="export PYTHONFAULTHANDLER=1", tells="the Python line at which native code crashed, on stderr")
    if _crashed(found) and not _has_core(found):
        yield Advice(command="ulimit -c unlimited", tells="a core: the native stack, the address, and every library at that moment")
    if "output" in kinds or found.observation.progress.last_step is not None:
        yield Advice(command="export PYTHONUNBUFFERED=1", tells="the last lines: a killed process loses what it had not flushed")
    if any(message.kind in ("cuda assert", "cuda error") for message in found.observation.messages):
        yield Advice(command="export CUDA_LAUNCH_BLOCKING=1", tells="the line that started the kernel that failed")
    yield Advice(
        command="python -m matrix watch -- COMMAND",
        tells="all of this at once: who sent a signal, memory until the last moment, stacks, libraries, the kernel's counters",
    )


def _crashed(found: Explained) -> bool:
    first = found.observation.exit.signal
    return first in SIGNALS


def _has_core(found: Explained) -> bool:
    return bool(found.kinds & {"core", "crash report"})
