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
from reproducers.faults.planting import FAULTS, MOMENTS, check_runtimes, plant


@click.group(help="Plant a real native fault into a program, then run the program.", context_settings={"max_content_width": 120})
def main() -> None:
    pass


@main.command("list", help="Name every fault, what is real about it, where it works and what it needs.")
def list_faults() -> None:
    click.echo("\n\n".join(_describe(fault) for fault in FAULTS.values()))
    click.echo("\nmoments for --when:")
    for name, meaning in MOMENTS.items():
        click.echo(f"  {name:<10} {meaning}")


def _describe(fault: Fault) -> str:
    reason = fault.why_not()
    here = "can be planted here" if reason is None else f"could not be planted: {reason}"
    facts = {"dies": fault.dies, "when": fault.when or "by itself", "platforms": fault.platforms, "needs": fault.needs, "here": here}
    details = fault.details.replace("\n", "\n  ")
    return "\n".join([fault.name, f"  {fault.summary}", f"  {details}", *(f"  {name + ':':<10} {text}" for name, text in facts.items())])


def _command(fault: Fault) -> click.Command:
    """`NAME [options] -- COMMAND…` for one fault."""

    def callback(command: tuple[str, ...], **chosen: Any) -> None:
        _run(fault.name, list(command), chosen)

    help_text = f"{fault.summary}\n\n{fault.details}"
    return click.Command(fault.name, params=_parameters(fault), callback=callback, help=help_text, short_help=fault.summary)


def _parameters(fault: Fault) -> list[click.Parameter]:
    def option(name: str, metavar: str, default: str | None, text: str) -> click.Option:
        return click.Option([name], metavar=metavar, default=default, show_default=True, help=text)

    parameters: list[click.Parameter] = [
        option("--rename", "PREFIX", "planted", "Prefix of every name that the plant adds."),
        click.Option(["--cache"], type=click.Path(path_type=Path), metavar="DIR", help="Folder for copies, instead of the user's cache."),
        click.Argument(["command"], nargs=-1, required=True, type=click.UNPROCESSED),
    ]
    if fault.when:
        parameters.insert(0, option("--when", "|".join(MOMENTS), fault.when, "The moment of the fault."))
    if fault.name == "omp-conflict":
        parameters.insert(1, option("--first", "MODULE", "torch", "The module whose import uses the first runtime."))
    return parameters


def _run(fault: str, command: list[str], chosen: dict[str, Any]) -> NoReturn:
    try:
        check_runtimes(os.environ, chosen["rename"])
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
