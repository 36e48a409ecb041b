"""Same crash or another one?  Stacks compared frame by frame, cut at a stated distance.

Two levels: `major` is the signal with the top frames that can hold the cause (those of the C library, the interpreter
and other runtimes are dropped), `minor` is every frame.  Neither is given where a stack says too little: nothing named,
a heap that was found damaged long after the damage, a recursion that ran out of stack.

The distance follows the position-dependent model of Dang et al. (ReBucket, ICSE 2012): frames near the top count most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from matrix.records import Frame, Observation

CUT = 0.7  # beyond it two stacks are different crashes; 0 is equal, 1 has nothing in common
TOP_WEIGHT, SHIFT_WEIGHT = 0.25, 0.1  # decay with the distance from the top, and with the shift between equal frames
MAJOR_FRAMES, COMPARED = 3, 20
DEEP = 80  # frames: as many as are read at most, so a recursion
STEADY = 3  # deaths that agree before one that differs is taken for another crash: a damaged heap crashes anywhere

RUNTIMES = (
    "libc.so", "libc-", "ld-linux", "libpthread", "libdl", "libm.so", "libstdc++", "libgcc_s", "libpython", "python", "libffi",
    "_ctypes.", "linux-vdso",
)  # fmt: skip
ALLOCATOR = ("malloc", "free", "calloc", "realloc", "_int_", "unlink_chunk", "tcache", "sysmalloc", "operator new", "operator delete")


def relevant(stack: Sequence[Frame]) -> list[Frame]:
    """Native frames outside every runtime; where there are none, the Python frames."""
    native = [frame for frame in stack if frame.kind == "native" and not frame.library.startswith(RUNTIMES)]
    named = [frame for frame in native if frame.trust in ("symbol", "library")]
    return named or [frame for frame in stack if frame.kind == "python"]


def refused(stack: Sequence[Frame]) -> str:
    """Why no signature is given; "" when one is."""
    if not relevant(stack):
        return "no frame of the crash could be named"
    if len(stack) >= DEEP:
        return "a recursion: its top frame is wherever the stack ended"
    if in_allocator(stack):
        return "the allocator noticed it: the damage was done before, somewhere else"
    return ""


def in_allocator(stack: Sequence[Frame]) -> bool:
    """Whether the crash was inside the allocator."""
    top = [frame.function for frame in stack if frame.kind == "native"][:6]
    return any(name.removeprefix("__libc_").removeprefix("__").startswith(ALLOCATOR) for name in top)


def major(observation: Observation) -> str | None:
    """The signal with the top frames that can hold the cause, `SIGSEGV libfoo.so!bar < libfoo.so!baz`; None: refused."""
    stack = observation.native_stack
    if refused(stack):
        return None
    top = relevant(stack)[:MAJOR_FRAMES]
    return f"{observation.exit.signal or 'crash'} " + " < ".join(_key(frame) for frame in top)


def minor(observation: Observation) -> str | None:
    """Every frame; None: refused."""
    stack = observation.native_stack
    return None if refused(stack) else " < ".join(_key(frame) for frame in stack)


def distance(a: Sequence[Frame], b: Sequence[Frame]) -> float:
    """0 for equal stacks, 1 for those without a common frame; both without runtime frames, innermost first."""
    a, b = list(a)[:COMPARED], list(b)[:COMPARED]
    if not a or not b:
        return 1.0
    best = [[0.0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, first in enumerate(a):
        for j, second in enumerate(b):
            gain = math.exp(-TOP_WEIGHT * min(i, j) - SHIFT_WEIGHT * abs(i - j)) if _key(first) == _key(second) else 0.0
            best[i + 1][j + 1] = max(best[i][j] + gain, best[i][j + 1], best[i + 1][j])
    most = sum(math.exp(-TOP_WEIGHT * at) for at in range(min(len(a), len(b))))
    return 1 - best[-1][-1] / most


class Crashes:
    """Names for crashes in the order in which they come.

    Attempts of one fault must not get two names because one of them happened to have a core: a name differs from the
    signal's only when at least three stacks of that signal agree with each other and this one clearly does not.
    """

    def __init__(self) -> None:
        self._groups: dict[str, list[tuple[str, list[list[Frame]]]]] = {}

    def name(self, signature: str, observation: Observation) -> str:
        """`signature` itself, or `signature in LIBRARY` for a crash that is clearly another one."""
        stack = observation.native_stack
        if refused(stack) or signature.startswith(("hang", "exit", "SIGKILL")):
            return signature
        frames = relevant(stack)
        groups = self._groups.setdefault(signature, [(signature, [])])
        for name, stacks in groups:
            if stacks and min(distance(frames, known) for known in stacks) <= CUT:
                stacks.append(frames)
                return name
        base = groups[0][1]
        if not _steady(base) or frames[0].library == base[0][0].library:
            base.append(frames)
            return signature
        groups.append((f"{signature} in {frames[0].library or frames[0].function}", [frames]))
        return groups[-1][0]

    def stacks(self, signature: str) -> int:
        """How many stacks of this signal are known."""
        return sum(len(stacks) for _, stacks in self._groups.get(signature, []))

    @property
    def several(self) -> bool:
        """Whether some signal has more than one crash."""
        return any(len(groups) > 1 for groups in self._groups.values())


def _steady(stacks: Sequence[Sequence[Frame]]) -> bool:
    return len(stacks) >= STEADY and all(distance(stacks[0], other) <= CUT for other in stacks)


def _key(frame: Frame) -> str:
    return f"{frame.library or frame.place.partition(':')[0]}!{frame.function or '?'}"
