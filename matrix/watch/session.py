"""One watched run from its start to its report: the order of the stages."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import resource
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from matrix import folder as folders
from matrix import records
from matrix.assembly import Assembly
from matrix.console import SURROUNDINGS
from matrix.diagnosis.signals import by_scheduler
from matrix.evidence import cores, environment
from matrix.preview import plan_of
from matrix.propose import CannotPropose
from matrix.propose.masks import masked
from matrix.propose.words import PYTHON, read
from matrix.records import Attempt, Observation, Outcome, Scheduler, Verdict
from matrix.runner import cgroup
from matrix.runner.collecting import reason_of
from matrix.runner.observe import Raw, observe
from matrix.spec import Spec, load_spec
from matrix.watch import attached, family, judgement, launch, proposal, slurm, words
from matrix.watch.attached import Attached
from matrix.watch.launch import Launched
from matrix.watch.recorder import Options, Recorder, Seen, begin

LONGEST_NAME = 60  # of a folder of runs
SEVERAL = {"RANK": "WORLD_SIZE", "SLURM_PROCID": "SLURM_NTASKS", "OMPI_COMM_WORLD_RANK": "OMPI_COMM_WORLD_SIZE", "PMI_RANK": "PMI_SIZE"}
LARGEST_CORE = 2 << 30  # a larger one takes too long; of it the notes are read, which say what was mapped


@dataclasses.dataclass(frozen=True, kw_only=True)
class Done:
    """What a watched run left."""

    where: Path
    observation: Observation
    outcome: Outcome
    verdict: Verdict
    proposal: Path | None  # a specification; None: there is nothing to settle
    asked: str  # that it had been asked to end; "": it had not


class NotWritten(Exception):
    """The run is over, and its result cannot be written."""

    def __init__(self, status: int, problem: Exception) -> None:
        is_of_a_file = isinstance(problem, OSError) and problem.strerror
        why = f"{problem.filename or 'the run folder'}: {problem.strerror}" if is_of_a_file else reason_of(problem)  # type: ignore[attr-defined]
        super().__init__(f"{why}; the result of the run cannot be written")
        self.status = status


class Notes:
    """Lines for people: all of them in watch.log, warnings always on standard error, the others where that is a terminal."""

    def __init__(self, path: Path, who: str) -> None:
        self.path, self._who = path, who
        self.show: Callable[[str], None] = complain

    def say(self, text: str, warning: bool) -> None:
        line = f"[{self._who} {words.stamp()}] {'WARNING: ' if warning else ''}{text}"
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8", errors="backslashreplace") as sink:  # the disk may be full
            sink.write(line + "\n")
        if warning or os.isatty(2):
            self.show(line)


def complain(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(line + "\n")
        sys.stderr.flush()


class Run:
    """The folder of one watched run, and what is known before it starts."""

    def __init__(self, name: str, argv: Sequence[str], cwd: str, env: dict[str, str], options: Options) -> None:
        """Raises FolderError."""
        self.where = folders.create(name).resolve()
        self.argv, self.cwd, self.env, self.options = list(argv), cwd, env, options
        self.name = self.where.parent.name
        self.notes = Notes(self.where / "watch.log", who(rank_of(os.environ)))
        records.write_text(self.where / "spec.yaml", proposal.as_it_was(self.name, argv, cwd, env), mode=records.PRIVATE)
        self.spec: Spec = load_spec(self.where / "spec.yaml")
        attempt, _ = Assembly(self.spec, self.where).attempt(1, judgement.trial(self.spec), None)
        self.attempt: Attempt = dataclasses.replace(attempt, argv=list(argv), cwd=cwd)
        self.folder = self.where / "attempts" / attempt.id
        self.folder.mkdir(mode=0o700)
        records.write(self.folder / "attempt.json", self.attempt, sync=False)

    def plan(self, notices: Sequence[str]) -> None:
        plan = dataclasses.replace(plan_of(self.spec, 1), strategy="watch", notices=list(notices), command=self.argv)
        records.write(self.where / "plan.json", plan, mode=records.PRIVATE)

    def finish(self, raw: Raw, seen: Seen, unknown: str) -> Done:
        """Everything from the last byte to the verdict."""
        ended = raw.child.ended
        scheduler = slurm.ask(raw.env) if ended and (ended.status or seen.asked_s) else None
        observation, outcome, verdict = self._write(raw, seen, unknown, scheduler)
        cause, _ = by_scheduler(scheduler, raw.started_unix_s + raw.wall_s)
        path = self._proposal(raw.env, observation, verdict) if outcome.kind == "died" and not cause else None
        asked = words.was_asked(observation, seen.asked_s) if ended and seen.asked_s is not None else ""
        return Done(where=self.where, observation=observation, outcome=outcome, verdict=verdict, proposal=path, asked=asked)

    def still_runs(self, raw: Raw, seen: Seen) -> None:
        """It was asked to end: the SIGKILL that may follow must not cost what is known."""
        scheduler = slurm.ask(raw.env)
        why = words.asked(scheduler, raw.started_unix_s + raw.wall_s, raw.progress.last_step)
        self._write(raw, seen, why, scheduler)
        self.notes.say(f"{why}. What is known is written, for a SIGKILL may follow; python -m matrix report {self.where} shows it", True)

    def _write(self, raw: Raw, seen: Seen, unknown: str, scheduler: Scheduler | None) -> tuple[Observation, Outcome, Verdict]:
        limited = dataclasses.replace(self.attempt, memory_limit_bytes=seen.memory_limit_bytes)
        observation = observe(limited, self.folder, raw)
        observation = judgement.as_watched(observation, raw, oom_kills=seen.oom_kills, unknown=unknown, scheduler=scheduler)
        records.write(self.folder / "attempt.json", limited)  # so that a replay runs under it too
        records.write(self.folder / "observation.json", observation)
        if seen.hangs:
            records.write_text(self.folder / "hang.txt", "\n\n".join(hang.text for hang in seen.hangs) + "\n")
        records.write(self.where / "watch.json", seen)
        outcome = judgement.outcome(observation, unknown)
        verdict = judgement.verdict(self.spec, observation, outcome, self.env)
        records.write(self.where / "verdict.json", verdict)
        return observation, outcome, verdict

    def _proposal(self, env: dict[str, str], observation: Observation, verdict: Verdict) -> Path | None:
        path = self.where / "next.yaml"
        try:
            text = proposal.matrix(self.name, self.argv, Path(self.cwd), env, observation, verdict, path)
        except CannotPropose as problem:
            self.notes.say(f"no specification is proposed: {problem}", False)
            return None
        records.write_text(path, text, mode=records.PRIVATE)
        if given := masked(self.argv)[1]:
            self.notes.say(f"{path.name} and the run folder hold what is given with {', '.join(given)} in clear, as runs need it", False)
        return path


# ------------------------------------------------------------------ watch -- COMMAND
def command(argv: Sequence[str], name: str | None, options: Options) -> Done:
    """Run a command as a shell would and record it.  Raises NotStarted, FolderError, NotWritten."""
    program = launch.find(argv[0])
    cwd = str(Path.cwd())
    rank = rank_of(os.environ)
    run = Run((name or name_of(argv)) + ("" if rank is None else f"_rank{rank}"), [program, *argv[1:]], cwd, {}, options)
    with folders.locked(run.where), contextlib.ExitStack() as undo:
        token = f"{family.KIND}-{os.getpid()}-{secrets.token_hex(4)}"
        family.sweep()
        group = None if slurm.job(os.environ) else cgroup.create(token, None)  # or Slurm no longer counts its OOM kills
        if group:
            undo.callback(family.release, group)
        core, core_bytes = _core(cwd)
        env = launch.environment(token, run.folder, hook=options.hook)
        run.plan(list(_notices(options, core)))
        kernel, exits = begin()
        undo.callback(exits.close)
        source = Launched([program, *argv[1:]], env, group, core_bytes)
        undo.callback(source.close)
        run.notes.show = source.say
        source.take_signals()
        undo.callback(source.give_back_signals)
        try:
            recorder = Recorder(
                source, run.folder, token=token, group=group, core=core, env=env, cwd=cwd, options=options, say=run.notes.say,
                asked=run.still_runs,
            )  # fmt: skip
            _begin_notes(run, recorder)
            raw = recorder.run(kernel, exits)
            source.give_back_signals()
            return run.finish(raw, recorder.seen, "")
        except Exception as problem:  # a full disk, or a fault of ours, must not cost the user the run
            if not source.child.over:
                run.notes.say(f"nothing more is recorded: {reason_of(problem)}; the run goes on", True)
                source.only_pass_on()
            ended = source.child.ended
            raise NotWritten(shell_status(os.waitstatus_to_exitcode(ended.status) if ended else 0), problem) from problem


def _core(cwd: str) -> tuple[cores.CorePlan, int | None]:
    """Where a core will land and how large it may be; None: as the user has it."""
    own = resource.getrlimit(resource.RLIMIT_CORE)[0]
    if own != 0:
        return cores.CorePlan(
            folder=Path(cwd), why_not="core files are switched on by the user, who finds them where they always are"
        ), None
    plan = cores.plan(Path(cwd), full=True, limit_bytes=LARGEST_CORE)
    return plan, None if plan.why_not else plan.cap_bytes


def _notices(options: Options, core: cores.CorePlan) -> Iterator[str]:
    yield "one run, watched: nothing is varied, limited or ended by this tool"
    if "PYTHONUNBUFFERED" not in os.environ:
        yield "PYTHONUNBUFFERED is set, so that the last lines before a death are seen"
    if options.hook:
        yield "a hook is loaded by Python processes through PYTHONPATH (--no-hook does without)"
    if not core.why_not:
        yield "core files are made, read and removed"
    if slurm := {
        name: os.environ[name]
        for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_RESTART_COUNT")
        if name in os.environ
    }:
        yield "under Slurm: " + " ".join(f"{name}={value}" for name, value in slurm.items())


# ------------------------------------------------------------------ watch --pid N
def process(pid: int, name: str | None, log: Path | None, options: Options) -> Done:
    """Record a process that is there, until it ends or the user has seen enough.  Raises NoSuchProcess, FolderError."""
    source = Attached(pid, {"stdout": log} if log else {})
    run = Run(name or name_of(source.argv), source.argv, source.cwd, environment.kept(source.env), options)
    with folders.locked(run.where), contextlib.ExitStack() as undo:
        undo.callback(source.close)
        kernel, exits = begin()
        undo.callback(exits.close)
        works = attached.events_work(exits)
        core = cores.CorePlan(folder=Path(source.cwd), why_not="it was started without us: its core files are left where they land")
        run.plan(["one process, watched from outside: what happened before is not known", *_sees(source)])
        source.take_signals()
        undo.callback(source.give_back_signals)
        options = dataclasses.replace(options, hook=False, stop=False)
        try:
            recorder = Recorder(
                source, run.folder, token="", group=None, core=core, env=source.env, cwd=source.cwd, options=options, say=run.notes.say
            )  # fmt: skip
            _begin_notes(run, recorder)
            raw = recorder.run(kernel, exits)
            child = source.child
            unknown = child.settle(exits, events_work=works) if isinstance(child, attached.OtherChild) and child.gone else ""
            source.give_back_signals()
            return run.finish(dataclasses.replace(raw, child=child), recorder.seen, unknown)
        except Exception as problem:
            raise NotWritten(SURROUNDINGS, problem) from problem


def _sees(source: Attached) -> Iterator[str]:
    if source.logs:
        yield "its output is followed in " + ", ".join(str(path) for path in source.logs.values())
    else:
        yield "its output is not seen, so its steps are not known: name its log with --log"


# ------------------------------------------------------------------ both
def _begin_notes(run: Run, recorder: Recorder) -> None:
    run.notes.say(f"run folder: {run.where}", False)
    recorder.collecting("limits at the start", lambda: run.notes.say(words.limits(recorder.bounds.first()), False), None)
    for notice in recorder.collecting("notices about limits", lambda: list(recorder.bounds.notices()), list[str]()):
        run.notes.say(notice, True)


def name_of(argv: Sequence[str]) -> str:
    """Names the run by its program: the script or module, not the interpreter or the launcher."""
    command = read(argv)
    if command.kind == "code" and PYTHON.fullmatch(command.target):
        return "watch_python"
    word = Path(command.target).name if command.kind == "program" else command.stem
    return f"watch_{folders.safe(word)}"[:LONGEST_NAME]


def rank_of(env: Mapping[str, str]) -> int | None:
    """Which of several the recorder itself was started as, by srun, mpirun or a launcher around it; None: it is the only one."""
    for rank, size in SEVERAL.items():
        numbers = env.get(rank, ""), env.get(size, "")
        alone = rank == "SLURM_PROCID" and "SLURM_STEP_ID" not in env  # the batch script has these variables too
        if all(number.isdecimal() for number in numbers) and int(numbers[1]) > 1 and not alone:
            return int(numbers[0])
    return None


def who(rank: int | None) -> str:
    """With which its lines begin: those of several come out mixed."""
    return "watch" if rank is None else f"watch rank {rank}"


def status(done: Done) -> int:
    """The command's own, as a shell gives it."""
    return shell_status(done.observation.exit.returncode or 0)


def shell_status(returncode: int) -> int:
    return returncode if returncode >= 0 else 128 - returncode
