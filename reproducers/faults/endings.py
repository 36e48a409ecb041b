"""Endings that are nobody's crash: a signal from another process, an exit, a symbol that is missing, an exception."""

from __future__ import annotations

from pathlib import Path

from reproducers.faults import compiled
from reproducers.faults.fault import Amount, Fault, compile_library, with_compiler

FAMILY, ANY_TIME = "endings", "seconds:1"
LOST = Path(__file__).with_name("lost_symbol.c")

OUTSIDE_SIGNAL = Fault(
    name="outside-signal",
    family=FAMILY,
    cause="external_signal",
    about="""
Another process asks the program to end.

What is real: a shell in a session of its own sends SIGTERM to the program, which did nothing wrong.  What is arranged: that the
program's plant starts that shell, so that it belongs to the tree of the program, where else a scheduler or a person would send it;
the moment.
""",
    dies="SIGTERM, or as its handler does",
    when=ANY_TIME,
    platforms="Linux, macOS",
    needs="sh",
    why_not=lambda: None,
)

LIBRARY_EXIT = Fault(
    name="library-exit",
    family=FAMILY,
    cause="library_exit",
    about="""
A library calls exit() in the middle of the work.

What is real: libc's exit() ends the process with status 0 (--amount).  Python's own end is not reached: nothing is raised, no
handler of Python's runs, and what was printed without a flush is lost.  What is arranged: who calls it; the moment.
People meet it as native code that was written as a program, and exits on an argument that it does not like.
""",
    dies="exit status 0, half way",
    when=ANY_TIME,
    platforms="Linux, macOS",
    needs="nothing",
    why_not=lambda: None,
    amount=Amount(default=0, text="the exit status", least=0),
)


def _lost_files(prefix: str) -> dict[str, Path]:
    return {**compiled.files(prefix), f"{prefix}_lost.c": LOST}


def _build_lost(folder: Path, prefix: str) -> None:
    compiled.build(folder, prefix)
    compile_library(folder, f"{prefix}_lost.c", f"lib{prefix}_lost.so", options=["-Wl,-z,lazy"])


LOST_SYMBOL = Fault(
    name="lost-symbol",
    family=FAMILY,
    cause="binary_incompatibility",
    about="""
An extension calls a function that the installed version of another library does not have.

What is real: a library, compiled here, refers to a function that no library has.  It is loaded without complaint, since functions
are looked up at their first call; at that call the dynamic loader says `symbol lookup error` and ends the process with status 127.
What is arranged: the library, the moment.
People meet it after one of two native packages was upgraded, or came from another channel.
""",
    dies="exit status 127, symbol lookup error",
    when=ANY_TIME,
    platforms="Linux",
    needs="a C compiler, glibc",
    why_not=with_compiler,
    files=_lost_files,
    build=_build_lost,
)

PYTHON_EXCEPTION = Fault(
    name="python-exception",
    family=FAMILY,
    cause="python_exception",
    about="""
An ordinary exception: the one ending that needs no diagnosis, as a control.

What is real: RuntimeError is raised out of the call that is the moment; the program may catch it.  What is arranged: the moment.
""",
    dies="a traceback and exit status 1, unless it is caught",
    when="print:3",
    platforms="Linux, macOS",
    needs="nothing",
    why_not=lambda: None,
    on_a_call=True,
)

FAULTS = (OUTSIDE_SIGNAL, LIBRARY_EXIT, LOST_SYMBOL, PYTHON_EXCEPTION)
