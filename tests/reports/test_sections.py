"""What the sections say of one run folder in which every kind of fact is there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import reports
from matrix.records import (
    CrashPattern,
    Exit,
    Fact,
    Failure,
    Fault,
    Fix,
    HeapError,
    Law,
    Library,
    NotCollected,
    Observation,
    ObserverControl,
    Outcome,
    ProbeResult,
    Ranked,
    Trial,
    Verdict,
)  # fmt: skip
from reports.cells import rows
from reports.contrast import nearest
from reports.ending import ending
from reports.folder import RunFolder, load
from reports.grid import crash_set, grid
from reports.package.kit.reproduce import difference
from tests.reports.run_folders import GIB, Story, aborted, finished

BAD = {"runtime": "two", "bs": 32, "mode": "a"}
TWO = [Library(pid=1, path=f"/opt/{name}/libiomp5.so", family="openmp-llvm", build_id="8f3a", inode=name) for name in ("one", "two")]


def verdict(died: list[str]) -> Verdict:
    first = Ranked(
        cause="openmp_runtime_conflict", probability=0.9, grade="confirmed", summary="two were mapped", culprit={"runtime": ["two"]},
        supports=[Fact(fact="two runtimes were mapped", attempt=died[0], file="maps.txt")],
        contradicts=[Fact(fact="one death came without a message", attempt=died[1], file="stderr.log")],
        not_collected=[NotCollected(what="checked heap", why="valgrind is not installed")],
    )  # fmt: skip
    second = Ranked(
        cause="native_thread_race", probability=0.1, grade="suspected", summary="it may be a race",
        contradicts=[Fact(fact="it died on one core too", attempt=died[2], file="observation.json")],
    )  # fmt: skip
    pattern = CrashPattern(
        text="it dies at the same step", steps=[40], laws=[Law(name="constant step", p=0.003, holds=True, text="all at 40")]
    )
    fix = Fix(kind="cures", set={"runtime": "one"}, cell={**BAD, "runtime": "one"}, advice="keep one")
    return Verdict(
        name="everything", complete=True, status="diagnosed", status_text="", ranking=[first, second], fix=fix, pattern=pattern,
        failures=[Failure(id="A", signature="SIGABRT", main=True, ranking=[first], attempts=died)],
        observer=ObserverControl(attempt=died[2], changed=False, text="it dies without instruments too"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunFolder, str]:
    root = tmp_path_factory.mktemp("everything")
    story = Story(root, dict(BAD))
    facts = {"libraries": TWO, "crash_stack": ["mining.py:88 in search"]}
    died = [story.run({}, aborted(), steps=40, wall_s=4 + number, **facts) for number in range(3)]
    died.append(story.run({}, aborted(), steps=41, wall_s=5, trial={"purpose": "control", "watched": False}))
    story.run({"bs": 8}, finished(), steps=200, wall_s=9)
    story.run({"runtime": "one"}, finished(), steps=200, wall_s=9, libraries=TWO[:1])
    story.run({"runtime": "one", "bs": 8, "mode": "b"}, finished(), steps=200, wall_s=30, libraries=TWO[:1])
    held = [ProbeResult(name="one_core", setting="1", held=True, how="the main process had 1 processor")]
    died.append(story.run({}, aborted(), steps=40, wall_s=6, trial={"probes": {"one_core": "1"}}, probes=held))  # fmt: skip
    lost = [ProbeResult(name="checked_heap", setting="valgrind", held=False, how="valgrind is not installed")]
    story.run({}, finished(), steps=200, wall_s=7, trial={"probes": {"checked_heap": "valgrind"}}, probes=lost)
    story.end(verdict(died), {"runtime": ["two", "one"], "bs": [8, 32], "mode": ["a", "b"]})
    predicted = {"peak_bytes": 5 * GIB, "components": {"bank": 3 * GIB, "batch": GIB}}
    (root / "attempts" / died[0] / "estimate.json").write_text(json.dumps(predicted))
    reports.write(root)
    return load(root), re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", (root / "report.md").read_text()).replace("*", "").replace("`", "")


def section(text: str, title: str) -> str:
    return text.split(f"## {title}\n")[1].split("\n## ")[0]


def test_each_cause_has_what_supports_and_contradicts_it_and_what_was_not_collected(told: tuple[RunFolder, str]) -> None:
    found = section(told[1], "The evidence for each cause")
    assert "Two runtimes were mapped. 0001-" in found and "maps.txt" in found
    assert "One death came without a message. 0002-" in found and "checked heap. Valgrind is not installed." in found
    assert found.count("Contradicts") == found.count("Supports") == found.count("Not collected") == 2
    assert "It died on one core too." in found


def test_a_probe_says_whether_it_took_hold_and_what_came_of_it_with_and_without(told: tuple[RunFolder, str]) -> None:
    rows_ = [line for line in section(told[1], "Interventions").splitlines() if line.startswith("| ")]
    held, lost = (next(line for line in rows_ if name in line) for name in ("one_core=1", "checked_heap=valgrind"))
    assert "yes: the main process had 1 processor" in held and "died 1/1: SIGABRT at step 40" in held and "died 4/4: SIGABRT" in held
    assert "no: valgrind is not installed" in lost and "survived 1/1" in lost


def test_the_nearest_survivor_is_the_one_that_differs_least_and_the_census_shows_the_second_copy(told: tuple[RunFolder, str]) -> None:
    folder, text = told
    failing = folder.observed[0][1]
    found = nearest(folder, failing)
    assert found and found.trial.cell in ({**BAD, "bs": 8}, {**BAD, "runtime": "one"}) and not found.trial.probes
    contrast = section(text, "Failing against surviving")
    assert "mining.py:88 in search" in contrast and "No stack was recorded in this run." in contrast
    assert re.search(r"OpenMP runtime \(openmp-llvm\) +\| libiomp5.so +\| 8f3a +\| not known +\| +2 \| +[1–]", contrast)


def test_the_crash_set_is_outlined_and_holds_no_run_with_a_probe(told: tuple[RunFolder, str]) -> None:
    folder, _ = told
    cells = rows(folder)
    inside = crash_set(cells, folder.verdict)
    assert {row.cell["runtime"] for row in inside} == {"two"} and not any(row.probes for row in inside)
    picture = grid(folder, cells)
    assert picture and sum(square.outlined for _, squares in picture.rows for square in squares if square) == 2
    assert next(square.text for square in picture.rows[0][1] if square) == "died 4/4"


def test_when_it_dies_has_the_law_the_hazard_and_the_fault(told: tuple[RunFolder, str]) -> None:
    found = section(told[1], "When it dies")
    assert "It dies at the same step." in found and re.search(r"constant step +\| yes +\| 0.003 +\| All at 40", found)
    assert re.search(r"\| 0 to 40 +\| +3 \|", found)


def test_the_estimate_stands_beside_what_was_measured(told: tuple[RunFolder, str]) -> None:
    found = section(told[1], "Memory")
    assert re.search(r"0001 estimate.json +\| +5.0 GiB \| +5.\d GiB \| +1\d\d % \| sum of RSS +\| bank 3.0 GiB and batch 1.0 GiB", found)


def test_watching_is_answered_by_the_verdict_and_by_both_kinds_of_runs(told: tuple[RunFolder, str]) -> None:
    found = section(told[1], "Does watching change the result")
    assert "It dies without instruments too." in found
    assert re.search(r"without instruments +\| +1 \| +0 \| +0 \| 0004", found) and re.search(r"with instruments +\| +3 \| +0 \|", found)


def test_an_unwatched_run_of_a_configuration_that_was_never_watched_is_named_alone(tmp_path: Path) -> None:
    story = Story(tmp_path, dict(BAD))
    died = [story.run({}, aborted(), steps=40, wall_s=4) for _ in range(3)]
    bare = story.run({"bs": 8}, aborted(), steps=40, wall_s=4, trial={"purpose": "verify", "watched": False})
    story.end(verdict(died), {"runtime": ["two", "one"], "bs": [8, 32], "mode": ["a", "b"]})
    reports.write(tmp_path)
    found = section((tmp_path / "report.md").read_text(), "Does watching change the result")
    assert f"The run without instruments: [{bare.split('-')[0]}]" in found and "with instruments" not in found


def test_a_fault_and_a_heap_error_are_said_where_it_died(tmp_path: Path) -> None:
    story = Story(tmp_path, {"bs": 1})
    fault = Fault(source="core", tid=1, trap="segfault", address=0x18, access="write", library="libx.so", mapping="nothing")
    error = HeapError(pid=1, what="Invalid write of size 8", frames=["fill (fast.c:12)"])
    story.run({}, Exit(returncode=-11, signal="SIGSEGV"), steps=3, wall_s=2, faults=[fault], heap_errors=[error])
    from reports.deaths import deaths

    found = deaths(load(tmp_path))
    words = ["".join(span.text for span in said) for block in (found.blocks if found else []) for said in getattr(block, "lines", [])]
    assert "Fault, by the core: segfault in libx.so, address 0x18, write (nothing there)" in words
    assert "Under valgrind: Invalid write of size 8  in fill (fast.c:12)".replace("  ", " ") in [" ".join(word.split()) for word in words]


def test_memory_that_nobody_followed_is_no_file_that_could_not_be_read(tmp_path: Path) -> None:
    story = Story(tmp_path, dict(BAD))
    died = [story.run({}, aborted(), steps=40, wall_s=4, memory={"samples": samples}) for samples in (9, 9, 9, 0)]
    story.end(verdict(died), {"runtime": ["two", "one"], "bs": [8, 32], "mode": ["a", "b"]})
    for name in (died[1], died[3]):
        (tmp_path / "attempts" / name / "memory.csv").unlink()
    reports.write(tmp_path)
    unread = section((tmp_path / "report.md").read_text(), "What could not be read")
    assert f"{died[1]}/memory.csv was not drawn" in unread
    assert died[3] not in unread


def test_what_our_limit_cut_off_is_a_failure_only_where_the_verdict_says_so() -> None:
    cut = Exit(returncode=-9, signal="SIGKILL", ended_by="wall")
    seen = Observation(attempt="0001-0", key="k", trial=Trial(id=1, cell=BAD), exit=cut, wall_s=30.0, started_unix_s=0.0)
    told = {kind: ending(seen, judged(kind)) for kind in ("died", "censored")}
    assert (told["died"].kind, told["died"].how) == ("died", "too slow")
    assert (told["censored"].kind, told["censored"].how) == ("censored", "our time limit")


def judged(kind: Any) -> Verdict:
    outcome = Outcome(kind=kind, signature="too slow" if kind == "died" else None)
    return Verdict(name="made", complete=True, status="inconclusive", status_text="", ranking=[], outcomes={"0001-0": outcome})


@pytest.mark.parametrize(("slow", "finished_alike"), [(True, False), (False, True)])
def test_a_replay_of_what_was_too_slow_is_alike_only_when_it_does_not_finish_again(slow: bool, finished_alike: bool) -> None:
    recorded = {"ended_by": "wall", "memory": False, "slow": slow, "returncode": -9, "signal": "SIGKILL"}
    seen = {"oom_kills": 0, "exceptions": {}, "last_step": None, "other_ends": []}
    again = {"ended_by": "wall", "returncode": -9, "signal": "SIGKILL", **seen}
    assert difference(recorded, again) == ""
    finished = {**again, "ended_by": "itself", "returncode": 0, "signal": None}
    assert (difference(recorded, finished) == "") == finished_alike
