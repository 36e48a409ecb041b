"""`init -- COMMAND…`: write a first specification and say what was recognised."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from matrix.completion import names
from matrix.console import BAD_INPUT, complain, errors, fail

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.propose.draft import Draft
    from matrix.propose.facts import Facts


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="The specification to write; else NAME.yaml.")
@click.option("--from-log", "log", type=click.Path(path_type=Path), metavar="LOG", help="Output of the run that died; - for stdin.")
@click.option("--name", help="Names the runs; else the program's name.")
@click.option(
    "--run-help/--no-run-help", default=None, help="Ask the program for --help, or do not; else when its sources show that it answers."
)
@click.option("--force", is_flag=True, help="Replace the file when it is there already.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, shell_complete=names.files)
def init(out: Path | None, log: Path | None, name: str | None, run_help: bool | None, force: bool, command: tuple[str, ...]) -> None:
    """Write a specification for COMMAND: what may be varied, in which values, with the reasons.  Runs nothing but COMMAND's --help.

    Everything after -- is the command, as you launch it: init -- python train.py --bs 32
    """
    with errors():
        from matrix import records
        from matrix.propose.draft import CannotPropose, draft
        from matrix.propose.from_log import LogError
        from matrix.propose.text import text

        try:
            folder = out.parent if out else Path()
            facts = _facts(log, folder) if log else None
            made = draft(command, cwd=Path.cwd(), env=os.environ, facts=facts, name=name, folder=folder, run_help=run_help)
        except (CannotPropose, LogError) as problem:
            fail(str(problem), BAD_INPUT)
        target = out or Path(f"{made.name}.yaml")
        if target.is_dir() or not folder.is_dir():
            fail(f"{target} {'is a folder' if target.is_dir() else 'cannot be written: there is no such folder'}; name a file", BAD_INPUT)
        if os.path.lexists(target) and not force:  # a link that leads nowhere yet is somebody's too
            fail(f"{target} is there already; give another file with -o, or --force to replace it", BAD_INPUT)
        records.write_text(target, text(made, str(target)), mode=0o600 if made.secrets else 0o666)
        for line in _said(made):
            click.echo(line)
        if made.secrets:
            complain(
                f"note: {target} holds what is given with {', '.join(made.secrets)} in clear, as the runs need it; only you may read it"
            )
        click.echo(f"written: {target}.  Look at it, then: python -m matrix run {shlex.quote(str(target))}")


def _facts(log: Path, folder: Path) -> Facts:
    """The specification names the log relative to its own folder, where that can be said."""
    from matrix.propose.from_log import of_log

    return of_log(log, shown_as=os.path.relpath(log, folder))


def _said(made: Draft) -> Iterator[str]:
    """Lines about what was recognised: the axes, what stays, where it writes, its length, and what the log shows."""
    from matrix.evidence.own_limits import limits_for_specification
    from matrix.propose.limits import limit_text

    yield f"{made.command.kind} {made.command.target}{_about_options(made)}"
    if made.facts:
        from matrix.propose.text import what_it_showed

        yield f"  {made.facts.source or 'stdin'}: {what_it_showed(made.facts)}"
    yield "varied:"
    width = max(len(proposal.axis) for proposal in made.varied)
    for proposal in made.varied:
        yield f"  {proposal.axis:{width}}  {', '.join(proposal.levels)}  ({proposal.why})"
    yield from _not_varied(made)
    if kept := limits_for_specification():
        limits = ", ".join(f"{key} {limit_text(key, value)}" for key, value in kept.items())
        yield f"  limits of this shell, kept for every run: {limits}"
    yield from (f"  {remark}" for remark in made.rewritten.remarks)
    if made.unmoved:
        yield f"  written where the job runs, as no option moves it: {', '.join(made.unmoved[:5])} (run puts the old content back)"
    yield f"  length: {made.rewritten.length or 'no flag was found: runs are ended after the step that is asked for'}"


def _about_options(made: Draft) -> str:
    """Say where the program's options are known from."""
    if made.options:
        return f"; its --help lists {made.options} options"
    declared = f"; its sources declare {made.declared} options" if made.declared else ""
    if not made.asked_help:
        return declared
    why = f" ({made.no_help[:100]})" if made.no_help else ""
    return f"; its --help could not be had{why}{declared}"


def _not_varied(made: Draft) -> Iterator[str]:
    if made.others:
        yield f"  in the file as comments (--set NAME=V,V adds one): {', '.join(proposal.axis for proposal in made.others)}"
    for why, flags in made.fixed.items():
        yield f"  not varied: {', '.join(flags)} ({why})"
    if made.unvalued:
        yield f"  not varied, as the value is not known: {', '.join(made.unvalued)}; add it to the command to vary it"
