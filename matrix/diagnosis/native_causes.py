"""What a crash in native code may be: the catalogue's entries.  The rules for them are in `native.py`, and those of checked heaps and
other threads beside it."""

from __future__ import annotations

from matrix.diagnosis.cause import Cause, Form, remedy

OVERFLOW, CORRUPTION, ARGUMENT, RACE, ILLEGAL = (
    "stack_overflow",
    "native_memory_corruption",
    "native_bad_argument",
    "native_thread_race",
    "illegal_instruction",
)
GIVEN_BACK, NEVER_SET, REFERENCES, AT_EXIT = "given back", "never set", "references", "at exit"  # forms of these
NATIVE_CRASH = (CORRUPTION, ARGUMENT, RACE)  # what a crash in native code may be, when it is not of the stack or of an instruction

CAUSES = (
    Cause(
        name=OVERFLOW,
        title="A stack overflow",
        clause="deep recursion or large local arrays in native code use up the stack of a thread",
        every_time=0.95,
        remedies=(
            remedy("environment", "a larger OMP_STACKSIZE for OpenMP threads", "memory for every thread"),
            remedy("limit", "a larger stack limit (ulimit -s) before the start", "memory for every thread"),
            remedy("code", "less recursion, or buffers on the heap"),
        ),
        references=("OpenMP specification, OMP_STACKSIZE", "man 2 getrlimit, RLIMIT_STACK"),
        cures_it={"larger_stacks": 0.85, "one_thread": 0.4, "start_spawn": 0.05},
    ),
    Cause(
        name=CORRUPTION,
        title="Native code corrupts memory",
        clause="native code writes or frees memory that is not its own; the process often dies later, in code that has nothing to do "
        "with it",
        remedies=(
            remedy("axis", "the setting under which the faulty path is not taken"),
            remedy("package", "a version of the native package in which it is repaired"),
            remedy("code", "find the write with a checked heap (libc_malloc_debug, valgrind, AddressSanitizer) and repair it"),
        ),
        references=("glibc manual, Heap Consistency Checking", "valgrind manual, Memcheck"),
        cures_it={"checked_heap": 0.5, "poisoned_heap": 0.5, "valgrind": 0.5, "one_thread": 0.1, "one_core": 0.1, "one_arena": 0.1},
        forms={
            GIVEN_BACK: Form(
                title="Memory is used after it was given back",
                clause="native code keeps a pointer or a view into memory whose owner has freed it or moved it elsewhere",
                remedies=(
                    remedy("axis", "the setting under which nothing keeps a view"),
                    remedy("code", "keep the owner alive as long as the view; take the view again after the owner grew"),
                ),
            ),
            NEVER_SET: Form(
                title="Memory is used before it was set",
                clause="native code reads memory that nobody has written, and uses what lies there by chance",
                remedies=(
                    remedy("axis", "the setting under which the buffer is cleared"),
                    remedy("code", "set the buffer before it is read (calloc, zeros instead of empty)"),
                ),
            ),
            REFERENCES: Form(
                title="A reference count is wrong",
                clause="native code gives back references that it does not own, so an object is freed while others use it",
                remedies=(
                    remedy("axis", "the Python code in the place of the native one"),
                    remedy("code", "count references as the C API says: no Py_DECREF of what is borrowed"),
                ),
            ),
        },
    ),
    Cause(
        name=ARGUMENT,
        title="Native code is given something it does not check",
        clause="native code is called with an index, shape, layout or pointer that it does not check, and reads or writes outside its data",
        every_time=0.9,
        remedies=(
            remedy("axis", "the setting under which the argument stays in range"),
            remedy("code", "check indices, dtypes, contiguity and lifetimes before the call"),
        ),
        references=("NumPy documentation, ndarray.flags and ascontiguousarray",),
        cures_it={"poisoned_heap": 0.05, "checked_heap": 0.05},
    ),
    Cause(
        name=RACE,
        title="Two threads in native code that is not thread-safe",
        clause="two threads use the same native object at the same time although it allows only one, so that the outcome depends on timing",
        every_time=0.1,
        remedies=(
            remedy("axis", "no second thread at that place"),
            remedy("environment", "one thread", "speed, and it hides the race"),
            remedy("code", "a lock around the native object, or an object for every thread"),
        ),
        references=("FAISS wiki, Threads and asynchronous calls",),
        cures_it={"one_thread": 0.35, "one_core": 0.4, "checked_heap": 0.4, "poisoned_heap": 0.4, "valgrind": 0.6},
        forms={
            AT_EXIT: Form(
                title="A native thread still runs while the process ends",
                clause="a thread of native code goes on while exit handlers destroy the objects that it uses",
                remedies=(
                    remedy("axis", "the setting without that thread"),
                    remedy("code", "stop and join the thread before the program ends (atexit, close())"),
                ),
            ),
        },
    ),
    Cause(
        name=ILLEGAL,
        title="An instruction that this processor lacks",
        clause="native code uses a processor instruction that this machine does not have",
        every_time=0.98,
        remedies=(
            remedy("environment", "a plain code path (ATEN_CPU_CAPABILITY=default, OPENBLAS_CORETYPE, NPY_DISABLE_CPU_FEATURES)", "speed"),
            remedy("package", "a build for this processor"),
        ),
        references=("NumPy documentation, CPU build options",),
        cures_it={"plain_instructions": 0.6},
    ),
)
