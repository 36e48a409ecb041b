"""The words for what the records hold as identifiers: causes, grades, kinds of fix, ways to end.

A clause follows "because"; it explains the cause in general and claims nothing about the run at hand.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Cause:
    title: str
    clause: str


CAUSES = {
    "openmp_runtime_conflict": Cause(
        "Two OpenMP runtimes in one process",
        "two copies of an OpenMP runtime are loaded into one process, and the second one to be used aborts the process",
    ),
    "fork_unsafe": Cause(
        "Fork after threads were started",
        "a process is forked after native threads have started: the copy inherits locks and thread pools whose threads do not exist in it",
    ),
    "shm_or_disk_full": Cause(
        "Shared memory or disk full",
        "/dev/shm or a file system runs full; a write to mapped memory there ends in SIGBUS, other writes fail or are lost",
    ),
    "file_changed_under_mmap": Cause(
        "A mapped file changed while it was read",
        "a file is shortened or replaced while it is mapped into memory, and reading the part that is gone ends in SIGBUS",
    ),
    "memory_working_set": Cause(
        "One step needs more memory than there is",
        "the memory that one step needs, which grows with the batch and not with the number of steps, does not fit below the limit",
    ),
    "memory_retention": Cause(
        "Memory kept from step to step",
        "something keeps data or graphs of earlier steps alive, so that memory grows with every step until it reaches the limit",
    ),
    "memory_worker_multiplication": Cause(
        "Every worker holds its own copy",
        "each worker process holds its own copy of data or caches, so that memory grows with the number of workers past the limit",
    ),
    "memory_allocator_retention": Cause(
        "Freed memory is not given back",
        "the allocator keeps memory that the program has freed (per-thread arenas, fragmentation, huge pages), and the process "
        "grows to the limit although little is in use",
    ),
    "resource_limit": Cause(
        "A limit other than memory was reached",
        "the program reaches a limit of the operating system: open files, processes and threads, address space or locked memory",
    ),
    "watchdog_or_time_limit": Cause(
        "A time limit or a watchdog",
        "something ends the job after a fixed time, whatever step it has reached: a CPU-time limit, a timer, a watchdog or a scheduler",
    ),
    "illegal_instruction": Cause(
        "An instruction that this processor lacks",
        "native code uses a processor instruction that this machine does not have",
    ),
    "stack_overflow": Cause(
        "A stack overflow",
        "deep recursion or large local arrays in native code use up the stack of a thread",
    ),
    "native_memory_corruption": Cause(
        "Native code corrupts memory",
        "native code writes or frees memory that is not its own; the process often dies later, in code that has nothing to do with it",
    ),
    "native_bad_argument": Cause(
        "Native code is given something it does not check",
        "native code is called with an index, shape, layout or pointer that it does not check, and reads or writes outside its data",
    ),
    "native_thread_race": Cause(
        "Two threads in native code that is not thread-safe",
        "two threads use the same native object at the same time although it allows only one, so that the outcome depends on timing",
    ),
    "numerical_divergence": Cause(
        "Numbers became NaN or infinite",
        "values become NaN or infinite, and later code that cannot handle them stops, loops or crashes",
    ),
    "binary_incompatibility": Cause(
        "Native packages that do not fit together",
        "a native package was built against a different version of another package or library than the one that is loaded",
    ),
    "external_signal": Cause(
        "A signal from outside",
        "another process, a terminal, a pipe or a scheduler sends a signal that ends the job; the job itself does nothing wrong",
    ),
    "deadlock": Cause(
        "A deadlock",
        "threads or processes wait for each other for ever, without using the processor",
    ),
    "cpu_bound_stall": Cause(
        "Busy, but no longer making progress",
        "a loop or a spinning lock uses the processor and makes no progress",
    ),
    "library_exit": Cause(
        "A library ends the process",
        "a library or a handler ends the process itself (exit, _exit, abort), without a traceback and sometimes with status 0",
    ),
    "corrupt_input_data": Cause(
        "Damaged input data",
        "one record or file of the input is damaged, and the code that reads it dies there every time",
    ),
    "device_backend_fault": Cause(
        "A fault of the device or its backend",
        "the accelerator's driver, backend or memory fails; the same job does not fail on another device",
    ),
    "python_exception": Cause(
        "An ordinary Python exception",
        "an exception in Python code ends the job; the traceback in its output says where",
    ),
    "healthy": Cause(
        "Nothing wrong was found",
        "the job did not fail in the runs that were made",
    ),
    "unknown": Cause(
        "A cause that is not in the catalogue",
        "the failure is real, but none of the known causes explains it",
    ),
}


def cause(name: str) -> Cause:
    """Words for a cause; a name of a newer version is shown as it is."""
    return CAUSES.get(name) or Cause(name, f"of {name} (this version has no words for it)")


GRADES = {
    "confirmed": "the failure was produced with the cause and was absent without it, with the same signature, and fresh runs that were not "
    "used to find it agree",
    "supported": "several facts speak for it, but the decisive contrast is missing: no survival without the cause, or no fresh runs",
    "suspected": "it fits what was seen, and so do other causes",
}

STATUSES = {  # label, tone
    "diagnosed": ("Cause found", "bad"),
    "suspected": ("Cause suspected", "warn"),
    "not_reproduced": ("Not reproduced", "calm"),
    "healthy": ("Healthy", "good"),
    "inconclusive": ("Inconclusive", "warn"),
}

FIXES = {
    "cures": "removes the cause",
    "avoids": "keeps clear of the cause, which is still there",
    "hides": "hides the failure without removing the cause",
}

ISOLATION = {
    "cgroup-v2": "a memory cgroup (v2) of its own for each run: its limit and its counters are the kernel's",
    "cgroup-v1": "a memory cgroup (v1) of its own for each run: its limit and its counters are the kernel's",
    "watchdog": "no cgroup could be made; a watchdog read memory from outside and ended what passed the limit",
    "none": "no cgroup and no memory limit",
}

PURPOSES = {
    "calibrate": "to measure how the job behaves",
    "find": "to find the cause",
    "verify": "to verify a fix, on fresh runs",
    "control": "without instruments, to see whether watching changes the result",
}
