"""Resource limits that this process inherited: lifted for the tool, kept for every child, shown and written down.

A job may die of `ulimit -v`; the tool that watches the job must not.  `lift_limits` raises what would stop the tool,
`limits_of_children` is what a child gets back.  Imports nothing heavy: this runs before everything else.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import importlib
import os
import resource
import sys
import threading
from collections.abc import Mapping

INFINITE = resource.RLIM_INFINITY
MIB = 1 << 20
Pair = tuple[int, int]  # soft, hard


@dataclasses.dataclass(frozen=True, kw_only=True)
class Kind:
    """One resource: its name for people, its key in a specification, and how much of it the tool needs."""

    title: str
    key: str
    needed: int = INFINITE  # the tool raises its soft limit to this
    in_bytes: bool = False
    usual: int = INFINITE  # a soft limit of at least this is nothing to mention


KINDS = {
    "RLIMIT_AS": Kind(title="address space", key="address_space", in_bytes=True),
    "RLIMIT_DATA": Kind(title="data segment", key="data", in_bytes=True),
    "RLIMIT_FSIZE": Kind(title="file size", key="file_size", in_bytes=True),
    "RLIMIT_CPU": Kind(title="processor time", key="cpu_time"),
    "RLIMIT_NOFILE": Kind(title="open files", key="nofile", needed=1024, usual=1024),
    "RLIMIT_NPROC": Kind(title="processes of the user", key="processes", needed=4096, usual=4096),
    "RLIMIT_STACK": Kind(title="stack", key="stack", needed=8 * MIB, in_bytes=True, usual=8 * MIB),
    "RLIMIT_CORE": Kind(title="core file", key="core", needed=0, in_bytes=True, usual=0),
}
TIGHT_BYTES = 64 << 30  # a limit of more address space than this never stops the tool
ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
ROOM_FOR_PICTURES = 400 * MIB  # measured: 390 MiB are too few with matplotlib 3.10
THREAD_STACK_BYTES = 1 * MIB
M_ARENA_MAX = -8


_lifted: dict[str, Pair] = {}  # what this process has raised for itself: the limits before


def inherited_limits() -> dict[str, Pair]:
    """Soft and hard limits as this process got them, by name: {"RLIMIT_AS": (soft, hard)}."""
    known = [name for name in KINDS if hasattr(resource, name)]
    return {name: _lifted.get(name) or own_limit(name) for name in known}


def limits_for_specification() -> dict[str, int]:
    """Inherited limits that are out of the ordinary, by their key in `limits:`; bytes, counts or seconds."""
    return {KINDS[name].key: inherited_limits()[name][0] for name in tight_limits()}


def limits_of_children() -> dict[str, Pair]:
    """Limits that a child has to be given back, because this process has changed its own."""
    return dict(_lifted)


def lift_limits() -> None:
    """Raise the limits of this process as far as it needs and may; prepare for less where the address space stays small."""
    for name, (soft, hard) in inherited_limits().items():
        needed = KINDS[name].needed
        if is_less(soft, needed):
            raise_limit(name, needed, hard)
            if own_limit(name) != (soft, hard):
                _lifted[name] = (soft, hard)
    if bound_bytes() is not None:
        live_in_little_memory()


def raise_limit(name: str, needed: int, hard: int) -> None:
    """Raise the hard limit too where this user may; else the soft limit up to the hard one."""
    wanted_hard = needed if is_less(hard, needed) else hard
    highest = hard if is_less(hard, needed) else needed
    for pair in ((needed, wanted_hard), (highest, hard)):
        try:
            resource.setrlimit(getattr(resource, name), pair)
        except (ValueError, OSError):
            continue
        return


def live_in_little_memory() -> None:
    """Take less address space: one heap for all threads, small stacks, and no pool of threads in numpy's library.

    The variables are gone again afterwards: a child must not see them."""
    threading.stack_size(THREAD_STACK_BYTES)
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)
    added = [name for name in ONE_THREAD if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    with contextlib.suppress(ImportError):
        importlib.import_module("numpy")  # reads the variables now, and never again
    for name in added:
        del os.environ[name]


def bound_bytes() -> int | None:
    """Address space that this process still has to live in; None: as much as it needs."""
    bounds = [own_limit(name)[0] for name in ("RLIMIT_AS", "RLIMIT_DATA") if hasattr(resource, name)]
    small = [bound for bound in bounds if bound != INFINITE and bound < TIGHT_BYTES]
    return min(small, default=None)


def why_no_pictures() -> str:
    """Reason not to begin drawing: a numerical library that finds no room ends the process, which nobody can catch."""
    bound = bound_bytes()
    if bound is None or bound >= ROOM_FOR_PICTURES:
        return ""
    return f"this process may have {bound // MIB} MiB of address space (ulimit -v) and drawing takes {ROOM_FOR_PICTURES // MIB}"


# ------------------------------------------------------------------ words
def tight_limits() -> list[str]:
    """Names of the inherited limits that may stop a job."""
    return [name for name, (soft, _) in inherited_limits().items() if is_less(soft, KINDS[name].usual)]


def describe_inherited() -> list[str]:
    """Sentences for the first lines of a run and for its report; [] when nothing is out of the ordinary."""
    tight = tight_limits()
    if not tight:
        return []
    shown = ", ".join(f"{KINDS[name].title} {shown_limit(name, inherited_limits()[name][0])}" for name in tight)
    found = [f"limits of the shell that started this, kept for every attempt: {shown}"]
    if stuck := [name for name in tight if is_less(own_limit(name)[0], KINDS[name].needed)]:
        names = " and ".join(KINDS[name].title for name in stuck)
        found.append(
            f"the limit of {names} is a hard one and holds for this tool too: it takes less memory and may draw no"
            " pictures; a shell without that limit, and the limit in the specification (limits:), avoids this"
        )
    return found


LIMIT_OF_ERROR = {
    errno.EMFILE: ("RLIMIT_NOFILE", "ulimit -n"),
    errno.EFBIG: ("RLIMIT_FSIZE", "ulimit -f"),
    errno.EAGAIN: ("RLIMIT_NPROC", "ulimit -u"),
    errno.ENOMEM: ("RLIMIT_AS", "ulimit -v"),
}


def limit_behind(problem: BaseException) -> str:
    """Words for the limit that an error of ours comes from; "" where that limit is not small."""
    number = problem.errno if isinstance(problem, OSError) else errno.ENOMEM
    name, command = LIMIT_OF_ERROR.get(number or 0, ("", ""))
    if not name or not is_less(own_limit(name)[0], KINDS[name].needed):
        return ""
    shown = shown_limit(name, own_limit(name)[0])
    return f" (this shell's hard limit of {KINDS[name].title} is {shown}: {command}; use another shell)"


def shown_limit(name: str, value: int) -> str:
    """A limit for people."""
    if value == INFINITE:
        return "unlimited"
    if KINDS[name].in_bytes:
        return f"{value / MIB:,.0f} MiB" if value >= MIB else f"{value:,} bytes"
    return f"{value:,} s" if name == "RLIMIT_CPU" else f"{value:,}"


def own_limit(name: str) -> Pair:
    """Soft and hard limit of this process now."""
    return resource.getrlimit(getattr(resource, name))


def is_less(one: int, other: int) -> bool:
    """True if the first limit is lower; INFINITE is the highest."""
    return one != INFINITE and (other == INFINITE or one < other)


def with_inherited(limits: Mapping[str, Pair]) -> dict[str, Pair]:
    """Limits for a child: those asked for, and the inherited ones for the rest."""
    return {**limits_of_children(), **limits}
