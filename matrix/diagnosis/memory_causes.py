"""What a death for memory may be: the catalogue's entries.  Their rules are in `memory.py` and the other modules
`memory_*.py`."""

from __future__ import annotations

from matrix.diagnosis.cause import Cause, Form, remedy

WORKING_SET, RETENTION, WORKERS, ALLOCATOR = NAMES = (
    "memory_working_set",
    "memory_retention",
    "memory_worker_multiplication",
    "memory_allocator_retention",
)
MEMORY_FILES, NEIGHBOUR = "memory files", "neighbour"  # forms of these
FORMS = {
    MEMORY_FILES: Form(
        title="Files in memory are kept",
        clause="files in a memory file system (/dev/shm, a tmpfs, a memory-backed volume) count against the memory limit of whoever wrote "
        "them, and they stay until they are removed",
        remedies=(
            remedy("axis", "another folder, on a disk, or fewer files that are kept"),
            remedy("code", "remove files that are not needed any more; write them to a disk"),
            remedy("limit", "a higher memory limit", "files that are kept only postpone it"),
        ),
    ),
    NEIGHBOUR: Form(
        title="Another process in the same group took the memory",
        clause="a process beside the job, in the same container or group, uses up the memory limit that both share",
        remedies=(
            remedy("axis", "the job without that process, or that process with less memory"),
            remedy("limit", "a group of its own for that process, with a limit of its own"),
            remedy("limit", "a higher memory limit"),
        ),
    ),
}
CAUSES = (
    Cause(
        name=WORKING_SET,
        title="One step needs more memory than there is",
        clause="the memory that one step needs, which grows with the batch and not with the number of steps, does not fit below the limit",
        every_time=0.95,
        remedies=(
            remedy("axis", "smaller batches with more accumulation", "speed"),
            remedy("limit", "a higher memory limit"),
            remedy("code", "lower precision, or activation checkpointing", "accuracy or speed"),
        ),
        cures_it={"memory_x2": 0.75},
        forms=FORMS,
    ),
    Cause(
        name=RETENTION,
        title="Memory kept from step to step",
        clause="something keeps data or graphs of earlier steps alive, so that memory grows with every step until it reaches the limit",
        every_time=0.95,
        remedies=(
            remedy("axis", "the setting under which it is not kept"),
            remedy("code", "keep numbers, not tensors (.item(), .detach()); bound caches and histories"),
            remedy("limit", "a higher memory limit", "only postpones it"),
        ),
        references=("PyTorch FAQ: my model reports out of memory",),
        cures_it={"memory_x2": 0.4, "one_arena": 0.05},
        forms=FORMS,
    ),
    Cause(
        name=WORKERS,
        title="Every worker holds its own copy",
        clause="each worker process holds its own copy of data or caches, so that memory grows with the number of workers past the limit",
        every_time=0.9,
        remedies=(
            remedy("axis", "fewer workers", "loading speed"),
            remedy("code", "data in arrays or files that workers share, instead of Python objects"),
            remedy("limit", "a higher memory limit"),
        ),
        references=("PyTorch issue 13246: DataLoader and copy-on-write of Python objects",),
        cures_it={"memory_x2": 0.75},
    ),
    Cause(
        name=ALLOCATOR,
        title="Freed memory is not given back",
        clause="the allocator keeps memory that the program has freed (per-thread arenas, fragmentation, huge pages), and the process "
        "grows to the limit although little is in use",
        every_time=0.85,
        remedies=(
            remedy("environment", "MALLOC_ARENA_MAX=1 or 2, or another allocator by LD_PRELOAD", "contention between threads"),
            remedy("environment", "MALLOC_MMAP_THRESHOLD_=32768 where blocks are freed or shrunk between others that stay", "speed"),
            remedy("environment", "NUMPY_MADVISE_HUGEPAGE=0 where huge pages are kept", "speed"),
            remedy("axis", "fewer threads"),
        ),
        references=("man 3 mallopt, M_ARENA_MAX",),
        cures_it={"one_arena": 0.9, "no_huge_pages": 0.4, "memory_x2": 0.5, "one_thread": 0.3},
    ),
)
