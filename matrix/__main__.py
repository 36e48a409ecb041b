"""`python -m matrix`: the commands.  Heavy imports stay inside them, so that `--help` starts at once.

Exit codes: 0 done (also when variants died), 2 bad input, 3 the surroundings failed, 130 interrupted and resumable.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

if TYPE_CHECKING:
    from matrix.records import Verdict
    from matrix.spec import Spec

BAD_INPUT, SURROUNDINGS, INTERRUPTED = 2, 3, 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Find out why a training job dies without a traceback."""


@main.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--resume", is_flag=True, help="Go on with the newest run of this name; nothing complete is run twice.")
@click.option("--strategy", help="Instead of the specification's search strategy.")
@click.option("--max-runs", type=click.IntRange(min=1), help="Instead of the specification's budget.")
@click.option("--jobs", type=click.IntRange(min=1), help="Attempts side by side.")
@click.option("--set", "overrides", multiple=True, metavar="AXIS=V,V", help="Use only these values of an axis; may be repeated.")
def run(spec: Path, resume: bool, strategy: str | None, max_runs: int | None, jobs: int | None, overrides: tuple[str, ...]) -> None:
    """Run the matrix of SPEC and write the report."""
    with errors():
        loaded = load(spec, strategy=strategy, max_runs=max_runs, overrides=overrides)
        check_program(loaded)
        from matrix import folder as folders

        where = folders.latest(loaded.name) if resume else folders.create(loaded.name)
        with folders.locked(where):
            execute(loaded, where, jobs)


@main.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--strategy", help="Instead of the specification's search strategy.")
@click.option("--max-runs", type=click.IntRange(min=1), help="Instead of the specification's budget.")
@click.option("--jobs", type=click.IntRange(min=1), help="Attempts side by side.")
@click.option("--set", "overrides", multiple=True, metavar="AXIS=V,V", help="Use only these values of an axis; may be repeated.")
def plan(spec: Path, strategy: str | None, max_runs: int | None, jobs: int | None, overrides: tuple[str, ...]) -> None:
    """Show what `run` would do; runs nothing."""
    with errors():
        loaded = load(spec, strategy=strategy, max_runs=max_runs, overrides=overrides)
        check_program(loaded)
        from matrix.preview import preview

        click.echo(preview(loaded, jobs))


@main.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path))
def report(run_folder: Path) -> None:
    """Write the report of RUN (a run folder, or a name) again from its files."""
    with errors():
        from matrix import folder as folders

        for path in write_report(folders.find(run_folder)):
            click.echo(path)


@main.command()
def schema() -> None:
    """Print the JSON Schema of the specification, for editors."""
    from matrix.spec import schema as spec_schema

    click.echo(json.dumps(spec_schema(), indent=2))


# ------------------------------------------------------------------ the parts of `run`
def execute(spec: Spec, where: Path, jobs: int | None) -> None:
    from matrix import records
    from matrix.executors.local import LocalPool, clean_up_after_the_dead
    from matrix.planner import Planner
    from matrix.preview import jobs_of, plan_of
    from matrix.view import LiveView, PlainView

    plan = plan_of(spec, jobs_of(spec, jobs))
    records.write(where / "plan.json", plan)
    if spec.source:
        records.write_text(where / "spec.yaml", spec.source.read_text(encoding="utf-8"))
    click.echo(f"run folder: {where}")
    for notice in plan.notices:
        click.echo(f"note: {notice}")
    clean_up_after_the_dead()
    interruptible()
    with LocalPool(plan.jobs) as pool, LiveView() if sys.stdout.isatty() else PlainView() as view:
        planner = Planner(spec, where, pool, view)
        try:
            verdict = planner.run()
        except KeyboardInterrupt:
            planner.stop()
            write_report(where)
            click.echo(f"\ninterrupted; what is complete is kept. Go on with: python -m matrix run {spec.source} --resume", err=True)
            sys.exit(INTERRUPTED)
    write_report(where)
    click.echo(summary(verdict, where))


def summary(verdict: Verdict, where: Path) -> str:
    lines = ["", verdict.status_text]
    lines += [f"  {entry.probability:6.1%}  {entry.cause} ({entry.grade}): {entry.summary}" for entry in verdict.ranking[:3]]
    if verdict.fix:
        change = " ".join(f"{name}={value}" for name, value in verdict.fix.set.items())
        lines.append(f"fix: {change} ({verdict.fix.kind}; {verdict.fix.clean_runs} clean runs)")
    lines += [
        f"not a fix: {' '.join(f'{n}={v}' for n, v in fix.set.items())} only hides it" for fix in verdict.other_fixes if fix.kind == "hides"
    ]
    return "\n".join([*lines, f"report: {where / 'report.html'}  {where / 'report.md'}"])


def write_report(where: Path) -> list[Path]:
    import reports

    return reports.write(where)


def load(path: Path, *, strategy: str | None, max_runs: int | None, overrides: tuple[str, ...]) -> Spec:
    from matrix.spec import load_spec
    from matrix.spec.override import override

    spec = load_spec(path)
    search = {name: value for name, value in (("strategy", strategy), ("max_runs", max_runs)) if value is not None}
    if not search and not overrides:
        return spec
    return override(spec, search=search, axes=dict(axis_override(text) for text in overrides))


def axis_override(text: str) -> tuple[str, list[str]]:
    name, equals, values = text.partition("=")
    if not equals or not name or not values:
        raise click.UsageError(f"--set {text}: write it as axis=value,value")
    return name, values.split(",")


def check_program(spec: Spec) -> None:
    """The program must be there before anything is started."""
    from matrix.planner import command, working_folder

    cwd = working_folder(spec)
    if not cwd.is_dir():
        fail(f"run.cwd: the folder {cwd} does not exist; it is relative to the specification's folder {spec.base_dir}", BAD_INPUT)
    program = command(spec.run.command)[0]
    path = spec.run.env.get("PATH", os.environ.get("PATH"))
    found = shutil.which(program, path=path) if os.sep not in program else shutil.which(str(cwd / program))
    if not found:
        where = f"in {cwd}" if os.sep in program else "on PATH"
        fail(f"run.command: {program!r} was not found (or is not executable) {where}; give the full path of the program", BAD_INPUT)
    for name in spec.run.writes:
        if not (cwd / name).exists():
            fail(f"run.writes: {cwd / name} does not exist; each attempt gets a fresh copy of it, so make it first", BAD_INPUT)


@contextlib.contextmanager
def errors() -> Iterator[None]:
    """Bad input and failing surroundings become one clear message and the exit code of the contract."""
    from matrix.folder import FolderError
    from matrix.runner.launcher import RunnerError
    from matrix.spec import SpecError

    try:
        yield
    except SpecError as problem:
        fail(str(problem), BAD_INPUT)
    except (FolderError, RunnerError) as problem:
        fail(str(problem), SURROUNDINGS)
    except OSError as problem:
        fail(f"{problem.filename or 'the system'}: {problem.strerror}", SURROUNDINGS)
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)


def interruptible() -> None:
    """SIGTERM and a lost terminal end a run as Ctrl-C does: tidily, and resumable.  Under nohup SIGHUP stays ignored."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, interrupt)


def fail(message: str, code: int) -> NoReturn:
    click.echo(message, err=True)
    sys.exit(code)


if __name__ == "__main__":
    main(prog_name="python -m matrix")
