"""What the output of a training job says about its end: bars, tracebacks, faulthandler, dead workers, the words of libraries."""

from __future__ import annotations

import re
from collections.abc import Iterator

from matrix.diagnosis.endings import ABOUT_ANOTHER
from matrix.evidence import deaths, environment, kernel, log, messages, metrics
from matrix.evidence.digits import whole
from matrix.evidence.messages import PID
from matrix.evidence.progress import LOOK_BYTES, ProgressParser
from matrix.explain import launchers, slurm
from matrix.explain.meanings import MEANINGS, SPECIAL
from matrix.explain.part import INFERRED, Ending, Part, Piece, by_signal, joined
from matrix.explain.sources import Source
from matrix.records import Exit, Message, Progress, PythonError

TAIL_LINES = 20
PROGRESS_CHARS = 1 << 20  # of the end are searched for steps
OF_FILES_TOO = ("EOFError", "TimeoutError", "Empty")
ABOUT_A_DEATH = re.compile(
    r"\b(?:worker|process|child|rank|actor|pid)\b.*\b(?:killed|died|terminated|crashed|unexpectedly)\b|\bexit ?code:? -\d+", re.I
)
TIMER = re.compile(r"^Timeout \([\d:.]+\)!", re.M)
AT_THE_END = 12  # lines that a launcher or a teardown prints after the exception that ended it
# Words after which the process is ended by that signal, by whoever prints them.
ENDS_WITH = {"openmp conflict": "SIGABRT", "heap damaged": "SIGABRT", "stack smashed": "SIGABRT", "c++ exception": "SIGABRT"}
FAULTS = {
    "Segmentation fault": "SIGSEGV", "Aborted": "SIGABRT", "Bus error": "SIGBUS", "Illegal instruction": "SIGILL",
    "Floating point exception": "SIGFPE", "Floating-point exception": "SIGFPE",
}  # fmt: skip
OTHERS = re.compile(f"{kernel.DEATH.pattern}|{slurm.EVENTS.pattern}")


def read(source: Source) -> Part:
    """Everything that a text says; a part without kinds when it says nothing that is known here."""
    text = source.tail
    found = [
        _progress(source),
        _traceback(source),
        _fatal(source),
        _timer(source),
        _messages(source),
        _workers(source),
        *launchers.read(source),
    ]
    part = joined([one for one in found if one.pieces or one.said or one.endings])
    if not part.pieces:
        return Part()
    return joined(
        [Part(kinds=frozenset(("output",)), logs=[source.name], tail=log.last_lines(text, TAIL_LINES), metrics=metrics.metrics(text)), part]
    )


# ------------------------------------------------------------------ how far it got
def _progress(source: Source) -> Part:
    parser = ProgressParser()
    data = source.tail[-PROGRESS_CHARS:].encode()
    for at in range(0, len(data), LOOK_BYTES):
        parser.feed("stdout", data[at : at + LOOK_BYTES], 0.0)
    if parser.last_step is None:
        return Part()
    total = f" of {parser.total_steps}" if parser.total_steps else ""
    last = (log.last_lines(source.tail, 1) or [""])[0]
    cut = "in the middle of a line" if not source.tail.endswith("\n") else "after a whole line"
    piece = Piece(
        where=source.last_place,
        read=f"last step {parser.last_step}{total}; the text stops {cut}: {last[:120]}",
        proves="it had got at least so far",
        not_proves="that it died in this step: output that was not flushed is lost when a process is killed or aborts",
        grade="suspected",
    )
    progress = Progress(
        last_step=parser.last_step, total_steps=parser.total_steps, last_line=last, rank_steps=parser.ranks if len(parser.ranks) > 1 else {}
    )
    return Part(pieces=[piece], progress=progress)


# ------------------------------------------------------------------ Python's own words
def _traceback(source: Source) -> Part:
    found = log.python_error_at(source.tail)
    if found is None:
        return Part()
    error, after = found
    at_end = after <= AT_THE_END
    gone = peer_is_gone(error)
    reports = gone or any(one.kind == "worker died" for one in messages.messages(stdout="", stderr=f"{error.type}: {error.message}"))
    endings = [Ending(exit=Exit(returncode=1), where=source.name, by=INFERRED)] if at_end else []
    pid = PID.search(error.message) if gone else None
    lost = [deaths.Said(pid=whole(pid[1]), signal=None, status=None)] if pid else []
    return Part(
        pieces=[_raised(source, error, after, at_end and not reports)],
        python_error=error,
        endings=endings,
        said=lost,
        pids={one.pid: source.place(error.message[:60]) for one in lost if one.pid},
    )


def _raised(source: Source, error: PythonError, after: int, ended: bool) -> Piece:
    where = f" at {error.frames[-1]}" if error.frames else ""
    return Piece(
        where=source.place(f"{error.type}: {error.message}"[:80] if error.message else f"\n{error.type}\n"),
        read=f"a traceback, {after} lines before the end: {error.type}: {error.message[:160]}{where}",
        proves="Python raised this, and it was the last thing that was said" if ended else "Python raised this",
        not_proves="that it came first: this is raised when another process is gone, whose death has evidence of its own"
        if peer_is_gone(error)
        else "that it came first: a parent raises too when its worker was killed"
        if after <= AT_THE_END
        else "that it ended the run: output went on, so it was caught, or another process printed it",
        grade="supported" if ended else "suspected",
    )


def peer_is_gone(error: PythonError | None) -> bool:
    """Whether it is what a parent or a peer raises when another process has gone; a file that ends early raises EOFError too."""
    kind = error.type.rpartition(".")[2] if error else ""
    between = error is not None and any("multiprocessing/" in frame for frame in error.frames)
    told = error is not None and ABOUT_A_DEATH.search(error.message) is not None
    return told or (kind in ABOUT_ANOTHER and (between or kind not in OF_FILES_TOO))


def _fatal(source: Source) -> Part:
    """faulthandler's dump, in the log or in a file of its own."""
    dump = log.crash_dump(0, source.tail)
    if dump is None:
        return Part()
    name = next((name for words, name in FAULTS.items() if dump.error.startswith(words)), None)
    frames = dump.frames
    no_python = bool(frames) and frames[0] == log.NATIVE
    where = source.place(f"Fatal Python error: {dump.error}")
    piece = Piece(
        where=where,
        read=f"Fatal Python error: {dump.error}; {dump.threads} Python threads" + (f"; innermost: {frames[0]}" if frames else ""),
        proves=f"the process ended by {name}, and faulthandler was on" if name else "the interpreter itself gave up",
        not_proves="which native function it was: only Python frames are listed"
        + (", and the thread that crashed ran none" if no_python else ""),
        grade="supported",
    )
    modules = environment.packages(log.extension_modules(source.tail))
    return Part(pieces=[piece], dumps=[dump], endings=[by_signal(name, where, INFERRED)] if name else [], native_imports=modules)


def _timer(source: Source) -> Part:
    """faulthandler.dump_traceback_later: a hang that somebody expected."""
    match = TIMER.search(source.tail)
    if match is None:
        return Part()
    stacks = log.dumped_stacks(source.tail[match.start() :])
    innermost = f"; innermost: {stacks[0][0]}" if stacks and stacks[0] else ""
    piece = Piece(
        where=source.place(match[0]),
        read=f"{match[0]} {len(stacks)} Python threads{innermost}",
        proves="a timer of the program itself (faulthandler.dump_traceback_later) ran out, and these were its stacks then",
        not_proves="that the timer ended it: it does so only with exit=True; nor that nothing moved until then",
        grade="supported",
    )
    return Part(pieces=[piece])


# ------------------------------------------------------------------ the words of libraries
def _messages(source: Source) -> Part:
    found = messages.messages(stdout="", stderr=_spoken(source.tail))
    ends = [one for one in found if one.kind == "corrupt input" and "EOFError" in one.text]
    if ends and peer_is_gone(log.python_error(source.tail)):  # it is of a connection, not of a file
        found = [one for one in found if one not in ends]
    last = [one for one in found if one.kind in ENDS_WITH and _is_last(source, one)]
    endings = [by_signal(ENDS_WITH[one.kind], source.place(one.text[:60]), INFERRED) for one in last]
    told = {"fatal python error"} | ({"worker died"} if any(one.signal for one in deaths.said(source.tail)) else set())  # by others here
    return Part(pieces=[_said(source, one) for one in found if one.kind not in told], messages=found, endings=endings)


def _spoken(text: str) -> str:
    """Without lines of the kernel and of Slurm: they speak of memory too, and nobody told the program."""
    if not OTHERS.search(text):
        return text
    return "\n".join(line for line in text.split("\n") if not OTHERS.search(line))


def _is_last(source: Source, said: Message) -> bool:
    """Whether the process went on after it: its steps did, then the words were not its last ones."""
    at = source.tail.rfind(said.text[:60])
    parser = ProgressParser()
    parser.feed("stderr", source.tail[at:].encode()[:LOOK_BYTES], 0.0)
    return parser.last_step is None


def _said(source: Source, said: Message) -> Piece:
    proves, not_proves, grade = next((special for words, special in SPECIAL.items() if words in said.text.lower()), MEANINGS[said.kind])
    times = f" ({said.count} such lines)" if said.count > 1 else ""
    return Piece(where=source.place(said.text[:60]), read=said.text[:200] + times, proves=proves, not_proves=not_proves, grade=grade)


def _workers(source: Source) -> Part:
    """What parents print about a process of theirs by its pid or signal."""
    said = deaths.said(source.tail)
    return Part(
        said=said, pids={one.pid: source.place(str(one.pid)) for one in said if one.pid is not None}, pieces=list(_dead(source, said))
    )


def _dead(source: Source, said: list[deaths.Said]) -> Iterator[Piece]:
    for one in said:
        if one.signal is None and one.status is None:
            continue
        how = one.signal or f"status {one.status}"
        sender = "who sent it, and that memory ran out" if one.signal == "SIGKILL" else "why, nor that it was the first to die"
        yield Piece(
            where=source.place(f"pid {one.pid}" if one.pid else one.signal or "exit code"),
            read=f"a process of the job, {f'pid {one.pid}' if one.pid else 'of unknown pid'}, ended by {how}",
            proves="that process died so, and its parent raised or ended because of it",
            not_proves=f"{sender}; the pid is as that machine or container counts",
            grade="unknown" if one.signal == "SIGKILL" else "suspected",
        )
