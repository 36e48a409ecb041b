"""What all commands share: exit codes, one clear message for each kind of failure, and signals that end a run tidily."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import NoReturn

import click

from matrix.evidence.own_limits import bound_bytes, limit_behind

WRONG, BAD_INPUT, SURROUNDINGS, INTERRUPTED = 1, 2, 3, 130
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def any_letter_can_be_printed() -> None:
    """What a locale lacks is written as an escape: a line of a log or a file's name must not end the command that shows it."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def only_our_warnings_are_shown() -> None:
    """Warnings of libraries tell a user nothing to act on; with -W or PYTHONWARNINGS the user decides."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
        warnings.filterwarnings("default", module=r"(matrix|reports|reproducers)(\.|$)")


@contextlib.contextmanager
def errors(remedy: str = "put that right and try again") -> Iterator[None]:
    """Bad input and failing surroundings become one clear message and the exit code of the contract."""
    try:
        with known_errors():
            yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains once more when it flushes at its end
        fail("interrupted: nobody reads the output any more", INTERRUPTED)
    except OSError as problem:
        why = limit_behind(problem)
        fail(f"{problem.filename or 'the system'}: {problem.strerror}{why}; {remedy}", SURROUNDINGS)
    except (MemoryError, ImportError) as problem:  # a library that finds no room cannot be imported
        if bound_bytes() is None:
            raise
        fail(f"no memory is left{limit_behind(problem)}; {remedy}", SURROUNDINGS)
    except KeyboardInterrupt:
        fail("interrupted", INTERRUPTED)


@contextlib.contextmanager
def known_errors() -> Iterator[None]:
    """Those that are named by a type of ours.  Imported when something was raised: the specification's reader takes 0.3 s to import."""
    try:
        yield
    except Exception as problem:
        from matrix.folder import FolderError, NoSuchRun
        from matrix.runner.launcher import RunnerError
        from matrix.spec import SpecError

        if isinstance(problem, (SpecError, NoSuchRun)):
            fail(str(problem), BAD_INPUT)
        if isinstance(problem, (FolderError, RunnerError)):
            fail(str(problem), SURROUNDINGS)
        raise


class Span(click.ParamType):  # type: ignore[type-arg,unused-ignore]
    """Seconds, of a time as a specification has it: 90, 30s, 1h30m.  A number, as a default may be, is read without an import."""

    name = "time"

    def __init__(self, *, least: float = 0.0, most: float = float("inf")) -> None:
        self.least, self.most = least, most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        from matrix.spec.problems import Refused
        from matrix.spec.units import time_s

        try:
            seconds = time_s(value)
        except Refused as problem:
            self.fail(str(problem), param, ctx)
        if not self.least <= seconds <= self.most:
            self.fail(f"{value} is not between {self.least:g} and {self.most:g} seconds", param, ctx)
        return seconds


def signals_interrupt() -> None:
    """SIGTERM and a lost terminal end a run as Ctrl-C does: tidily, and resumable.  Under nohup SIGHUP stays ignored."""
    for number in ENDING:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)


@contextlib.contextmanager
def asked_to_end() -> Iterator[threading.Event]:
    """Set by these signals, so that nothing is cut in two.  A second Ctrl-C raises KeyboardInterrupt; of a lost terminal there
    are always two SIGHUP, one by the kernel and one by the shell."""
    asked = threading.Event()

    def ask(number: int, _: object) -> None:
        if number == signal.SIGINT and asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    taken = {number: signal.signal(number, ask) for number in ENDING if signal.getsignal(number) is signal.default_int_handler}
    try:
        yield asked
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)


def complain(message: str) -> None:
    with contextlib.suppress(OSError):  # the terminal may be gone
        click.echo(message, err=True)


def fail(message: str, code: int) -> NoReturn:
    complain(message)
    sys.exit(code)
