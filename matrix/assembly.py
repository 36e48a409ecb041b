"""From a trial to an attempt: the command, its environment, limits and placeholders, and the key that resume goes by."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from matrix.evidence.used_files import Given, words_that_name_files
from matrix.records import Attempt, Cell, Observation, Trial, UsedFile
from matrix.runner import probes
from matrix.runner.attempt import Job, context
from matrix.runner.launcher import inherited
from matrix.runner.patience import Limits
from matrix.spec import Spec
from matrix.spec.fingerprint import fingerprint, own_files
from matrix.spec.model import Limits as SpecLimits
from matrix.spec.placeholders import NAMES, fill
from matrix.taught import NOTHING_TAUGHT, Taught

GAPS = 10  # idle and stall are never shorter than this many times the longest gap of a surviving run
CAN_BIND = hasattr(os, "sched_setaffinity")  # macOS has no way to bind a process to processors
Holders = dict[str, str]  # placeholder -> what it stands for in one attempt


class Assembly:
    """Of one specification in one run folder."""

    def __init__(self, spec: Spec, folder: Path) -> None:
        self.spec = spec
        self.folder = folder
        self.program = fingerprint(command(spec.run.command), working_folder(spec))
        self._used: dict[str, list[UsedFile]] = {}  # by the hash of a cell

    def attempt(self, number: int, trial: Trial, cpus: list[int] | None) -> tuple[Attempt, Holders]:
        """The attempt with that number, and what its placeholders stand for."""
        spec = self.spec
        name = f"{number:04d}-{cell_hash(trial.cell)}"
        holders = {
            "attempt_dir": str(self.folder / "attempts" / name),
            "attempt": str(number),
            "port": str(_free_port()),
            "cpu_list": ",".join(map(str, cpus if cpus is not None else usable_cpus())),
            "gpu": "",
        }
        launch = spec.launch(trial.cell, max_steps=trial.max_steps, placeholders=holders)
        attempt = Attempt(
            id=name,
            trial=trial,
            argv=command(launch.argv),
            env=launch.env,
            cwd=str(working_folder(spec)),
            key=self.key(trial),
            program=self.program,
            memory_limit_bytes=spec.limits.memory_bytes,
            cpus=cpus,
        )
        return attempt, holders

    def key(self, trial: Trial) -> str:
        """Equal for attempts that answer the same question: the cell, the command and what shapes what is observed.

        The number of an attempt, its port, the place of the program and its limits are no part of the question; `adoption` asks
        whether the files of the program are the same, and whether an edited limit could have mattered."""
        spec = self.spec
        constant = spec.launch(trial.cell, max_steps=trial.max_steps, placeholders={name: f"<{name}>" for name in NAMES})
        argv = [self._placeless(word) for word in command(constant.argv)]
        env = {name: self._placeless(value) for name, value in constant.env.items()}
        what = [argv, env, self._placeless(spec.run.cwd), trial.cell, trial.max_steps, trial.probes, trial.watched]
        how = [spec.run.model_dump(exclude={"command", "env", "cwd", "length"}), spec.evidence.model_dump(exclude={"control"})]
        return hashlib.sha256(json.dumps([what, how], sort_keys=True).encode()).hexdigest()[:24]

    def _placeless(self, word: str) -> str:
        """The word without the place of the program, which may be moved."""
        for place, name in ((working_folder(self.spec), "<cwd>"), (self.spec.base_dir.resolve(), "<spec>")):
            word = re.sub(re.escape(str(place)) + r"(?=$|[/:,])", name, word) if len(place.parts) > 1 else word
        return word

    def files(self, attempt: Attempt, *, hook: bool) -> Given:
        """Files of the program that can be told before it runs; without a hook also those that the same cell used before."""
        cwd = working_folder(self.spec)
        code = {str(path.resolve()) for path in own_files(attempt.argv, cwd)}
        data = words_that_name_files(attempt.argv, attempt.env, cwd)
        before = [] if hook else self._used.get(cell_hash(attempt.trial.cell), [])
        code |= {str(cwd / file.name) for file in before if file.kind == "code"}
        data += [str(cwd / file.name) for file in before if file.kind == "data"]
        return Given(code=tuple(sorted(code)), data=tuple(data), output=str(self.folder))

    def remember(self, observation: Observation) -> None:
        """Keep which files an attempt used, for later attempts of its cell that have no hook."""
        self._used.setdefault(cell_hash(observation.trial.cell), []).extend(observation.files)

    def job(self, attempt: Attempt, holders: Holders, *, stacks: bool, taught: Taught = NOTHING_TAUGHT) -> Job:
        """What the runner is given; `taught`: what the runs so far have shown of how to follow this program."""
        spec, limits = self.spec, self.spec.limits
        patience = Limits(
            wall_s=limits.wall_s,
            startup_s=taught.startup_s or limits.startup_s,
            quiet_startup_s=taught.quiet_startup_s,
            idle_s=_at_least(limits.idle_s, GAPS * taught.longest_gap_s),
            stall_s=_at_least(limits.stall_s, GAPS * taught.longest_gap_s),
        )
        hook = spec.evidence.hook and attempt.trial.watched
        return Job(
            attempt=attempt,
            folder=self.folder / "attempts" / attempt.id,
            limits=patience,
            progress=spec.run.progress,
            learnt=taught.steps,
            finished=spec.run.finished,
            stop_after_step=attempt.trial.max_steps if spec.run.length is None else None,
            stop_after_s=taught.stop_after_s,
            stop_beyond_step=taught.stop_beyond_step,
            writes=tuple(self._writes(holders)),
            rlimits=rlimits(limits),
            pids=limits.pids,
            pty=spec.run.pty,
            unbuffered=spec.run.unbuffered,
            hook=hook,
            core=spec.evidence.cores and attempt.trial.watched,
            watch=spec.evidence.watch and attempt.trial.watched,
            stacks=stacks,
            files=self.files(attempt, hook=hook),
            asked_limits=limits.model_dump(),
        )

    def unavailable(self, trial: Trial, cpus: list[int] | None = None) -> str | None:
        """Why a probe of that trial cannot be had here; None: all can, as far as can be told before."""
        if not trial.probes:
            return None
        attempt, holders = self.attempt(0, trial, cpus)
        start = context(self.job(attempt, holders, stacks=False), Path(tempfile.gettempdir()), inherited())
        reasons = ((name, probes.unavailable(name, setting, start)) for name, setting in trial.probes.items())
        return next((f"probe {name}: {reason}" for name, reason in reasons if reason), None)

    def _writes(self, holders: Holders) -> Iterator[Path]:
        """What a copy is needed of; a path below {attempt_dir} is the attempt's own and not there yet."""
        paths = (working_folder(self.spec) / fill(text, holders) for text in self.spec.run.writes)
        return (path for path in paths if path.exists())


def command(argv: list[str]) -> list[str]:
    """A bare `python` is the interpreter that runs the tool, as in tox and nox: the one that has the program's packages."""
    return [sys.executable, *argv[1:]] if argv[0] in ("python", "python3") else list(argv)


def working_folder(spec: Spec) -> Path:
    return (spec.base_dir / spec.run.cwd).resolve()


def usable_cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if CAN_BIND else list(range(os.cpu_count() or 1))


def cell_hash(cell: Cell) -> str:
    return hashlib.sha256(json.dumps(cell, sort_keys=True).encode()).hexdigest()[:8]


def rlimits(limits: SpecLimits) -> dict[str, tuple[int, int]]:
    """Soft and hard limits of the child as setrlimit takes them."""
    found: dict[str, int | None] = {
        "RLIMIT_NOFILE": limits.nofile,
        "RLIMIT_STACK": limits.stack_bytes,
        "RLIMIT_CORE": limits.core_bytes,
        "RLIMIT_AS": limits.address_space_bytes,
        "RLIMIT_DATA": limits.data_bytes,
        "RLIMIT_FSIZE": limits.file_size_bytes,
        "RLIMIT_NPROC": limits.processes,
    }
    both = {name: (value, value) for name, value in found.items() if value is not None}
    if limits.cpu_time_s is None:
        return both
    seconds = math.ceil(limits.cpu_time_s)
    return {**both, "RLIMIT_CPU": (seconds, seconds + 1)}  # SIGXCPU at the soft limit says what happened, SIGKILL at the hard one does not


def _at_least(limit: float | None, least: float) -> float | None:
    return None if limit is None else max(limit, least)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
