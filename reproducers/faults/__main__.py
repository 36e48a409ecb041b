"""python -m reproducers.faults list
python -m reproducers.faults NAME [options] -- COMMAND…

COMMAND replaces this process (exec), so its exit status and signals are seen unchanged.
Own exit statuses: 2 bad usage or command not found, 125 the fault could not be planted
("could not be tested", as for `git bisect run`).
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from reproducers.faults.fault import CannotPlant, Fault
from reproducers.faults.planting import FAULTS, MOMENTS, check_variables, find, plant


class _Faults(click.Group):
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = super().get_command(ctx, cmd_name)
        if found is None:
            try:
                find(cmd_name)
            except ValueError as error:
                ctx.fail(str(error))
        return found


@click.group(cls=_Faults, context_settings={"max_content_width": 120})
def main() -> None:
    """Plant a real native fault into a program, then run the program.

    The environment variable PLANTED_FAULT=off leaves the program without the fault, for comparison.
    """


@main.command("list")
@click.option("--long", is_flag=True, help="With what is real, what is arranged, and what each needs.")
def list_faults(long: bool) -> None:
    """Name every fault by family and cause, and say whether it can be planted here."""
    if long:
        click.echo("\n\n".join(_describe(fault) for fault in FAULTS.values()))
    else:
        _table()
    click.echo("\nmoments for --when:")
    for name, meaning in MOMENTS.items():
        click.echo(f"  {name:<25} {meaning}")


def _table() -> None:
    click.echo(f"{'family':<8} {'cause':<28} {'fault':<17} what is planted")
    for fault in FAULTS.values():
        reason = fault.why_not()
        here = f" [could not be planted: {reason}]" if reason else ""
        click.echo(f"{fault.family:<8} {fault.cause:<28} {fault.name:<17} {fault.summary}{here}".replace("\n", " "))
    click.echo("\nWhat is real about one of them and what is arranged: NAME --help, or list --long.")


def _describe(fault: Fault) -> str:
    reason = fault.why_not()
    here = "can be planted here" if reason is None else f"could not be planted: {reason}"
    facts = {
        "cause": f"{fault.cause} ({fault.family})",
        "dies": fault.dies,
        "when": (fault.when or "by itself") + (", and at every such moment after it" if fault.again and fault.when else ""),
        "amount": f"{fault.amount.default}: {fault.amount.text}" if fault.amount else "",
        "platforms": fault.platforms,
        "needs": fault.needs,
        "here": here,
    }
    details = fault.details.replace("\n", "\n  ")
    lines = (f"  {name + ':':<10} {text}" for name, text in facts.items() if text)
    return "\n".join([fault.name, f"  {fault.summary}", f"  {details}", *lines])


def _command(fault: Fault) -> click.Command:
    """`NAME [options] -- COMMAND…` for one fault."""

    def callback(command: tuple[str, ...], **chosen: Any) -> None:
        _run(fault.name, list(command), chosen)

    return click.Command(
        fault.name,
        params=_parameters(fault),
        callback=callback,
        help=f"{fault.summary}\n\n{fault.details}\n\nIt ends: {fault.dies}.",
        short_help=fault.summary,
    )


def _parameters(fault: Fault) -> list[click.Parameter]:
    def option(name: str, metavar: str, default: str | None, text: str) -> click.Option:
        return click.Option([name], metavar=metavar, default=default, show_default=True, help=text)

    parameters: list[click.Parameter] = []
    if fault.when:
        parameters.append(option("--when", "MOMENT", fault.when, f"{', '.join(MOMENTS)}: `list` explains them."))
    if fault.amount:
        parameters.append(
            click.Option(["--amount"], type=int, default=fault.amount.default, show_default=True, help=f"{fault.amount.text}.")
        )
    if fault.damages_file:
        parameters.append(
            click.Option(["--file"], type=click.Path(path_type=Path), metavar="PATH", help="The file of the program's input.")
        )
    if fault.name == "omp-conflict":
        parameters.append(option("--first", "MODULE", "torch", "The module whose import uses the first runtime."))
    return [
        *parameters,
        option("--rename", "PREFIX", "planted", "Prefix of every name that the plant adds."),
        click.Option(["--cache"], type=click.Path(path_type=Path), metavar="DIR", help="Folder for copies, instead of the user's cache."),
        click.Argument(["command"], nargs=-1, required=True, type=click.UNPROCESSED),
    ]


def _run(fault: str, command: list[str], chosen: dict[str, Any]) -> NoReturn:
    try:
        check_variables(os.environ, chosen["rename"])
        environment = {**os.environ, **plant(fault, **chosen)}
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    except CannotPlant as error:
        click.echo(f"{fault} could not be planted: {error}", err=True)
        sys.exit(125)
    if command[0] == "python":  # the interpreter that has the packages, whatever PATH says
        command[0] = sys.executable
    _become(command, environment)


def _become(command: list[str], environment: dict[str, str]) -> NoReturn:
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would hand that on
        signal.signal(ignored, signal.SIG_DFL)
    try:
        os.execvpe(command[0], command, environment)
    except OSError as error:
        click.echo(f"the command {command[0]!r} could not be started: {error.strerror}; give a program on PATH or a path", err=True)
        sys.exit(2)


for _fault in FAULTS.values():
    main.add_command(_command(_fault))

if __name__ == "__main__":
    main(prog_name="python -m reproducers.faults")
