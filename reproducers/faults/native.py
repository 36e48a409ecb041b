"""Crashes in native code: bad arguments, damaged memory, races, stacks that run over, instructions that the processor lacks."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

from reproducers.faults import compiled
from reproducers.faults.fault import Amount, Fault, compile_library, on_linux, with_compiler

FAMILY, ANY_TIME = "native", "seconds:1"
RACE = Path(__file__).with_name("thread_race.cpp")

BAD_POINTER = Fault(
    name="bad-pointer",
    family=FAMILY,
    cause="native_bad_argument",
    about="""
A write through a bad pointer at the chosen moment, as a broken kernel of a native library does it.

What is real: libc's memset writes to address 1, the kernel answers with SIGSEGV, and the crash stands in native code below a
Python frame.  What is arranged: the moment.
""",
    dies="SIGSEGV",
    when="backward",
    platforms="Linux, macOS",
    needs="nothing",
    why_not=lambda: None,
)

BAD_INDEX = compiled.fault(
    name="bad-index",
    family=FAMILY,
    cause="native_bad_argument",
    about="""
A row number far behind the end of a table is given to native code that does not check it.

What is real: a gather in C, compiled here, reads a float 16 TiB behind its table of 1,000: SIGSEGV in native code, at an
address where nothing is mapped.  What is arranged: the table, the number, the moment.
People meet it as an index from another data set or vocabulary, a -1 that means "not found", or a product that left 32 bits.
""",
    dies="SIGSEGV",
)

HEAP_OVERRUN = compiled.fault(
    name="heap-overrun",
    family=FAMILY,
    cause="native_memory_corruption",
    about="""
Native code writes past the end of a block and over what the allocator keeps there; giving back the neighbour aborts.

What is real: in C, compiled here, 64 bytes (--amount) more than a block holds are written into it.  glibc finds the size of the
next block impossible when that one is freed, says so (`free(): invalid ...`) and aborts.  What is arranged: that the neighbour is
freed at once, where it could as well be hours later; the moment.
People meet it as a buffer sized for the last batch, which is smaller, or for another dtype.
""",
    dies="SIGABRT, free(): invalid ...",
    needs="a C compiler, glibc",
    amount=Amount(default=64, text="bytes written past the block", least=16),
)

DOUBLE_FREE = compiled.fault(
    name="double-free",
    family=FAMILY,
    cause="native_memory_corruption",
    about="""
Two owners of one block of memory, and both give it back.

What is real: in C, compiled here, a block is freed twice; glibc notices (`free(): double free detected`) and aborts.
What is arranged: that nothing else is allocated between the two, where damage could stay unseen; the moment.
People meet it as a native object that Python and a library both believe to own, often in the teardown.
""",
    dies="SIGABRT, free(): double free detected",
    needs="a C compiler, glibc",
)


def _build_race(folder: Path, prefix: str) -> None:
    compile_library(folder, f"{prefix}_race.cpp", f"lib{prefix}_race.so", compiler="c++")


THREAD_RACE = Fault(
    name="thread-race",
    family=FAMILY,
    cause="native_thread_race",
    about="""
Several native threads add to one std::vector that nobody locks.

What is real: C++, compiled here, whose threads push strings into the same vector and clear it.  What breaks, and when, is up to
their timing: SIGSEGV, or SIGABRT from the allocator; now and then it survives its seconds (--amount).  There are as many threads
as OMP_NUM_THREADS says, else two, and one thread alone is well.  What is arranged: the library, the moment.
People meet it as an index that is searched while it is added to, or as a tokenizer or cache that is used from several threads.
""",
    dies="SIGSEGV or SIGABRT, by luck",
    when=ANY_TIME,
    platforms="Linux",
    needs="a C++ compiler",
    why_not=lambda: with_compiler("c++"),
    files=lambda prefix: {f"{prefix}_race.cpp": RACE},
    build=_build_race,
    amount=Amount(default=10, text="seconds after which the threads end if nothing broke"),
)

DEEP_RECURSION = compiled.fault(
    name="deep-recursion",
    family=FAMILY,
    cause="stack_overflow",
    about="""
A recursion in native code, with a buffer of 16 KiB in every call, needs more stack than the thread has.

What is real: C, compiled here, whose calls need 32 MiB of stack (--amount).  With the usual limit of 8 MiB the thread meets its
guard page: SIGSEGV.  With a larger one (ulimit -s) it survives.  What is arranged: the recursion, the moment.
People meet it as a tree built from sorted keys, a deep graph that is freed recursively, or large local arrays in OpenMP threads.
""",
    dies="SIGSEGV",
    amount=Amount(default=32, text="MiB of stack that the recursion needs"),
)


def _why_no_bad_instruction() -> str | None:
    if reason := on_linux():
        return reason
    if platform.machine() != "x86_64":
        return f"the instruction is one of x86-64, and this is {platform.machine()}"
    if " xop" in Path("/proc/cpuinfo").read_text(errors="replace"):
        return "this processor has the XOP instructions, which the plant takes for missing"
    return with_compiler()


BAD_INSTRUCTION = compiled.fault(
    name="bad-instruction",
    family=FAMILY,
    cause="illegal_instruction",
    about="""
A library that was built for another processor executes an instruction that this one lacks.

What is real: a library, compiled here, holds `vprotd` of AMD's XOP set, as a build with -mxop does; the processor refuses it and
the kernel sends SIGILL.  What is arranged: the choice of XOP, which hardly any machine has; the moment.
People meet it as a wheel or a build from source with -march=native that moved to an older machine.
""",
    dies="SIGILL",
    platforms="Linux on x86-64",
    needs="a C compiler, a processor without XOP",
    why_not=_why_no_bad_instruction,
)

OLD_VIEW = compiled.fault(
    name="old-view",
    family=FAMILY,
    cause="native_memory_corruption",
    about="""
A view into a block is read after its owner grew and moved elsewhere.

What is real: in C, compiled here, a block of 8 MiB is copied to a larger one and freed; glibc gives so large a block back to the
system, and the read through the old pointer is a SIGSEGV where nothing is mapped any more.  What is arranged: the moment.
People meet it as a pointer into a vector that was appended to, a NumPy view of memory that its owner freed, or a closed mapping.
""",
    dies="SIGSEGV",
    needs="a C compiler, glibc",
)

SPENT_REFERENCE = Fault(
    name="spent-reference",
    family=FAMILY,
    cause="native_memory_corruption",
    about="""
Native code gives back references to None that it never had, until none is left.

What is real: the interpreter's own Py_DecRef is called on None at every moment, 100,000 times (--amount); when its count of
references is used up the interpreter gives up ("Fatal Python error: none_dealloc").  What is arranged: that it goes quickly.
People meet it as an extension that calls Py_DECREF on a borrowed reference, days after it was loaded.
""",
    dies="SIGABRT",
    when="seconds:1",
    platforms="Linux, macOS",
    needs="Python before 3.12, in which None cannot be freed any more",
    why_not=lambda: "None cannot be freed in Python 3.12 and later" if sys.version_info >= (3, 12) else None,
    again=True,
    amount=Amount(default=100_000, text="references given back each time"),
)

FAULTS = (
    BAD_POINTER,
    BAD_INDEX,
    HEAP_OVERRUN,
    DOUBLE_FREE,
    OLD_VIEW,
    SPENT_REFERENCE,
    THREAD_RACE,
    DEEP_RECURSION,
    BAD_INSTRUCTION,
)
