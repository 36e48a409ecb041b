"""How it ended, as a number or a word: of a shell, Python, Slurm, Kubernetes, PBS, LSF."""

from __future__ import annotations

import re
import signal

from matrix.evidence import exit
from matrix.evidence.digits import whole
from matrix.explain.part import GIVEN, Ending, Part, Piece
from matrix.records import Exit

ALLOWED = "a number (137, -9), a signal (SIGSEGV, KILL), 0:9 as Slurm writes it, or OOMKilled"
PAIR = re.compile(r"(?:exitcode\s*=?\s*)?(\d{1,9}):(\d{1,9})", re.I | re.A)
ALONE = re.compile(r"(?:(?:exit(?:ed)?|return|status|code|with|rc)[ _:=]*)*(?P<status>-?\d{1,3})", re.I | re.A)
MOST_CHARS = 80
SLURM_OOM = 125  # its own number for "out of memory" (253) in the seven bits of a wait status
PROVES = {
    "SIGKILL": "somebody sent it SIGKILL, or the kernel did; the program could not notice",
    "SIGABRT": "it called abort(), or a library did: an assertion, a C++ exception, a damaged heap, a runtime that gave up",
    "SIGSEGV": "one of its instructions touched memory that it may not",
    "SIGBUS": "it touched mapped memory that has no storage behind it: a full /dev/shm or disk, or a file that was shortened",
    "SIGILL": "it met an instruction that this processor does not have, or jumped into something that is no code",
    "SIGFPE": "an integer division by zero or an overflow of one; no floating-point NaN does that",
    "SIGTERM": "somebody asked it to end: a scheduler, a launcher that ended the others too, a person",
    "SIGINT": "Ctrl-C, or a launcher that forwards it",
    "SIGHUP": "its terminal went away, and it was not started with nohup or in a session of its own",
    "SIGPIPE": "it wrote to a pipe whose reader was gone",
    "SIGXCPU": "it used up its limit of processor time (ulimit -t)",
    "SIGXFSZ": "a file grew beyond the limit of file sizes (ulimit -f)",
}
OPEN = {
    "SIGKILL": "who sent it, and that memory ran out: the out-of-memory killer, a scheduler, a launcher, a person and a hard limit of "
    "processor time all send the same signal",
    "SIGABRT": "which library, and why: its last words are on stderr",
    "SIGSEGV": "which library is at fault: memory is often damaged long before, elsewhere",
    "SIGBUS": "which file or folder it was",
    "SIGTERM": "who asked, and why",
}


class NoStatus(Exception):
    """Words that name no ending."""


def alone(text: str) -> str | None:
    """The status in a text that holds nothing else, as `echo $? > status.txt` leaves it; None: it is another text."""
    found = ALONE.fullmatch(text.strip()) if len(text) < MOST_CHARS else None
    return found["status"] if found else None


def given(text: str, where: str = "") -> Part:
    """`where` it was read; "": as --status.  Raises NoStatus."""
    words = text.strip()
    if words.lower() in ("oomkilled", "oom-killed", "out_of_memory"):
        return _oom_word(words)
    found, how = decoded(words)
    where = where or f"--status {words}"
    endings = [Ending(exit=found, where=where, by=GIVEN)]
    return Part(kinds=frozenset(("status",)), endings=endings, pieces=[piece(found, where, how)])


def _oom_word(words: str) -> Part:
    """What a scheduler shows, without the rest of what it knows."""
    read = Piece(
        where=f"--status {words}",
        read=f"the scheduler's word {words}",
        proves="a scheduler counted a kill for memory in the job's group, at some time before it ended",
        not_proves="that the main process was the one: give the exit status too, or the scheduler's whole output (kubectl get pod -o json, "
        "sacct -P)",
        grade="suspected",
    )
    return Part(kinds=frozenset(("status",)), pieces=[read], group_kills=1)


def decoded(words: str) -> tuple[Exit, str]:
    """The exit, and how its number is to be read.  Raises NoStatus."""
    if pair := PAIR.fullmatch(words):
        return of_pair(whole(pair[1]), whole(pair[2])), f"exit status {pair[1]} and signal {pair[2]}, as Slurm writes them"
    if number := _signal_number(words):
        return exit.decode(number), "the signal"
    try:
        status = int(words)
    except ValueError:
        raise NoStatus(f"--status {words}: no way to end that is known here; give {ALLOWED}") from None
    return of_number(status)


def of_number(status: int) -> tuple[Exit, str]:
    """A shell's 128+n, Python's -n, PBS' and LSF's 256+n.  Raises NoStatus."""
    if status < 0 and exit.signal_name(-status):
        return exit.decode(-status), f"signal {-status}, as Python's subprocess and torchrun write it"
    if 256 < status < 256 + 128 and exit.signal_name(status - 256):
        return exit.decode(status - 256), f"{status} = 256 + {status - 256}, as PBS writes signal {status - 256}"
    if not 0 <= status < 256:
        raise NoStatus(f"--status {status}: a status is 0 to 255, -1 to -64 for a signal, or 257 to 320 for one in PBS; give {ALLOWED}")
    found = exit.decode(status << 8)
    return found, f"{status} = 128 + {status - 128}, as a shell or a container writes signal {status - 128}" if found.signal else ""


def of_pair(code: int, number: int) -> Exit:
    """Slurm's code:signal; its own numbers for a signal are left out."""
    if number and number != SLURM_OOM and exit.signal_name(number):
        return exit.decode(number)
    return exit.decode(code << 8) if 0 <= code < 256 else Exit(returncode=None)


def piece(found: Exit, where: str, how: str) -> Piece:
    name = found.signal
    if name is None:
        return _plain(found.returncode, where)
    unwrapped = ""
    if found.wrapped:
        unwrapped = f"; nor that it was a signal at all: a program may end with status {found.returncode} by itself"
    proves = PROVES.get(name, f"{name} ended it")
    return Piece(
        where=where,
        read=f"{name} ({how})",
        proves=f"if the number stands for a signal: {proves}" if found.wrapped else proves,
        not_proves=OPEN.get(name, "who sent it, or what raised it") + unwrapped,
        grade="unknown" if name == "SIGKILL" else "suspected",
    )


def _plain(status: int | None, where: str) -> Piece:
    if status == 0:
        proves, not_proves = "it ended by itself and reported success", "that it had finished: a library may call exit(0) early"
    else:
        proves = "it ended by itself, not by a signal"
        not_proves = "why: an exception, sys.exit, a library's exit() and a launcher whose child was killed all look like this"
    return Piece(where=where, read=f"exit status {status}", proves=proves, not_proves=not_proves, grade="suspected")


def _signal_number(words: str) -> int | None:
    name = words.upper() if words.upper().startswith("SIG") else f"SIG{words.upper()}"
    return signal.Signals[name].value if name in signal.Signals.__members__ else None
