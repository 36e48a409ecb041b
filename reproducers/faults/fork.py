"""Forks that lose the threads which hold a lock."""

from __future__ import annotations

from reproducers.faults import compiled

FORKED_LOCK = compiled.fault(
    name="forked-lock",
    family="fork",
    cause="fork_unsafe",
    about="""
A worker is forked while another thread holds a lock; in the worker nobody is left to release it.

What is real: a library in C, compiled here, starts a thread that holds the library's mutex while it works.  A process is forked
meanwhile (multiprocessing, start method fork) and asks the library, which waits for that mutex for ever; the program waits for
the worker.  With the start method spawn the worker has a library of its own and answers (the program then needs a main guard).
What is arranged: that the job lasts until the fork has happened, where it is a matter of luck otherwise; the moment.
People meet it as DataLoader workers or a forked miner after OpenMP, FAISS, gRPC or logging have been used in the parent.
""",
    dies="hangs, asleep: the worker in a mutex, the program in join()",
)

FAULTS = (FORKED_LOCK,)
