"""Crashes in native code: what the address, the stack, the allocator and the other threads say about them.

The signal alone separates little: SIGSEGV comes from most of these causes.  What separates them is where the address lies (below
the stack pointer, just behind a mapping, at the start of a block that was given back, nowhere) and who noticed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from matrix.diagnosis import clusters
from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import SHARED, Cause, finding, message, remedy
from matrix.diagnosis.judge import FAULTS, first_signal
from matrix.records import Fault, Finding, Frame, HeapError, MessageKind, Observation, describe_cell

OVERFLOW, CORRUPTION, ARGUMENT, RACE, ILLEGAL = (
    "stack_overflow",
    "native_memory_corruption",
    "native_bad_argument",
    "native_thread_race",
    "illegal_instruction",
)
PAGE = 4096
NULL = 16 * PAGE  # below this: a null pointer and a small offset
MMAP_HEADER = 16  # bytes in front of a block that the C library has mapped for itself, so its data starts at this offset in a page
EDGE = 64  # bytes: a vector register's width, so a read that runs off a mapping faults within it
UNUSABLE = ("nothing", "no access", "")  # what a fault says of its address: unmapped, a guard page, or unknown
NEAR_STACK = 64 << 10  # a fault this close to the stack pointer is on the stack
ROOM = 64 << 10  # left on the stack: it did not overflow
DEEP = 60  # frames: a recursion
TRAP = "0f0b"  # ud2: what compilers put behind assertions
EMPTY = 8  # bytes that are all the same: no instruction is so long and repeats itself
EXTENSIONS = ("62", "c4", "c5", "8f")  # begin instructions that only some processors have: EVEX (AVX-512), VEX (AVX, AMX), XOP
COVERED = 1.5  # nats: what ends a process by a bad address or an abort in native code is nearly always one of these
PRECONDITIONS = tuple(f"std::{name}" for name in ("logic_error", "invalid_argument", "domain_error", "length_error", "out_of_range"))
WAITS = (
    "futex",
    "nanosleep",
    "pause",
    "sigwait",
    "sigsuspend",
    "poll",
    "epoll",
    "select",
    "read",
    "recv",
    "accept",
    "wait",
    "sem_",
    "pthread_cond",
    "lock",
    "syscall",
    "gomp",
    "kmp",
    "?",
)
QUEUES = ("futex", "mutex", "lll_lock", "pthread_cond", "sem_wait", "syscall")  # in frames of who waits for another thread
NATIVE_CRASH = (CORRUPTION, ARGUMENT, RACE)  # what a crash in native code may be, when it is not of the stack or of an instruction
PYTHON_FREED = 0xDD  # Python's debug allocator, Objects/obmalloc.c
HEAP_PROBES = ("poisoned_heap", "checked_heap", "valgrind")
POOLS = ("gomp", "libomp", "libiomp", "openblas", "mkl", "tbb", "pthreadpool")  # in names of libraries that keep threads for their calls

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


def findings(case: Case) -> Iterator[Finding]:
    crashed = [death for death in case.deaths if crash_signal(death)]
    for death in crashed:
        yield from _signal(death)
        yield from _heap(case, death)
        yield from _address(death)
        yield from _recursion(death)
        yield from _other_threads(death)
    if crashed:
        yield from _repeats(case, crashed)
        yield from _no_code(case, crashed[0])
        yield from _same_place(case, crashed)
        guilty = [frame for death in crashed for frame in clusters.relevant(death.native_stack)]
        known = all(_said(death, "heap damaged") for death in crashed)
        for run in case.probed:
            yield from _checked(run, guilty, known=known)


def crash_signal(death: Observation) -> str | None:
    """The signal of a fault in native code that began this death; None: something else did."""
    signal = first_signal(death)
    return signal if signal in FAULTS else None


def _signal(death: Observation) -> Iterator[Finding]:
    name = crash_signal(death)
    invalid = next((fault for fault in death.faults if fault.trap == "invalid opcode"), None)
    if invalid and invalid.code.startswith(TRAP):
        fact = f"native code{_in(invalid)} ended itself by a trap that its compiler put there for what must not happen"
        yield finding(ARGUMENT, "trap", death, 2.0, fact)
        yield finding(ILLEGAL, "signal", death, -4.0, fact)
        return
    if name == "SIGILL" or invalid:
        where = next((_in(fault) for fault in death.faults if fault.library or _is_extension(fault)), "")
        if not where and death.faults:
            yield finding(ILLEGAL, "signal", death, 1.0, "the processor refused an instruction where no library is: a jump to nowhere")
            yield finding(CORRUPTION, "signal", death, 1.5, "the processor refused an instruction where no library is: a jump to nowhere")
            return
        yield finding(ILLEGAL, "signal", death, 4.5, f"the processor refused an instruction{where} ({name})")
        for cause in (CORRUPTION, ARGUMENT, RACE, OVERFLOW):
            yield finding(cause, "signal", death, -1.5, f"the processor refused an instruction{where} ({name})")
        return
    yield finding(ILLEGAL, "signal", death, -6.0, f"{name} is not how a processor refuses an instruction")
    if name in ("SIGSEGV", "SIGBUS", "SIGABRT"):
        for cause in (CORRUPTION, ARGUMENT, RACE, OVERFLOW):
            yield finding(cause, SHARED, death, COVERED if name == "SIGSEGV" else 0.0, f"{name} was raised by native code")
    if name == "SIGFPE":
        yield finding(
            ARGUMENT, "signal", death, 2.5, "a division in native code had a divisor of zero, or a result that does not fit (SIGFPE)"
        )
    if name not in ("SIGSEGV", "SIGBUS", "SIGABRT"):
        yield finding(OVERFLOW, "signal", death, -3.0, f"{name} is not how a stack overflow ends")


def _said(death: Observation, kind: MessageKind) -> str | None:
    """The first line of the output of that kind."""
    found = message(death, kind)
    return found.text.strip() if found else None


# ------------------------------------------------------------------ the heap
def _heap(case: Case, death: Observation) -> Iterator[Finding]:
    """The allocator notices damage when it meets it: the cause lies before, somewhere else."""
    fact, weight, inside = None, 0.0, clusters.in_allocator(death.native_stack)
    alike = case.said_alike("heap damaged")
    if (line := _said(death, "heap damaged")) and crash_signal(death) == "SIGABRT" and not alike:
        fact, weight = f"the allocator found its heap damaged: {line}", 4.0 if inside else 3.5
    elif inside:
        fact, weight = "it crashed inside the allocator, which only follows the pointers that it stored itself", 2.5
    if fact:
        yield finding(CORRUPTION, "heap", death, weight, fact, "stderr.log" if line else "native_stacks.txt")
        yield finding(RACE, "heap", death, 2.0, fact)
        yield finding(ARGUMENT, "heap", death, -0.5, fact)
        yield finding(OVERFLOW, "heap", death, -3.0, fact)
    if line := _said(death, "stack smashed"):
        yield finding(CORRUPTION, "stack smashed", death, 3.0, f"a function found its stack frame overwritten: {line}", "stderr.log")
    if line := _refused(case, death):
        yield finding(ARGUMENT, "assertion", death, 2.5, f"native code refused what it was given: {line}", "stderr.log")


def _refused(case: Case, death: Observation) -> str | None:
    """The line of an assertion, or about an uncaught C++ exception of the kind for a broken precondition, that no survivor printed.

    What an exception says of a damaged heap may be anything."""
    if crash_signal(death) != "SIGABRT":
        return None
    if (line := _said(death, "assertion")) and not case.said_alike("assertion"):
        return line
    line = _said(death, "c++ exception")
    if line is None or heap_is_damaged(death) or case.said_alike("c++ exception"):
        return None
    return line if any(name in line for name in PRECONDITIONS) else None


def heap_is_damaged(death: Observation) -> bool:
    """Whether the allocator or a checked heap says so: then what a pointer or a figure holds may be anything."""
    said = message(death, "heap damaged") or message(death, "stack smashed")
    return said is not None or bool(death.heap_errors) or clusters.in_allocator(death.native_stack)


# ------------------------------------------------------------------ the address
def _address(death: Observation) -> Iterator[Finding]:
    fault = the_fault(death)
    if fault is None:
        return
    if on_stack(fault):
        fact = f"the fault was on the stack, {_left(fault)}{_in(fault)}"
        yield finding(OVERFLOW, "address", death, 4.5, fact)
        for cause in (CORRUPTION, ARGUMENT, RACE):
            yield finding(cause, "address", death, -2.0, fact)
        return
    if fault.stack_left_bytes is not None and fault.stack_left_bytes > ROOM:
        yield finding(OVERFLOW, "address", death, -4.0, f"the thread that crashed had {fault.stack_left_bytes >> 10} KiB of stack left")
    for cause, weight, fact in _places(fault):
        yield finding(cause, "address", death, weight, fact)


def _places(fault: Fault) -> Iterator[tuple[str, float, str]]:
    """What kind of place the address is."""
    address, does = fault.address, {"write": "wrote", "execute": "jumped"}.get(fault.access or "", "read")
    where = f"native code{_in(fault)} {does}"
    if _emptied(fault):
        fact = f"what it ran at {fault.ip:#x} may be executed and holds one byte over and over: there is no code, or none any more"
        yield from ((CORRUPTION, 2.5, fact), (ARGUMENT, -0.5, fact), (RACE, 0.5, fact))
    elif _is_extension(fault):
        return  # it is about the instruction itself
    elif _is_generated(fault) and address is not None and fault.index_bytes is not None and _by_index(fault):
        fact = f"{where} {_far(fault.index_bytes)} a place that it has a pointer to, by an index, and nothing is mapped there"
        yield from ((ARGUMENT, 3.0, fact), (CORRUPTION, 1.0, fact), (RACE, 0.5, fact))  # other code may be there than what was called
    elif fault.access != "execute" and _in_no_library(fault):
        fact = f"what it ran at {fault.ip:#x} lies in no library: made at run time, or code that is not there any more"
        yield from ((CORRUPTION, 1.5, fact), (ARGUMENT, 1.5, fact), (RACE, 0.5, fact))  # a compiler's code is as usual as a lost callback
    elif fault.index_bytes is not None and _by_index(fault):
        fact = f"{where} {_far(fault.index_bytes)} a place that it has a pointer to, by an index, and nothing is mapped there"
        yield from ((ARGUMENT, 3.5, fact), (CORRUPTION, 1.0 if fault.access == "write" else 0.5, fact), (RACE, 0.5, fact))
    elif fault.trap == "general protection":
        fact = f"native code{_in(fault)} used something as a pointer that is no address"
        yield from ((CORRUPTION, 1.5, fact), (RACE, 1.0, fact), (ARGUMENT, 0.5, fact))
    elif address is None:
        return
    elif address < NULL:
        fact = f"{where} at {address:#x}: a null pointer"
        yield from ((ARGUMENT, 1.0, fact), (RACE, 0.5, fact), (CORRUPTION, 1.0, fact))
    elif fault.access == "execute":
        fact = f"{where} to {address:#x}, where there is no code"
        yield from ((CORRUPTION, 1.5, fact), (ARGUMENT, 0.5, fact))
    elif _at_start_of_freed(fault):
        fact = f"{where} at {address:#x}: where a large block or mapping would start, and nothing is mapped there any more"
        yield from ((CORRUPTION, 2.5, fact), (ARGUMENT, -0.5, fact), (RACE, 0.5, fact))
    elif behind_the_end(fault):
        fact = f"{where} at {address:#x}: one step behind the end of what is mapped"
        over = (ARGUMENT, 2.5, fact) if fault.access != "write" else (ARGUMENT, 1.5, fact)
        yield from (over, (CORRUPTION, 0.0 if fault.access != "write" else 1.0, fact))
    elif fault.mapping in ("nothing", ""):
        fact = f"{where} at {address:#x}, where nothing is mapped"
        yield from ((ARGUMENT, 2.5, fact), (CORRUPTION, 1.75, fact), (RACE, 0.5, fact))
    else:
        fact = f"{where} at {address:#x}, which belongs to {fault.mapping} and may not be used so"
        yield from ((ARGUMENT, 1.5, fact), (CORRUPTION, 1.0, fact))


def _in_no_library(fault: Fault) -> bool:
    """Whether the instruction that faulted was in none of the files that a core lists, though something was mapped there."""
    return fault.source == "core" and fault.ip is not None and fault.ip >= NULL and not fault.library


def _is_generated(fault: Fault) -> bool:
    """Whether it was in code that is of no file, as compilers make it at run time; what a mapping holds that may be executed may be
    anything, so code that is not there any more looks so as well, unless it was emptied."""
    return fault.code_in == "anonymous" and bool(fault.code) and not _emptied(fault)


def _emptied(fault: Fault) -> bool:
    """Whether nothing but one byte is where it ran: what is cleared, or was never written."""
    code = bytes.fromhex(fault.code)
    return fault.code_in == "anonymous" and len(code) >= EMPTY and len(set(code)) == 1


def _is_extension(fault: Fault) -> bool:
    """Whether generated code holds an instruction of the kind that not every processor has where one was refused: hardly by chance."""
    return fault.trap == "invalid opcode" and _is_generated(fault) and fault.code[:2] in EXTENSIONS


def _by_index(fault: Fault) -> bool:
    """Not a null pointer, and neither the next step of a loop nor what was given back: those have places of their own."""
    return (fault.address is None or fault.address >= NULL) and not behind_the_end(fault) and not _at_start_of_freed(fault)


def _far(count: int) -> str:
    units = ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "bytes"))
    shift, name = next(((shift, name) for shift, name in units if abs(count) >> shift), (0, "bytes"))
    return f"{abs(count) / (1 << shift):.0f} {name} {'behind' if count > 0 else 'before'}"


def _at_start_of_freed(fault: Fault) -> bool:
    """Of a large block of the C library, or of a mapping of the program's own: what runs off an end has something before it."""
    offset = _offset_in_no_page(fault)
    return offset == MMAP_HEADER or (offset == 0 and fault.before == "nothing")


def behind_the_end(fault: Fault) -> bool:
    offset = _offset_in_no_page(fault)
    return offset is not None and offset < EDGE and not _at_start_of_freed(fault) and fault.before != "nothing"


def _offset_in_no_page(fault: Fault) -> int | None:
    """Where in its page the address lies, when nothing may be used there; None: it is no such place, or a null pointer."""
    if fault.address is None or fault.address < NULL or fault.mapping not in UNUSABLE:
        return None
    return fault.address % PAGE


def the_fault(death: Observation) -> Fault | None:
    """The fault of the thread that began it: the kernel's line has the address also where a handler ran afterwards."""
    faults = [fault for fault in death.faults if fault.trap != "abort"]
    return next((f for f in faults if f.address is not None), None) or next(iter(faults), None)


def on_stack(fault: Fault) -> bool:
    left, distance = fault.stack_left_bytes, fault.stack_distance_bytes
    if left is not None and left <= PAGE and fault.mapping != "anonymous":
        return True
    near = distance is not None and -NEAR_STACK <= distance <= NEAR_STACK
    return near and fault.mapping in UNUSABLE and (left is None or left <= NEAR_STACK)


def _left(fault: Fault) -> str:
    if fault.stack_left_bytes is not None:
        return "of which nothing was left" if fault.stack_left_bytes <= 0 else f"of which {fault.stack_left_bytes} bytes were left"
    return f"{abs(fault.stack_distance_bytes or 0)} bytes from the stack pointer, where nothing may be used"


def _in(fault: Fault) -> str:
    return f" in {fault.library}" if fault.library else " in code made at run time" if _is_generated(fault) else ""


def _recursion(death: Observation) -> Iterator[Finding]:
    names = [frame.function for frame in death.native_stack if frame.kind == "native" and frame.function]
    common = max(set(names), key=names.count, default="")
    if names.count(common) >= DEEP:
        yield finding(
            OVERFLOW, "recursion", death, 2.5, f"{common} stands at least {names.count(common)} times on the stack", "native_stacks.txt"
        )
    elif any(dump.cut_off for dump in death.crash_dumps):
        yield finding(OVERFLOW, "recursion", death, 1.5, "more Python calls were open than faulthandler lists", "stacks.txt")
    if line := _said(death, "stack overflow"):
        yield finding(OVERFLOW, "message", death, 2.5, f"it said so: {line}", "stderr.log")


def _checked(run: Observation, guilty: Sequence[Frame], *, known: bool) -> Iterator[Finding]:
    """What a checked heap saw: the misuse itself, before the crash that it causes.  `guilty`: frames of the crashes without it;
    `known`: the allocator had noticed damage there too."""
    held = all(result.held for result in run.probes)
    if not held or not set(run.trial.probes) & set(HEAP_PROBES):
        return
    if (fault := the_fault(run)) and fault.filled is not None and fault.filled in _left_in_freed(run):
        fact = f"where what is freed is filled with {fault.filled:#x}, native code{_in(fault)} used such bytes as a pointer"
        for cause, weight in {CORRUPTION: 3.0, RACE: 2.0, ARGUMENT: -2.0}.items():  # a race frees too early as well
            yield finding(cause, "checked heap", run, weight, f"{fact}: memory that was given back")
    if line := _said(run, "heap damaged"):
        weight = 1.5 if known else 3.5  # a race damages the heap as well
        yield finding(CORRUPTION, "checked heap", run, weight, f"with a checked heap it ends at the damage: {line}", "stderr.log")
    for error in run.heap_errors:
        if not any(_same_code(theirs, ours) for theirs in error.frames for ours in guilty):
            continue  # of some other library, which is used to it
        if weights := _misuse(error):
            where = f" in {error.frames[0]}" if error.frames else ""
            fact = f"valgrind saw an {error.what[:1].lower()}{error.what[1:]}{where}: {error.about or 'no block of the heap'}"
            if error.freed_by_other_thread and (code := _common_code(error)):
                fact += f", by another thread, which was in {code} as well"
            for cause, weight in weights.items():
                yield finding(cause, "checked heap", run, weight, fact, "valgrind.log")
            return


def _left_in_freed(run: Observation) -> set[int]:
    """The bytes that allocators put into what is freed under the probes of this run."""
    byte = run.env_at_exec.get("MALLOC_PERTURB_", "")
    return ({int(byte) & 0xFF} if byte.isdigit() else set()) | ({PYTHON_FREED} if run.env_at_exec.get("PYTHONMALLOC") == "debug" else set())


def _misuse(error: HeapError) -> dict[str, float]:
    """What a misuse of memory says for and against the causes, in nats; {}: nothing."""
    wild = "not stack'd" in error.about
    if _common_code(error) and error.freed_by_other_thread:
        return {RACE: 4.0, ARGUMENT: -2.0}
    if _common_code(error) and any(frame.startswith("start_thread ") for frame in error.freed_by):  # perhaps by a thread of its kind
        return {RACE: 1.5, CORRUPTION: 1.5}
    if error.what.startswith(("Invalid free", "Mismatched free")) or ("free'd" in error.about and not wild):  # of the wild it says neither
        return {CORRUPTION: 4.0, ARGUMENT: -2.0}
    if error.what.startswith("Invalid write"):
        return {CORRUPTION: 1.0 if wild else 3.0, ARGUMENT: 1.5}
    return {ARGUMENT: 3.0, CORRUPTION: -0.5} if error.what.startswith("Invalid read") else {}


def _common_code(error: HeapError) -> str | None:
    """The library, or source file, in which a block was used, when the thread that freed it was inside the same one.  Not Python's:
    that frees whatever nobody refers to."""
    mine, theirs = (next(filter(None, map(_code, frames)), None) for frames in (error.frames, error.freed_by))
    return mine if mine == theirs and mine and not mine.startswith("libpython") else None


def _code(frame: str) -> str | None:
    """Of `function (in /path/library.so)` or `function (file.c:12)`; None: the allocator, or a copy."""
    place = frame.rpartition("(")[2].rstrip(")").removeprefix("in ")
    name = place.rpartition("/")[2].partition(":")[0]
    return None if not name or name.startswith(("vgpreload_", "vg_replace", "libc.so", "libstdc++")) else name


def _same_code(theirs: str, ours: Frame) -> bool:
    """valgrind names the library, or the source file where it knows that."""
    return (bool(ours.library) and ours.library in theirs) or (
        ours.kind == "native" and bool(ours.function) and theirs.startswith(f"{ours.function} (")
    )


# ------------------------------------------------------------------ other threads
def _other_threads(death: Observation) -> Iterator[Finding]:
    """Another thread of the program inside the same library, with a call of its own, at the moment of the crash."""
    if not death.native_stack:
        return
    mine = {frame.library for frame in clusters.relevant(death.native_stack) if frame.library}
    for stack in death.other_stacks:
        shared = sorted(mine & {frame.library for frame in _busy_in(stack)})
        if shared:
            fact = f"at the moment of the crash another thread of the program was inside {shared[0]} as well ({_names(stack)})"
            yield from _race(death, fact, 3.5, -1.5)
            return
    if any(_halfway_in_the_same(death, stack) for stack in death.other_stacks):
        where = clusters.relevant(death.native_stack)[0]
        fact = f"at the moment of the crash another thread was halfway through {where.function} in {where.library}, and waited for no lock"
        yield from _race(death, fact, 2.5, -1.0)  # a pool that sleeps where it also works looks like it
    elif death.other_stacks or (death.crash_dumps and all(dump.threads <= 1 for dump in death.crash_dumps)):
        fact = "at the moment of the crash no other thread of the program was at work inside the same library"
        yield finding(RACE, "other thread", death, -0.75, fact, "native_stacks.txt")


def _race(death: Observation, fact: str, race: float, others: float) -> Iterator[Finding]:
    yield finding(RACE, "other thread", death, race, fact, "native_stacks.txt")
    for cause in (ARGUMENT, CORRUPTION):
        yield finding(cause, "other thread", death, others, fact, "native_stacks.txt")


def _halfway_in_the_same(death: Observation, stack: list[Frame]) -> bool:
    """Whether a thread sleeps or reads within a call of the very function that crashed: it is not idle, and no lock keeps them apart."""
    crashed, own = clusters.relevant(death.native_stack), clusters.relevant(stack)
    if not crashed or not own or crashed[0].kind != "native" or not crashed[0].function or not crashed[0].library:
        return False
    if (own[0].library, own[0].function) != (crashed[0].library, crashed[0].function):
        return False
    inner = [frame.function.lower() for frame in takewhile(lambda frame: frame != own[0], stack)]
    return bool(inner) and not any(word in name for name in inner for word in QUEUES)


def _busy_in(stack: list[Frame]) -> list[Frame]:
    """The native frames above the innermost Python frame of a thread that runs; []: it waits, runs no native code, or is of a pool."""
    if all(frame.kind != "python" for frame in stack) and not of_no_call(stack):
        return []
    native = list(takewhile(lambda frame: frame.kind == "native", stack))
    waits = bool(native) and any(word in native[0].function.lower() for word in WAITS)
    if not native or (waits and not clusters.in_allocator(native)):  # the crashing thread may hold the allocator's lock: they queue there
        return []
    return [frame for frame in native if frame.library and not frame.library.startswith(clusters.RUNTIMES)]


def of_no_call(stack: list[Frame]) -> bool:
    """Whether a thread without Python is seen from its start and belongs to no pool, whose threads work for somebody else's call."""
    whole = any(frame.function.lstrip("_").startswith(("start_thread", "clone", "thread_start")) for frame in stack)
    return whole and not any(name in frame.library for frame in stack for name in POOLS)


def _names(stack: list[Frame]) -> str:
    names = [frame.function for frame in _busy_in(stack) if frame.function]
    where = next((frame.place for frame in stack if frame.kind == "python"), "")
    return ", called at ".join(filter(None, [next(iter(names), ""), where]))


# ------------------------------------------------------------------ across attempts
def _same_place(case: Case, crashed: list[Observation]) -> Iterator[Finding]:
    """Addresses differ from run to run; what kind of place they are does not, when one thing causes them all."""
    first = next((death for death in case.bad_deaths if crash_signal(death)), crashed[0])
    kinds: tuple[tuple[str, Callable[[Fault], bool], str], ...] = (
        (CORRUPTION, _at_start_of_freed, "at the start of a block that was given back"),
        (ARGUMENT, behind_the_end, "one step behind the end of what is mapped"),
    )
    for cause, is_there, words in kinds:
        there = sum(fault is not None and is_there(fault) for fault in map(the_fault, crashed))
        if there > 1 and there > len(crashed) / 2:
            yield finding(cause, "same place", first, 1.0, f"{there} of {len(crashed)} deaths came {words}")


def _no_code(case: Case, first: Observation) -> Iterator[Finding]:
    """Code that was made at run time ends in one way, whatever it is given; what was given back, or never was code, in several."""
    crashed = [run for run in case.unprobed if crash_signal(run)]
    lost = [run for run in crashed if (fault := the_fault(run)) and _in_no_library(fault)]
    ends = sorted({str(crash_signal(run)) for run in lost})
    if len(ends) > 1 and 2 * len(lost) > len(crashed):
        fact = f"{len(lost)} of {len(crashed)} deaths came where no library is, by {' and '.join(ends)}: it ran what is no code any more"
        yield finding(CORRUPTION, "no code", first, 2.5, fact)
        for cause in (ARGUMENT, RACE):
            yield finding(cause, "no code", first, -1.5, fact)


def _repeats(case: Case, crashed: list[Observation]) -> Iterator[Finding]:
    """A wrong argument kills at the same step of the same cell every time; what depends on timing does not."""
    cells: dict[str, list[Observation]] = {}
    for death in crashed:
        cells.setdefault(describe_cell(death.trial.cell), []).append(death)
    for other in case.unprobed:  # the same fault may end by another signal
        if other not in crashed and crash_signal(other) and (deaths := cells.get(describe_cell(other.trial.cell))):
            deaths.append(other)
    again = [deaths for deaths in cells.values() if len(deaths) > 1]
    if not again:
        return
    alike = [deaths for deaths in again if len({(death.progress.last_step, crash_signal(death)) for death in deaths}) == 1]
    runs = sum(map(len, again))
    first = next((death for death in case.bad_deaths if crash_signal(death)), again[0][0])
    if len(alike) == len(again):
        fact = f"all {runs} deaths of cells that died more than once came at the same step of their cell, with the same signal"
        begun = any(death.progress.last_step is not None for deaths in again for death in deaths)  # else a race that is lost at once
        yield finding(RACE, "repeats", first, (-1.5 if runs > 2 else -1.0) if begun else -0.5, fact)
        yield finding(ARGUMENT, "repeats", first, 1.0 if runs > 2 else 0.7, fact)
    else:
        fact = f"{runs} deaths of cells that died more than once came at different steps of the same cell, or with different signals"
        yield finding(RACE, "repeats", first, 1.5, fact)
        yield finding(ARGUMENT, "repeats", first, -1.0, fact)
