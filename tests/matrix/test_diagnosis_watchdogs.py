"""A thread that ends the process when a step takes too long: told by whose abort it was and by how long that step takes elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from matrix.records import Death, Exit, Frame, Message, Progress, SignalSent, Verdict
from tests.matrix.test_diagnosis import died, lived, verdict

DEADLINE_S, SLOW_S, USUAL_S = 1.0, 1.6, 0.05


def stack(*named: tuple[str, str], start: str = "start_thread") -> list[Frame]:
    ending = [("raise", "libc.so.6"), ("abort", "libc.so.6")]
    return [
        Frame(function=function, library=library, kind="native", trust="symbol")
        for function, library in [*ending, *named, ("execute_native_thread_routine", "libstdc++.so.6"), (start, "libc.so.6")]
    ]


WATCHES = stack(("heartbeat", "libstore.so"))


def gave_up(native_stack: list[Frame] = WATCHES, *, silent_s: float = DEADLINE_S, **facts: Any) -> dict[str, Any]:
    """It died in its tenth step, so long after the ninth."""
    progress = Progress(last_step=9, last_step_s=3.0, longest_gap_s=USUAL_S)
    return {**died(), "native_stack": native_stack, "progress": progress, "wall_s": 3.0 + silent_s, **facts}


def of(facts: dict[str, Any], *, slow_s: float = SLOW_S) -> Verdict:
    other = lived(progress=Progress(last_step=20, longest_gap_s=slow_s))
    return verdict({("u", 1): facts, ("v", 1): other, ("v", 2): other})


def test_a_thread_that_aborts_in_a_step_that_takes_long_elsewhere_is_a_watchdog() -> None:
    found = of(gave_up())
    assert (found.ranking[0].cause, found.ranking[0].grade) == ("watchdog_or_time_limit", "confirmed")
    assert any("libstore.so called abort()" in fact.fact and "1.6 s" in fact.fact for fact in found.ranking[0].supports)


def test_an_exception_that_its_thread_throws_because_of_the_time_is_a_watchdogs_too() -> None:
    thrown = stack(("std::terminate()", "libstdc++.so.6"), ("watchdogHandler", "libstore.so"))
    said = [Message(kind="c++ exception", text="what(): Watchdog caught collective operation timeout", stream="stderr")]
    assert of(gave_up(thrown, messages=said)).ranking[0].cause == "watchdog_or_time_limit"


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param(gave_up(silent_s=0.2), id="it died at once: the core took that long"),
        pytest.param(gave_up(stack(("heartbeat", "libstore.so"), start="main")), id="a call of the program"),
        pytest.param(gave_up(stack(("work", "libgomp.so.1"))), id="a pool that works for a call"),
        pytest.param(gave_up(stack(("__assert_fail", "libc.so.6"), ("heartbeat", "libstore.so"))), id="an assertion"),
        pytest.param(gave_up(stack(("malloc_printerr", "libc.so.6"), ("free", "libc.so.6"), ("f", "libjob.so"))), id="a damaged heap"),
        pytest.param(gave_up(messages=[Message(kind="assertion", text="i < n failed", stream="stderr")]), id="words of a reason"),
        pytest.param({**gave_up(), "native_stack": []}, id="no core"),
    ],
)
def test_another_abort_is_no_watchdogs(facts: dict[str, Any]) -> None:
    found = of(facts)
    assert not (found.ranking[0].cause == "watchdog_or_time_limit" and found.ranking[0].grade == "confirmed")


def test_a_thread_that_the_program_waits_for_may_have_been_at_work_for_it() -> None:
    """As one of a pool that aborts in a long step of its own doing."""
    python = Frame(function="main", library="", kind="python", trust="interpreter")

    def beside(inner: str) -> Verdict:
        return of(gave_up(other_stacks=[[Frame(function=inner, library="libc.so.6", kind="native", trust="symbol"), python]]))

    assert beside("clock_nanosleep").ranking[0].grade == "confirmed"
    assert beside("__futex_abstimed_wait_common64").ranking[0].grade != "confirmed"


def test_without_a_slow_step_anywhere_a_thread_that_aborts_is_a_hint_and_no_more() -> None:
    found = of(gave_up(), slow_s=USUAL_S)
    assert found.ranking[0].grade != "confirmed"
    assert any(entry.cause == "watchdog_or_time_limit" for entry in found.ranking)


# ------------------------------------------------------------------ a process of its own
def asked(*, inside: bool = True, silent_s: float = DEADLINE_S) -> dict[str, Any]:
    sent = SignalSent(signal="SIGTERM", to_pid=7, from_pid=9, from_name="python", inside=inside, by_tool=False, time_s=4.0)
    death = Death(pid=7, role="main", signal="SIGTERM", status=None, time_s=4.0, part="initiating")
    return gave_up([], silent_s=silent_s, exit=Exit(returncode=-15, signal="SIGTERM"), deaths=[death], signals_sent=[sent])


def test_a_guard_process_that_ends_slow_steps_is_a_watchdog() -> None:
    found = of(asked())
    assert (found.ranking[0].cause, found.ranking[0].grade) == ("watchdog_or_time_limit", "confirmed")


@pytest.mark.parametrize(
    ("facts", "slow_s"),
    [
        pytest.param(asked(inside=False), SLOW_S, id="a stranger"),
        pytest.param(asked(silent_s=0.06), SLOW_S, id="in a step like the others: a scheduler's stand-in"),
        pytest.param(asked(), USUAL_S, id="no step is slow anywhere"),
    ],
)
def test_a_signal_that_came_in_no_slow_step_or_from_a_stranger_is_still_from_outside(facts: dict[str, Any], slow_s: float) -> None:
    found = of(facts, slow_s=slow_s)
    assert (found.ranking[0].cause, found.ranking[0].grade) == ("external_signal", "confirmed")


def test_one_death_in_a_slow_step_among_others_may_be_chance() -> None:
    """A scheduler's stand-in ends it at any moment."""
    other = lived(progress=Progress(last_step=20, longest_gap_s=SLOW_S))
    found = verdict({("u", 1): asked(), ("u", 2): asked(silent_s=0.06), ("v", 1): other, ("v", 2): other})
    assert found.ranking[0].cause == "external_signal"
