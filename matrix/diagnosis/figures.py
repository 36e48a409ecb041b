"""What the program's own figures and input say: values that became NaN or infinite, records that cannot be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from matrix.diagnosis import samples
from matrix.diagnosis.addresses import the_fault
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import Cause, finding, message, remedy, reports
from matrix.diagnosis.native import crash_signal, heap_is_damaged
from matrix.diagnosis.native_causes import NATIVE_CRASH
from matrix.diagnosis.samples import CORRUPT
from matrix.records import Finding, Message, Metric, Observation, PythonError

DIVERGED = "numerical_divergence"
ORDINARY = 1.5  # nats of words that other errors have too
PLAIN = (  # also where an argument is wrong, or a file is whole and of another format
    "eoferror",
    "cannot reshape array",
    "unicodedecodeerror",
    "jsondecodeerror",
    "could not convert string to",
    "invalid literal for int()",
    "incorrect padding",
    "not well-formed",
    "file is not a database",
    "error parsing message",
    "file signature not found",
    "does not start with riff",
)
BROKEN_OFF = ("requires a buffer of", "buffer is smaller than", "buffer size must be", "error tokenizing data")  # a record of another size
BROKEN = 3.0  # nats of these: mostly the file is short or a line damaged, now and then the program reads it wrongly
ENOUGH = 2  # runs whose figures stayed finite
EXPLODED = 1e6  # times the median of the same figure
RUNS_AWAY = 1.5  # times the value before it, again and again: so grows what is on its way to infinity, and no counter
FEWEST_VALUES = 5  # from which it is told that a figure runs away
NO_COUNT = 1e30  # nothing that is counted gets there
NAN_WORDS = re.compile(r"\bnans?\b|\binfinit|\binf\b|\bnot finite|non-finite|floatingpointerror|overflow encountered", re.I)
NO_INTEGER = 1 << 31  # what x86 makes of a NaN, or of a number that is too large, when native code turns it into an integer of 32 bits
ITEM_BYTES = (1, 2, 4, 8, 16)
BESIDE_IT = 64 << 10  # items: added to it before it became an index
OTHERS = (*NATIVE_CRASH, "python_exception", "library_exit", "deadlock", "cpu_bound_stall")

CAUSES = (
    Cause(
        name=DIVERGED,
        title="Numbers became NaN or infinite",
        clause="values become NaN or infinite, and later code that cannot handle them stops, loops or crashes",
        every_time=0.8,
        remedies=(
            remedy("axis", "a smaller learning rate, or another precision"),
            remedy("code", "clip gradients; check for values that are not finite before native code gets them"),
        ),
        references=("C++ standard, requirements of std::sort on its comparison",),
    ),
    Cause(
        name=CORRUPT,
        title="Damaged input data",
        clause="one record or file of the input is damaged, and the code that reads it dies there every time",
        every_time=0.9,
        remedies=(
            remedy("code", "replace or skip the record; check files by their checksums before a run"),
            remedy("axis", "another source of data"),
        ),
    ),
)


def findings(case: Case) -> Iterator[Finding]:
    for death in case.deaths:
        yield from _metrics(case, death)
        yield from _words(case, death)
        yield from _input(case, death)
    yield from samples.findings(case)


def _metrics(case: Case, death: Observation) -> Iterator[Finding]:
    turned = [metric for metric in death.metrics if metric.first_bad and metric.median_abs is not None]  # it had been finite before
    bad = next(iter(turned), None) or next(filter(_exploded, death.metrics), None)
    if bad is None:
        unseen = _not_finite(death) or message(death, "bad number")  # then it is one that it did not print
        if any(metric.values > 1 for metric in death.metrics) and not unseen:
            names = ", ".join(metric.name for metric in death.metrics[:3])
            yield finding(DIVERGED, "figures", death, -4.0, f"the figures that it printed stayed finite ({names})", "stdout.log")
        return
    healthy = [s for s in case.survivors if any(m.name == bad.name and (m.first_bad or _exploded(m)) for m in s.metrics)]
    fact = _bad(bad)
    alive = [m for s in case.survivors for m in s.metrics if m.name == bad.name]
    beside = _finite_beside(case, bad.name)
    if healthy and not beside:
        yield finding(
            DIVERGED, "figures", death, -1.0, f"{fact}; but so it did in a run that survived ({healthy[0].attempt})", "stdout.log"
        )
        return
    if not alive or not (bad.first_bad or _runs_away(bad)):  # nobody shows that it stays finite where nothing dies; a counter grows too
        yield finding(DIVERGED, "figures", death, 2.0, fact, "stdout.log")
        return
    yield finding(DIVERGED, "figures", death, 3.5 if healthy and not _always_first(case, bad.name) else 4.5, fact, "stdout.log")
    if beside:
        stayed = f"with a change of one axis {bad.name} stayed finite and the program alive ({beside.attempt})"
        yield finding(DIVERGED, "finite beside", death, 1.0, stayed, "stdout.log")
    for cause in OTHERS:
        yield finding(cause, "figures", death, -2.5, f"{fact}: what came after that followed", "stdout.log")


def _words(case: Case, death: Observation) -> Iterator[Finding]:
    """A library's warning of a value that is no number: what it means is told by the runs that survive beside it."""
    said, crashed = message(death, "bad number"), crash_signal(death) is not None
    if said is None:
        return
    fact, file = f"it was warned of a value that is not finite: {said.text.strip()[:160]}", f"{said.stream}.log"
    if case.said_alike("bad number"):
        yield finding(DIVERGED, "words", death, -0.5, f"{fact}; but so was a run that survived", file)
        return
    follows = bool(case.beside) and (crashed or death.exit.ended_by != "itself") and not heap_is_damaged(death)
    yield finding(
        DIVERGED, "words", death, 4.0 if follows else 1.5, f"{fact}{', as no run was that survived' if case.survivors else ''}", file
    )
    for cause in OTHERS if follows else ():
        yield finding(cause, "figures", death, -2.0, f"{fact}: what came after that may only have followed", file)
    if crashed and (far := _index_of_no_number(death)):
        yield finding(DIVERGED, "index", death, 2.0, f"native code used as an index what becomes of a NaN as an integer ({far} bytes)")


def _index_of_no_number(death: Observation) -> int | None:
    """How far the faulting index led, when that is the lowest integer of 32 bits, for items of a usual size."""
    far = getattr(the_fault(death), "index_bytes", None)
    return far if far and any(abs(far + NO_INTEGER * size) <= BESIDE_IT * size for size in ITEM_BYTES) else None


def _not_finite(death: Observation) -> PythonError | None:
    """The exception that ended it, when it is about NaN or infinity."""
    error = death.python_error
    return error if error and NAN_WORDS.search(f"{error.type} {error.message}") else None


def _finite_beside(case: Case, name: str) -> Observation | None:
    """A run in which a change of one axis keeps that figure finite and the program alive."""
    return next((survivor for _, survivor in case.beside if _stayed_finite(survivor, name)), None)


def _always_first(case: Case, name: str) -> bool:
    """Whether no run died in which that figure had stayed finite, and two of those lived: it may take more, but never less."""
    if any(_stayed_finite(death, name) for death in case.deaths):
        return False
    return sum(_stayed_finite(survivor, name) for survivor in case.survivors) >= ENOUGH


def _stayed_finite(run: Observation, name: str) -> bool:
    """Whether it printed that figure, and never as anything else."""
    mine = [metric for metric in run.metrics if metric.name == name]
    return bool(mine) and not any(metric.first_bad or _exploded(metric) for metric in mine)


def _exploded(metric: Metric) -> bool:
    return bool(metric.largest_abs and metric.median_abs and metric.values >= 4 and metric.largest_abs > EXPLODED * metric.median_abs)


def _runs_away(metric: Metric) -> bool:
    """Whether a figure that is still finite was leaving for infinity: a program that looks at it ends before it prints that."""
    recent = [abs(float(text)) for text in metric.recent]
    grew = len(recent) >= FEWEST_VALUES and all(after >= RUNS_AWAY * before for before, after in pairwise(recent))
    return _exploded(metric) and (grew or (metric.largest_abs or 0.0) > NO_COUNT)


def _bad(metric: Metric) -> str:
    if metric.first_bad:
        step = "" if metric.first_bad_step is None else f" at step {metric.first_bad_step}"
        return f"{metric.name} became {metric.first_bad}{step} before it died"
    return f"{metric.name} rose to {metric.largest_abs:.3g}, a million times its median, before it died"


def _input(case: Case, death: Observation) -> Iterator[Finding]:
    said = message(death, "corrupt input")
    if said and case.said_alike("corrupt input"):
        yield finding(CORRUPT, "message", death, -1.0, "runs that survive complain about their input too", f"{said.stream}.log")
    elif said:
        fact = f"what it read was refused: {said.text.strip()[:200]}"
        nats = _input_nats(death, said)
        yield finding(CORRUPT, "message", death, nats, fact, f"{said.stream}.log")
        if reports(death, said):  # also by words that other errors have: which of the two it is they do not tell for certain
            yield finding("python_exception", "reported", death, -2.5 if nats > ORDINARY else -1.0, fact, f"{said.stream}.log")
    else:
        yield finding(CORRUPT, "message", death, 0.0, "nothing that it read was refused")
    if error := _not_finite(death):
        fact = f"the exception is about values that are not finite: {error.type}: {error.message[:120]}"
        yield finding(DIVERGED, "exception", death, 4.0, fact, "stderr.log")
        yield finding("python_exception", "reported", death, -2.5, fact, "stderr.log")


def _input_nats(death: Observation, said: Message) -> float:
    """Words of a decoder that ended it are direct evidence; those of a shape, a pipe or a text are ordinary errors as well."""
    plain = any(word in said.text.lower() for word in PLAIN)
    if plain or not reports(death, said):
        return ORDINARY
    return BROKEN if any(word in said.text.lower() for word in BROKEN_OFF) else 4.5
