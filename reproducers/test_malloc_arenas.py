"""Suspect: malloc's arenas.  Threads that take turns need the memory of one of them; do they hold that of all?

glibc has an arena for each thread, and what one thread has freed is of no use to the next one.  Where it is convicted, that is the
truth about the machine; musl and macOS have no arenas of that kind.
"""

from __future__ import annotations

import platform

import pytest

from reproducers import printed
from reproducers.stand import Stand, Suspect, one_thread

pytestmark = pytest.mark.quick
TIMES = 2.0


def suspect(name: str, *further: str, env: dict[str, str] | None = None) -> Suspect:
    return Suspect(
        name=name,
        asks="does a pool of threads that take turns hold several times the memory that its work needs?",
        program="malloc_arenas",
        arguments=further,
        env={**one_thread(), **(env or {})},
        rules=(printed.last("times", TIMES, "{} times the memory that one job needs is held when none runs"),),
        cure="MALLOC_ARENA_MAX=1 (or 2) in the environment; fewer threads; or another allocator (LD_PRELOAD of jemalloc)",
    )


def test_threads_that_take_turns_hold_the_memory_of_one(stand: Stand) -> None:
    stand.clears(suspect("malloc's arenas"))


@pytest.mark.control
def test_an_arena_of_its_own_for_each_thread_that_keeps_what_was_freed_is_seen(stand: Stand) -> None:
    planted = {"MALLOC_ARENA_MAX": "64", "MALLOC_TRIM_THRESHOLD_": str(1 << 30)}
    _, report = stand.convicts(suspect("arenas that give nothing back", env=planted), missing=_no_glibc())
    assert "MALLOC_ARENA_MAX=1" in report


@pytest.mark.control
def test_one_arena_is_cleared_by_the_same_rule(stand: Stand) -> None:
    _, judgement = stand.asks(suspect("one arena", env={"MALLOC_ARENA_MAX": "1"}))
    assert judgement.kind == "cleared"


def _no_glibc() -> str | None:
    return None if platform.libc_ver()[0] == "glibc" else "the C library is not glibc, which has the arenas"
