"""A library in another's place: made deaths and survivors, with what was mapped and where it crashed."""

from __future__ import annotations

from typing import Any

import pytest

from matrix.diagnosis import exchanged
from matrix.records import Exit, Fault, Frame
from tests.matrix.test_diagnosis import died, lived, verdict

ALWAYS = ["/usr/lib/libc.so.6", "/env/site-packages/tool/ext.so"]
WILD = Fault(source="core", tid=7, trap="segfault", address=0x7F1234567890, access="read", mapping="nothing", library="core.so")


def crash(*calls: str, mapped: list[str]) -> dict[str, Any]:
    stack = [Frame(function=f"f{number}", library=name, kind="native", trust="symbol") for number, name in enumerate(calls)]
    return {**died("SIGSEGV"), "exit": Exit(returncode=-11, signal="SIGSEGV"), "faults": [WILD], "native_stack": stack, "mapped": mapped}


NO_PLACE: dict[str, Any] = {"faults": []}  # nothing speaks for another cause then


def first(death: dict[str, Any], survivor: list[str]) -> tuple[str, str]:
    clean = lived(mapped=survivor)
    found = verdict({("u", 1): death, ("v", 1): clean, ("v", 2): clean, ("w", 1): clean, ("w", 2): clean})
    return found.ranking[0].cause, found.ranking[0].grade


@pytest.mark.parametrize(
    ("mine", "theirs"), [("/a/x86/core2.so", "/b/x86/core1.so"), ("/a/r2/core.so", "/a/r1/core.so")], ids=["other name", "other folder"]
)
def test_a_crash_in_a_library_that_another_calls_and_that_another_build_cures_does_not_fit_and_is_not_confirmed(
    mine: str, theirs: str
) -> None:
    called = mine.rpartition("/")[2]
    death = crash(called, called, "ext.so", "libffi.so.8", mapped=[*ALWAYS, mine])
    for facts in (death, {**death, **NO_PLACE}):
        cause, grade = first(facts, [*ALWAYS, theirs])
        assert (cause, grade != "confirmed") == (exchanged.BINARY, True)


@pytest.mark.parametrize(
    ("calls", "mine", "theirs"),
    [
        (("core.so", "libffi.so.8"), ["/a/r2/core.so"], ["/a/r1/core.so"]),
        (("ext.so", "core.so"), ["/a/r2/core.so"], ["/a/r1/core.so"]),
        (("core.so", "ext.so"), ["/tmp/attempt1/r/core.so"], ["/tmp/attempt2/r/core.so"]),
        (("core.so", "ext.so"), ["/a/r2/core.so"], []),
        (("core.so", "ext.so"), ["/a/r2/core.so"], [f"/a/r1/{name}.so" for name in "abc"]),
    ],
    ids=["called by the program", "it calls", "another folder for each attempt", "switched off", "another program"],
)
def test_what_the_program_calls_itself_or_is_not_replaced_says_nothing_of_builds(
    calls: tuple[str, ...], mine: list[str], theirs: list[str]
) -> None:
    cause, _ = first(crash(*calls, mapped=[*ALWAYS, *mine]), [*ALWAYS, *theirs])
    assert cause != exchanged.BINARY


def test_a_survivor_that_was_not_seen_at_its_end_says_nothing() -> None:
    assert first(crash("core.so", "ext.so", mapped=[*ALWAYS, "/a/r2/core.so"]), [])[0] != exchanged.BINARY
