"""A change that survives with hardly any room left is not the fix while another one leaves more."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from matrix.diagnosis import judge
from matrix.diagnosis.cures import advise
from matrix.diagnosis.verdict import build
from matrix.records import Exit, Filesystem, Message, Observation, Trend, Verdict
from matrix.search import Search
from tests.matrix.test_diagnosis_cures import SPEC, case_of, observation
from tests.matrix.test_diagnosis_memory import FLAT, GROWING, MIB, killed, lived

SHM = Filesystem(folder="/dev/shm", use="shm", total_bytes=64 * MIB, least_free_bytes=0, last_free_bytes=0, last_s=2.0)
DISK = dataclasses.replace(SHM, folder="/", use="cwd", least_free_bytes=MIB)
OPEN = Trend(what="descriptors", pid=7, role="main", first=10, last=1000, most=1024, samples=50, limit=1024)


def refused(text: str, kind: Any, **facts: Any) -> dict[str, Any]:
    return {"exit": Exit(returncode=1), "messages": [Message(kind=kind, text=text, stream="stderr")], **facts}


def ended(**facts: Any) -> dict[str, Any]:
    return {"exit": Exit(returncode=0), **facts}


def shm(free_mib: int) -> list[Filesystem]:
    return [DISK, dataclasses.replace(SHM, least_free_bytes=free_mib * MIB)]


ROOM = {free: ended(filesystems=shm(free)) for free in (3, 15, 33)}
MEMORY = {peak: lived(peak * MIB, curve=dataclasses.replace(FLAT, peak_bytes=peak * MIB)) for peak in (990, 400)}
COUNT = {most: ended(trends=[dataclasses.replace(OPEN, most=most)]) for most in (1000, 100)}


def told(dies: dict[str, Any], easy: dict[str, Any], runtime: dict[str, Any]) -> Verdict:
    """Dies unless `easy` or `runtime` is changed; the search is advised after every answer, as in a run."""
    search, seen = Search(SPEC), list[Observation]()
    while (trial := search.ask()) is not None:
        facts = easy if trial.cell["easy"] == 2 else runtime if trial.cell["runtime"] == "one" else dies
        seen.append(observation(trial, facts))
        search.tell(trial, judge.outcome(seen[-1]))
        case = case_of(search, seen)
        advise(search, case, build(case, name="made", complete=False, wall_s=1.0).ranking[0].cause)
    return build(case_of(search, seen), name="made", complete=True, wall_s=1.0)


@pytest.mark.parametrize(
    ("dies", "tight", "roomy"),
    [
        (refused("No space left on device", "no space", filesystems=shm(0)), ROOM[3], ROOM[33]),
        (refused("No space left on device", "no space", filesystems=shm(0)), ROOM[15], ROOM[33]),
        (killed(FLAT), MEMORY[990], MEMORY[400]),
        (refused("Too many open files", "too many files", trends=[OPEN]), COUNT[1000], COUNT[100]),
    ],
)
def test_of_changes_that_survive_one_that_leaves_room_is_the_fix_whichever_is_named_first(
    dies: dict[str, Any], tight: dict[str, Any], roomy: dict[str, Any]
) -> None:
    first, second = told(dies, tight, roomy), told(dies, roomy, tight)
    assert first.fix and first.fix.set == {"runtime": "one"} and "at the edge" not in first.fix.advice
    assert second.fix and second.fix.set == {"easy": 2}
    assert any("at the edge" in other.advice for other in first.other_fixes)


def test_a_change_under_which_memory_still_grows_ranks_behind_one_under_which_it_does_not() -> None:
    grows = dataclasses.replace(GROWING, limit_bytes=1024 * MIB, start_bytes=100 * MIB, end_bytes=300 * MIB)
    creeping, steady = lived(300 * MIB, curve=dataclasses.replace(grows, peak_bytes=300 * MIB)), MEMORY[400]
    first, second = told(killed(GROWING), creeping, steady), told(killed(GROWING), steady, creeping)
    assert first.fix and first.fix.set == {"runtime": "one"} and "no cure" not in first.fix.advice
    assert second.fix and second.fix.set == {"easy": 2}
    assert any("a run of about 185 steps meets the limit" in other.advice for other in first.other_fixes)


def test_where_every_change_survives_at_the_edge_the_cheapest_is_the_fix_and_says_so() -> None:
    found = told(killed(FLAT), MEMORY[990], MEMORY[990])
    assert found.fix and found.fix.set == {"easy": 2}
    assert "It survives at the edge: memory peaked at 990 MiB, and at 1024 MiB it is killed" in found.fix.advice
