"""`watch`: the flight recorder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from matrix.console import BAD_INPUT, INTERRUPTED, Span, complain, errors, fail


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument("argv", metavar="-- COMMAND...", nargs=-1, type=click.UNPROCESSED)
@click.option("--pid", type=click.IntRange(min=1), help="Watch a process that runs already; it is never stopped.")
@click.option("--log", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="With --pid: the file that its output goes to.")
@click.option("--name", help="Of the run folder, runs/NAME; else the program's.")
@click.option("--progress", metavar="REGEX", help="Pattern of a step, with a group named step; common forms are understood without.")
@click.option("--hang-after", type=Span(), default="5m", show_default=True, help="Silence that is told as a hang; nothing is ended.")
@click.option("--every", type=Span(), default="30s", show_default=True, help="Time between lines about the state, on a terminal.")
@click.option("--no-hook", is_flag=True, help="Load nothing into the program's Python processes; less is known then.")
def watch(
    argv: tuple[str, ...],
    pid: int | None,
    log: Path | None,
    name: str | None,
    progress: str | None,
    hang_after: float,
    every: float,
    no_hook: bool,
) -> None:
    """Run COMMAND, or follow a process, and record what would explain its death; warn before a limit is met.

    The exit status is COMMAND's own; of --pid 0, or 130 when Ctrl-C ended the watching."""
    if bool(argv) == (pid is not None):
        raise click.UsageError("give either a command, `watch -- python train.py`, or a process, `watch --pid 1234`")
    if log and pid is None:
        raise click.UsageError("--log goes with --pid: the output of a command is seen without it")
    with errors():
        check_progress(progress)
        from matrix.watch import session, words
        from matrix.watch.attached import NoSuchProcess
        from matrix.watch.launch import NotStarted
        from matrix.watch.recorder import Options

        options = Options(progress=progress, hang_s=hang_after, every_s=every if sys.stderr.isatty() else None, hook=not no_hook)
        try:
            done = session.process(pid, name, log, options) if pid else session.command(argv, name, options)
        except (NotStarted, NoSuchProcess) as problem:
            fail(str(problem), BAD_INPUT)
        except session.NotWritten as problem:
            fail(f"[watch] {problem}", problem.status)
        try:
            for line in words.summary(done.observation, done.outcome, done.verdict, done.where, done.proposal, done.asked):
                complain(f"[{session.who(session.rank_of(os.environ))}] {line}")
            import reports

            reports.write(done.where)
        except (KeyboardInterrupt, Exception) as problem:  # the status below is the program's own, whatever fails here
            why = f": {problem}" if str(problem) else ""
            complain(f"[watch] the report was not written{why}; python -m matrix report {done.where} does that")
    if pid:
        sys.exit(INTERRUPTED if done.observation.exit.ended_by == "interrupt" else 0)
    sys.exit(session.status(done))


def check_progress(pattern: str | None) -> None:
    if pattern is None:
        return
    from matrix.user_pattern import BadPattern, check

    try:
        check(pattern)
    except BadPattern as problem:
        raise click.UsageError(f"--progress: {problem}") from problem
