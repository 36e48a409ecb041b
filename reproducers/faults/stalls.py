"""Hangs: asleep in a lock, or busy for ever."""

from __future__ import annotations

from reproducers.faults import compiled
from reproducers.faults.fault import Fault

LOCK_ORDER = compiled.fault(
    name="lock-order",
    family="stalls",
    cause="deadlock",
    about="""
Two native threads take the same two locks in opposite order, and each waits for what the other one holds.

What is real: two pthread mutexes and two threads in C, compiled here, one of them the program's own.  What is arranged: a barrier
that makes both take their first lock before either asks for the second, where it is a matter of luck otherwise; the moment.
People meet it between a cache and an index, a queue and its feeder, the interpreter's lock and a library's.
""",
    dies="hangs, asleep",
)

BUSY_SPIN = compiled.fault(
    name="busy-spin",
    family="stalls",
    cause="cpu_bound_stall",
    about="""
Native code iterates until something converges, and it never does.

What is real: a loop in C, compiled here, with the interpreter's lock released, that looks at a flag for ever and keeps one processor
busy.  What is arranged: that nobody sets the flag; the moment.
People meet it as a solver without a limit of iterations, a retry without a pause, or a spin lock whose owner has gone.
""",
    dies="hangs, busy",
)

SILENT_REMOTE = Fault(
    name="silent-remote",
    family="stalls",
    cause="deadlock",
    about="""
A remote takes a connection and never answers, and no time limit is set on the wait.

What is real: a TCP connection over the loopback interface to a socket that nobody reads; the program waits in recv() for ever.
What is arranged: that the remote is the program's own; the moment.
People meet it as a data server, an object store, a licence server or a tracker behind a firewall that drops what it does not like.
""",
    dies="hangs, asleep",
    when="seconds:1",
    platforms="Linux, macOS",
    needs="nothing",
    why_not=lambda: None,
)

FAULTS = (LOCK_ORDER, BUSY_SPIN, SILENT_REMOTE)
