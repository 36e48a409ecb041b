"""Memory: one step that needs too much, memory that is kept, copies in every worker, freed memory that stays.

None of these kills by itself: the kernel does where there is a limit (a container's, the matrix's own `limits: {memory: …}`).
So that no machine suffers that has none, each of them stops taking more when less than 1 GiB of the machine is left.
"""

from __future__ import annotations

from reproducers.faults import compiled
from reproducers.faults.fault import Amount, Fault, on_linux

FAMILY = "memory"

BIG_STEP = Fault(
    name="big-step",
    family=FAMILY,
    cause="memory_working_set",
    about="""
From a moment on, every step needs much more memory for as long as it takes.

What is real: 1,024 MiB (--amount) are allocated, written to and given back at every moment; where the limit is lower, the kernel
kills the process (SIGKILL).  What is arranged: what the memory is for.
People meet it as a batch of long sequences, a validation pass, or the search of all queries at once.
""",
    dies="SIGKILL under a memory limit, else not at all",
    when="seconds:1",
    platforms="Linux",
    needs="a memory limit",
    why_not=on_linux,
    again=True,
    amount=Amount(default=1024, text="MiB needed for a moment"),
)

KEPT_MEMORY = Fault(
    name="kept-memory",
    family=FAMILY,
    cause="memory_retention",
    about="""
From a moment on, every step leaves something behind in a list that nobody empties.

What is real: a Python list that gets 16 MiB (--amount), written to, at every moment; at the limit the kernel kills the process.
What is arranged: what is kept.
People meet it as losses collected with their graphs, an unbounded cache, or predictions gathered over an epoch.
""",
    dies="SIGKILL under a memory limit, else not at all",
    when="seconds:1",
    platforms="Linux",
    needs="a memory limit",
    why_not=on_linux,
    again=True,
    amount=Amount(default=16, text="MiB kept each time"),
)

WORKER_COPIES = Fault(
    name="worker-copies",
    family=FAMILY,
    cause="memory_worker_multiplication",
    about="""
Every forked worker fills a cache of its own.

What is real: each process that Python forks (os.fork, multiprocessing, DataLoader workers) allocates 128 MiB (--amount) of its own
and writes to them; with enough workers the kernel kills one of them.  What is arranged: what the cache holds.
People meet it as a cache in a Dataset, or as a list of Python objects whose reference counts un-share its pages.
""",
    dies="a worker by SIGKILL under a memory limit, else nobody",
    when="",
    platforms="Linux",
    needs="a memory limit, a program that forks workers",
    why_not=on_linux,
    amount=Amount(default=128, text="MiB in each worker"),
)

ARENA_RETENTION = compiled.fault(
    name="arena-retention",
    family=FAMILY,
    cause="memory_allocator_retention",
    about="""
Threads give back all that they used, and the allocator keeps it, an arena for each thread.

What is real: at every moment C, compiled here, starts a thread that allocates 32 MiB (--amount) in pieces, frees them, keeps 32 KiB
that lie above them, and goes to sleep.  glibc keeps what was freed in that thread's arena, up to eight arenas for a processor; with
MALLOC_ARENA_MAX=1 the next thread uses it again.  What is arranged: the piece that is kept; that the threads stay.
People meet it as pools of threads that decode, tokenize or search.
""",
    dies="SIGKILL under a memory limit, else not at all",
    needs="a C compiler, glibc, a memory limit",
    again=True,
    amount=Amount(default=32, text="MiB that each thread uses and frees"),
)

KEPT_FILES = Fault(
    name="kept-files",
    family=FAMILY,
    cause="memory_retention",
    about="""
From a moment on, every step writes a file into memory that nobody removes.

What is real: files of 20 MiB (--amount) in the kernel's memory file system (memfd_create) are charged to the program's group; its
own memory stays as it is, and at the limit the kernel kills it (SIGKILL).  What is arranged: that they have no name, so that they go
with the program.
People meet it as checkpoints, caches or shared tensors in /dev/shm or a memory-backed volume.
""",
    dies="SIGKILL under a memory limit, else not at all",
    when="seconds:1",
    platforms="Linux",
    needs="a memory limit",
    why_not=on_linux,
    again=True,
    amount=Amount(default=20, text="MiB written each time"),
)

FAULTS = (BIG_STEP, KEPT_MEMORY, KEPT_FILES, WORKER_COPIES, ARENA_RETENTION)
