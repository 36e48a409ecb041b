"""`python -m matrix`: the commands.  Heavy imports stay inside them, so that `--help` starts at once.

Exit codes: 0 done (also when variants died), 1 the answer is bad (`verify`, `replay`), 2 bad input,
3 the surroundings failed, 130 interrupted and resumable.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from matrix import _stop as ended_at_once
from matrix.completion import names
from matrix.completion.command import completion
from matrix.console import (
    BAD_INPUT,
    INTERRUPTED,
    SURROUNDINGS,
    WRONG,
    any_letter_can_be_printed,
    asked_to_end,
    complain,
    errors,
    fail,
    only_our_warnings_are_shown,
    signals_interrupt,
)
from matrix.doctor.command import doctor
from matrix.evidence.own_limits import bound_bytes, lift_limits, why_no_pictures
from matrix.explain.command import explain
from matrix.propose.command import init
from matrix.watch.command import watch

if TYPE_CHECKING:
    from matrix.records import Verdict
    from matrix.spec import Spec
    from matrix.spec.problems import Problem


SET_HELP = "Use only these values of an axis, or of a flag in the command; or a key: limits.wall=60s. May be repeated."


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Find out why a training job dies without a traceback."""
    if signal.getsignal(signal.SIGINT) is ended_at_once:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # from here on each command ends tidily
    any_letter_can_be_printed()
    lift_limits()
    only_our_warnings_are_shown()


@main.command()
@click.argument("spec", type=click.Path(path_type=Path), shell_complete=names.specifications)
@click.option("--resume", is_flag=True, help="Go on with the newest run of this name; nothing complete is run twice.")
@click.option("--strategy", help="Instead of the specification's search strategy.")
@click.option("--max-runs", type=click.IntRange(min=1), help="Instead of the specification's budget.")
@click.option("--max-wall", metavar="TIME", help="Longest time for the whole matrix, as 10m; instead of the specification's.")
@click.option("--jobs", type=click.IntRange(min=1), help="Attempts side by side.")
@click.option("--set", "overrides", multiple=True, metavar="NAME=V,V", help=SET_HELP)
def run(
    spec: Path,
    resume: bool,
    strategy: str | None,
    max_runs: int | None,
    max_wall: str | None,
    jobs: int | None,
    overrides: tuple[str, ...],
) -> None:
    """Run the matrix of SPEC and write the report."""
    with errors("put that right and go on with --resume: what is complete is kept"):
        signals_interrupt()
        loaded = load(spec, {"strategy": strategy, "max_runs": max_runs, "max_wall": max_wall}, overrides)
        check_program(loaded)
        from matrix import folder as folders

        where = folders.latest(loaded.name) if resume else folders.create(loaded.name)
        with folders.locked(where):
            execute(loaded, where, jobs)


@main.command()
@click.argument("spec", type=click.Path(path_type=Path), shell_complete=names.specifications)
@click.option("--strategy", help="Instead of the specification's search strategy.")
@click.option("--max-runs", type=click.IntRange(min=1), help="Instead of the specification's budget.")
@click.option("--max-wall", metavar="TIME", help="Longest time for the whole matrix, as 10m; instead of the specification's.")
@click.option("--jobs", type=click.IntRange(min=1), help="Attempts side by side.")
@click.option("--set", "overrides", multiple=True, metavar="NAME=V,V", help=SET_HELP)
def plan(
    spec: Path, strategy: str | None, max_runs: int | None, max_wall: str | None, jobs: int | None, overrides: tuple[str, ...]
) -> None:
    """Show what `run` would do; runs nothing."""
    with errors():
        loaded = load(spec, {"strategy": strategy, "max_runs": max_runs, "max_wall": max_wall}, overrides)
        check_program(loaded)
        from matrix.preview import preview

        click.echo(preview(loaded, jobs))


@main.command()
@click.argument("run_folders", metavar="RUN", nargs=-1, required=True, type=click.Path(path_type=Path), shell_complete=names.runs)
@click.option("--json", "form", flag_value="json", help="Print the verdict, configurations and attempts as JSON.")
@click.option("--csv", "form", flag_value="csv", help="Print one line for each attempt.")
@click.option("--junit", "form", flag_value="junit", help="Print JUnit XML: one test case for each configuration.")
@click.option("--summary", "form", flag_value="summary", help='Print a page of markdown, for >> "$GITHUB_STEP_SUMMARY".')
@click.option("--compare", is_flag=True, help="Hold two runs against each other: RUN RUN, before and after.")
def report(run_folders: tuple[Path, ...], form: str | None, compare: bool) -> None:
    """Write the report of RUN (a run folder, or a name) again from its files; with an option, print it for machines instead."""
    if len(run_folders) != (2 if compare else 1):
        raise click.UsageError("--compare takes two runs: RUN RUN, before and after" if compare else "give one RUN, or two with --compare")
    if compare and form not in {None, "json"}:
        raise click.UsageError(f"--compare writes a page, or JSON with --json; it has no --{form}")
    with errors():
        import reports
        from matrix import folder as folders

        found = [folders.find(given) for given in run_folders]
        if form:
            click.echo(reports.compare_json(*found) if compare else reports.export(found[0], form), nl=False)
        else:
            for path in reports.compare(*found) if compare else write_report(found[0]):
                click.echo(path)


@main.command()
@click.argument("spec", type=click.Path(path_type=Path), shell_complete=names.specifications)
@click.option("--try", "words", multiple=True, metavar="WORDS", help="Words for the command that make a run shorter; may be repeated.")
@click.option("--run", "run_folder", type=click.Path(path_type=Path), help="Where the long death is; else the newest run of SPEC.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="The shorter specification; else SPEC with .short before its ending.")
def shorten(spec: Path, words: tuple[str, ...], run_folder: Path | None, out: Path | None) -> None:
    """Bring a death that takes long forward, and show that it stayed the same death."""
    with errors():
        signals_interrupt()
        from matrix import folder as folders
        from matrix import shorten as short

        loaded = load(spec)
        check_program(loaded)
        long = folders.find(run_folder) if run_folder else folders.latest(loaded.name)
        where = folders.create(f"{loaded.name}_short")
        best = None
        with folders.locked(where):
            try:
                for tried in short.shorten(loaded, long, words, where):
                    click.echo(f"{tried.candidate.what}: {'the same death' if tried.same else 'not the same'}: {tried.why}")
                    best = tried if tried.same and (best is None or tried.wall_s < best.wall_s) else best
            except short.CannotShorten as problem:
                fail(str(problem), BAD_INPUT)
        if best is None:
            fail("nothing made the same death come sooner; the specification is left as it is", WRONG)
        target = out or spec.with_suffix(f".short{spec.suffix}")
        short.write(loaded, best, target)
        click.echo(f"written: {target}. Go on with: python -m matrix run {target}")


@main.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path), shell_complete=names.runs)
@click.option("--minimal/--extended", default=True, help="The chosen attempts; or all of them, pip freeze and the specification's history.")
@click.option("--cores", is_flag=True, help="Also core files: the memory of a process, from which only known secrets can be taken out.")
@click.option("-o", "--out", type=click.Path(path_type=Path), help="Instead of package-minimal.zip in the run folder.")
@click.option("--max-size", default=100, show_default=True, type=click.IntRange(min=1), metavar="MIB", help="Most that it takes unpacked.")
@click.option("--dry-run", is_flag=True, help="Only list what would be packed and what not.")
def package(run_folder: Path, minimal: bool, cores: bool, out: Path | None, max_size: int, dry_run: bool) -> None:
    """Pack what an outside expert needs of RUN, without secrets."""
    with errors():
        from matrix import folder as folders
        from matrix.packages import pack

        kind: Literal["minimal", "extended"] = "minimal" if minimal else "extended"
        if path := pack(folders.find(run_folder), kind, cores=cores, out=out, max_mib=max_size, dry_run=dry_run):
            click.echo(path)


@main.command()
@click.argument("archive", metavar="PACKAGE", type=click.Path(path_type=Path))
def verify(archive: Path) -> None:
    """Check PACKAGE against its manifest; exit status 1 when anything differs."""
    with errors():
        from matrix.packages import verify as check

        if differences := check(archive):
            fail("\n".join(differences), WRONG)
        click.echo(f"{archive}: every file is as the manifest says")


@main.command(name="open")
@click.argument("archive", metavar="PACKAGE", type=click.Path(path_type=Path))
@click.option("--to", type=click.Path(path_type=Path), help="Unpack into this new folder instead of a temporary one.")
@click.option("--browser", is_flag=True, help="Show the report in a browser.")
def open_package(archive: Path, to: Path | None, browser: bool) -> None:
    """Unpack PACKAGE, unless that is not safe, and print where its report is."""
    with errors():
        from matrix.packages import unpack

        click.echo(report := unpack(archive, to))
        if browser:
            click.launch(str(report))


@main.command()
@click.argument("run_folder", metavar="RUN", type=click.Path(path_type=Path), shell_complete=names.runs)
@click.argument("attempt", shell_complete=names.attempts)
def replay(run_folder: Path, attempt: str) -> None:
    """Run ATTEMPT of RUN again; exit status 0 when it ends alike, 1 when not."""
    with errors():
        signals_interrupt()
        from matrix import folder as folders
        from matrix.replay import replay as run_again

        done = run_again(folders.find(run_folder), attempt)
        for text in done.lines():
            click.echo(text)
        if not done.alike:
            sys.exit(WRONG)


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
    from matrix.runner.launcher import adopt_orphans
    from matrix.view import view_for

    plan = plan_of(spec, jobs_of(spec, jobs))
    plan = dataclasses.replace(plan, notices=[*plan.notices, *_secret_notices(spec)])
    records.write(where / "plan.json", plan, mode=records.PRIVATE)
    if spec.source:
        text = spec.source.read_text(encoding="utf-8", errors="replace")
        records.write_text(where / "spec.yaml", text, mode=records.PRIVATE)
    click.echo(f"run folder: {where}")
    for part in where.glob(".*.part"):  # of a tool that was killed while it wrote
        part.unlink()
    complete = len(list((where / "attempts").glob("*/observation.json")))
    resumed = [f"{complete} attempts are complete; of those, what the same program is asked for again is not run again"] if complete else []
    for notice in [*plan.notices, *resumed]:
        click.echo(f"note: {notice}")
    clean_up_after_the_dead()
    adopt_orphans()
    with LocalPool(plan.jobs) as pool, view_for(plan, spec.search.max_wall_s) as view:
        planner = Planner(spec, where, pool, view)
        with asked_to_end() as asked:
            verdict = planner.run(asked)
    interrupted = asked.is_set() and not verdict.complete
    if interrupted:
        complain(f"interrupted; what is complete is kept. Go on with: {resume_command()}")
    elif planner.edited:
        complain(
            f"{planner.edited} was changed while the matrix ran, so the runs before and after are of two programs. "
            f"Runs of the program as it is now count when you go on with: {resume_command()}"
        )
    else:
        click.echo(summary(verdict))
    draw_report(where)
    if interrupted:
        sys.exit(INTERRUPTED)
    if planner.edited:
        sys.exit(SURROUNDINGS)
    click.echo(f"report: {where / 'report.html'}  {where / 'report.md'}")


def _secret_notices(spec: Spec) -> list[str]:
    """Say that the run folder holds the secrets that the runs are given."""
    from matrix.assembly import command
    from matrix.propose.masks import masked

    words = [*command(spec.run.command), *(f"{name}={value}" for name, value in spec.run.env.items())]
    given = masked(words)[1]
    if not given:
        return []
    return [
        f"spec.yaml, plan.json and the attempts hold what is given with {', '.join(given)} in clear, as the runs need it; only you may "
        "read them. The report and launch.sh do not hold it"
    ]


def resume_command() -> str:
    words = sys.argv[1:]
    return shlex.join(["python", "-m", "matrix", *words, *([] if "--resume" in words else ["--resume"])])


def summary(verdict: Verdict) -> str:
    lines = ["", verdict.status_text]
    lines += [f"  {entry.probability:6.1%}  {entry.cause} ({entry.grade}): {entry.summary}" for entry in verdict.ranking[:3]]
    if verdict.innocent:
        names = ", ".join(each.axis for each in verdict.innocent)
        sure = min(each.probability for each in verdict.innocent)
        lines.append(f"no part in it: {names} (it died with other values too; at least {sure:.1%} sure)")
    if verdict.fix:
        change = " ".join(f"{name}={value}" for name, value in verdict.fix.set.items())
        lines.append(f"fix: {change} ({verdict.fix.kind}; {verdict.fix.clean_runs} clean run{'s'[: verdict.fix.clean_runs != 1]})")
    lines += [
        f"not a fix: {' '.join(f'{n}={v}' for n, v in fix.set.items())} only hides it" for fix in verdict.other_fixes if fix.kind == "hides"
    ]
    lines += [f"note: {note}" for note in verdict.notes]
    return "\n".join(lines)


def draw_report(where: Path) -> None:
    """Write the report; the verdict was printed before, so that a lack of memory here hides no answer."""
    try:
        write_report(where)
    except MemoryError:
        space = bound_bytes()
        limit = f" (its address space is limited to {space >> 20} MiB)" if space else ""
        again = f"python -m matrix report {shlex.quote(str(where))}"
        fail(f"no memory was left for the report{limit}; the verdict is kept. Elsewhere: {again}", SURROUNDINGS)


def write_report(where: Path) -> list[Path]:
    import reports

    return reports.write(where, why_no_pictures=why_no_pictures())


def load(path: Path, search: Mapping[str, str | int | None] | None = None, overrides: tuple[str, ...] = ()) -> Spec:
    from matrix.spec import load_spec
    from matrix.spec.override import is_setting, override

    spec = load_spec(path)
    given = {name: value for name, value in (search or {}).items() if value is not None}
    if not given and not overrides:
        return spec
    texts = named_values(overrides)
    settings = {name: text for name, text in texts.items() if is_setting(spec, name)}
    axes = {name: axis_values(name, text) for name, text in texts.items() if name not in settings}
    return override(spec, search=given, axes=axes, settings=settings)


def named_values(texts: tuple[str, ...]) -> dict[str, str]:
    """Return what each --set names with its text."""
    found: dict[str, str] = {}
    for text in texts:
        name, _, values = text.partition("=")
        if not name or not values:
            raise click.UsageError(f"--set {text}: write it as axis=value,value, or as a key of the specification: limits.wall=60s")
        if name in found:
            raise click.UsageError(f"--set {name} is given twice; name all its values at once: --set {name}=value,value")
        found[name] = values
    return found


def axis_values(name: str, text: str) -> list[str]:
    words = text.split(",")
    if not all(words):
        raise click.UsageError(f"--set {name}={text}: write it as axis=value,value, with no value empty")
    return words


def check_program(spec: Spec) -> None:
    """The program must be there before anything is started."""
    from matrix.spec import SpecError

    if problems := list(program_problems(spec)):
        raise SpecError(problems, spec.source)


def program_problems(spec: Spec) -> Iterator[Problem]:
    from matrix.assembly import command, working_folder
    from matrix.spec.placeholders import used
    from matrix.spec.problems import Problem

    cwd = working_folder(spec)
    if not cwd.is_dir():
        hint = f"it is relative to the folder of the specification, {spec.base_dir}; make it, or change run.cwd"
        yield Problem(None, None, "run.cwd", f"{cwd} is {'not a folder' if cwd.exists() else 'not there'}", hint)
        return
    program = command(spec.run.command)[0]
    path = spec.run.env.get("PATH", os.environ.get("PATH"))
    if not (shutil.which(str(cwd / program)) if os.sep in program else shutil.which(program, path=path)):
        where = f"in {cwd}" if os.sep in program else "on PATH"
        hint = "give the full path of the program"
        yield Problem(None, None, "run.command", f"{program!r} was not found {where}, or is not executable", hint)
    for name in spec.run.writes:
        if not any(used(name)) and not (cwd / name).exists():
            hint = "each attempt gets a fresh copy of it, so make it first, or remove it from run.writes"
            yield Problem(None, None, "run.writes", f"{cwd / name} does not exist", hint)


main.add_command(completion)
main.add_command(doctor)
main.add_command(explain)
main.add_command(init)
main.add_command(watch)

if __name__ == "__main__":
    main(prog_name="python -m matrix")
