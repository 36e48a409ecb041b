"""What a line of output proves, and what it does not, by the kind of its words (`evidence.messages`)."""

from __future__ import annotations

from matrix.records import Grade, MessageKind

Meaning = tuple[str, str, Grade]  # proves, does not prove, how far it carries alone

# Lines that say less than others of their kind, or more; in lower case.
SPECIAL: dict[str, Meaning] = {
    "might be caused by insufficient shared memory": (
        "a DataLoader worker got SIGBUS",
        "that /dev/shm is full: the message guesses; `df /dev/shm` while it runs tells",
        "suspected",
    ),
    "collective operation timeout": (
        "this rank waited in a collective until NCCL's watchdog gave up",
        "that this rank is at fault: it is the one that came; look for the rank that did not",
        "supported",
    ),
}
MEANINGS: dict[MessageKind, Meaning] = {
    "openmp conflict": (
        "two copies of the LLVM/Intel OpenMP runtime are in one process, and the second one ended it by abort()",
        "which package brought the second copy: the libraries that were mapped tell (a core, or /proc/PID/maps)",
        "supported",
    ),
    "openmp warning": ("an OpenMP runtime complained", "that it ended the process: a warning does not", "suspected"),
    "numpy abi": (
        "a native module was built against another NumPy than the one that is there",
        "that this module crashed it; many only warn",
        "suspected",
    ),
    "missing symbol": (
        "the loader did not find a function: two packages do not fit together",
        "which of the two is the wrong one",
        "supported",
    ),
    "missing library": ("the loader did not find a library", "that it was needed: some are optional", "suspected"),
    "bad instruction": ("code was compiled for another processor", "which library's code it was", "suspected"),
    "heap damaged": (
        "the allocator found its bookkeeping damaged, and called abort()",
        "who damaged it: that was before, often long before, and elsewhere",
        "supported",
    ),
    "stack smashed": (
        "a function wrote beyond a buffer on its stack, and the compiler's guard called abort()",
        "which one: the native stack tells",
        "supported",
    ),
    "stack overflow": ("a stack ran out", "why: recursion, or a thread with a small stack", "suspected"),
    "recursion": ("Python's own limit of recursion was reached", "that native code overflowed its stack", "suspected"),
    "cuda out of memory": (
        "the accelerator's memory did not suffice for one allocation",
        "that the machine's memory ran out; nor what held the rest",
        "supported",
    ),
    "cuda assert": (
        "a kernel on the device found a value out of range, an index most often",
        "where: the Python line is a later one, unless CUDA_LAUNCH_BLOCKING=1 was set",
        "supported",
    ),
    "cuda error": (
        "the device or its libraries reported an error",
        "that the device is at fault: errors are reported late, and NCCL's often follow from another rank's death",
        "suspected",
    ),
    "worker died": (
        "a parent noticed that a process of its own was gone",
        "how and why that process died: it has evidence of its own",
        "suspected",
    ),
    "corrupt input": ("a file that was read is damaged or cut off", "that it ended the run: a loader may skip it", "suspected"),
    "no space": ("the system refused to store more on some file system", "which one: /dev/shm, the temp folder or a quota", "suspected"),
    "bus error": ("mapped memory had no storage behind it", "which file: most often /dev/shm is full", "suspected"),
    "too many files": (
        "the limit of open descriptors was reached (ulimit -n)",
        "what kept them open: tensors that workers send are descriptors too",
        "supported",
    ),
    "no more processes": ("the system refused a new thread or process", "which limit: ulimit -u, or the container's pids", "suspected"),
    "out of memory": (
        "one allocation was refused, and the program was told so",
        "that the kernel killed anything: a refused allocation raises, the out-of-memory killer says nothing to its victim",
        "suspected",
    ),
    "cpu time": ("a limit of time ended it", "whose limit, unless the line names it", "supported"),
    "file too large": ("a file grew beyond the limit of file sizes (ulimit -f, or the file system's)", "which file", "supported"),
    "no more ports": (
        "no port was left for another connection, or the address is not one of this machine",
        "ss -s (connections in timewait) against net.ipv4.ip_local_port_range",
        "suspected",
    ),
    "broken pipe": ("whoever read its output, or a peer, was gone", "why that one was gone: this is a consequence", "suspected"),
    "terminated": ("somebody asked a process to end", "who, and whether that came first", "suspected"),
    "c++ exception": ("a C++ exception was caught by nobody, and the runtime called abort()", "which library threw it", "supported"),
    "assertion": (
        "a library checked its own state, and it was wrong",
        "that the library is at fault: bad arguments do it too",
        "suspected",
    ),
    "fatal python error": (
        "the interpreter, or faulthandler in a signal handler, noted the end",
        "that Python is at fault: faulthandler writes it for any library's fault",
        "supported",
    ),
    "bad number": ("a figure of the training was no number any more", "that it ended the process", "suspected"),
}
