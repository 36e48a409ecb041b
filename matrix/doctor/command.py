"""`python -m matrix doctor`."""

from __future__ import annotations

import sys

import click

from matrix.console import BAD_INPUT, WRONG, errors, fail


def _ids(_: click.Context, __: click.Parameter, incomplete: str) -> list[str]:
    """For the completion of shells."""
    from matrix.doctor.catalogue import CHECKS

    return [check.id for check in CHECKS if check.id.startswith(incomplete)]


@click.command()
@click.option("--python", "executable", metavar="PATH", help="Look into this interpreter instead of the one that runs this tool.")
@click.option("--json", "as_json", is_flag=True, help="Print a document for machines.")
@click.option("--explain", metavar="ID", shell_complete=_ids, help="Print all that is known about one check, and look at nothing.")
def doctor(executable: str | None, as_json: bool, explain: str | None) -> None:
    """Look for known traps of this machine and interpreter before a long run; exit status 1 when one is an error."""
    with errors():
        import time

        from matrix.doctor import catalogue, words
        from matrix.doctor.interpreter import NoInterpreter, examine
        from matrix.doctor.place import Place

        began = time.perf_counter()
        try:
            if explain is not None:
                click.echo(words.explanation(catalogue.find(explain)))
                return
            place = Place(python=examine(executable))
        except (catalogue.UnknownCheck, NoInterpreter) as problem:
            fail(str(problem), BAD_INPUT)
        report = catalogue.run(place)
        show = words.document if as_json else words.text
        click.echo(show(report, place, time.perf_counter() - began))
        if report.count("error"):
            sys.exit(WRONG)
