"""The search's benchmark: its programs are what it says they are, its peers work, and a part that is done is not done again."""

from __future__ import annotations

import math
import random

import pytest

from benchmarks.search import figures, page, peers, table
from benchmarks.search.bound import capacity, entropy
from benchmarks.search.players import Played
from benchmarks.search.table import Part, Row
from benchmarks.search.worlds import KINDS, MAIN, OUTSIDE, STEPS, one_axis, world

ALL_KINDS = (*KINDS, "3", "4", "two causes", *OUTSIDE)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_the_known_bad_cell_dies_and_some_cell_survives_in_programs_of_every_kind(kind: str) -> None:
    for seed in range(6):
        program = world(seed, kind, 1.0)
        assert program.dies(program.spec.known_bad)
        assert not all(map(program.dies, program.spec.cells()))
        assert program.run(program.spec.known_bad, random.Random(0)).signature == MAIN


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_the_same_seed_draws_the_same_program(kind: str) -> None:
    first, second = world(3, kind, 0.5), world(3, kind, 0.5)
    assert first.spec == second.spec and first.causes == second.causes
    assert [first.dies(cell) for cell in first.spec.cells()] == [second.dies(cell) for cell in second.spec.cells()]


def test_programs_that_no_hypothesis_fits_are_no_conjunction_of_conditions() -> None:
    for kind in OUTSIDE:
        program = world(1, kind, 1.0)
        cells = list(program.spec.cells())
        box = {name: {cell[name] for cell in cells if program.dies(cell)} for name in program.spec.known_bad}
        assert any(not program.dies(cell) and all(cell[name] in values for name, values in box.items()) for cell in cells)


@pytest.mark.parametrize("max_steps", [500, None, 6000])
def test_a_run_of_2000_steps_dies_with_the_rate_and_others_as_the_hazard_says(max_steps: int | None) -> None:
    program, rng = world(0, "single", 0.5, chosen=True), random.Random(1)
    died = sum(program.run(program.spec.known_bad, rng, max_steps).kind == "died" for _ in range(4000))
    expected = 1 - 0.5 ** ((max_steps or STEPS) / STEPS)
    assert abs(died / 4000 - expected) < 4 * math.sqrt(expected * (1 - expected) / 4000)


def test_unrelated_deaths_come_anywhere_and_have_a_signature_of_their_own() -> None:
    program, rng = world(0, "single", 1.0, noise=0.1), random.Random(1)
    alive = next(cell for cell in program.spec.cells() if not program.dies(cell))
    seen = [program.run(alive, rng) for _ in range(4000)]
    died = [outcome for outcome in seen if outcome.kind == "died"]
    assert abs(len(died) / 4000 - 0.1) < 4 * math.sqrt(0.09 / 4000)
    assert all(outcome.signature != MAIN for outcome in died)


def test_what_there_is_to_be_learnt_is_known_in_closed_form_for_the_simplest_programs() -> None:
    assert entropy("single", worlds=2, draws=20_000) == pytest.approx(math.log2(7), abs=0.01)
    assert capacity(1.0) == 1.0
    assert capacity(0.5) == pytest.approx(math.log2(1.25))  # the Z-channel of textbooks


# ---------------------------------------------------------------- peers
@pytest.mark.parametrize("name", ["one at a time", "one at a time, 3 repeats", "ddmin and sweep", "pairwise and Ochiai", "full factorial"])
def test_every_peer_finds_single_conditions_when_every_run_dies(name: str) -> None:
    played = [table.METHODS[name](world(seed, "single", 1.0), seed) for seed in range(8)]
    assert sum(each.exact for each in played) >= 7


def test_bisection_finds_the_threshold_on_its_axis() -> None:
    pytest.importorskip("git_bayesect")
    played = [peers.git_bayesect(one_axis(seed, 32, 1.0), seed) for seed in range(8)]
    assert sum(each.exact for each in played) >= 7 and max(each.runs for each in played) <= 40


def test_minimising_finds_a_part_of_which_nothing_can_be_left_out_and_tests_no_part_twice() -> None:
    tested: list[tuple[str, ...]] = []

    def fails(part: list[str]) -> bool:
        tested.append(tuple(part))
        return {"b", "g"} <= set(part)

    assert peers.minimise(list("abcdefgh"), fails) == ["b", "g"]
    assert len(tested) == len(set(tested))


def test_more_repeats_are_chosen_for_rarer_crashes_and_more_cells() -> None:
    assert [peers.repeats_for(rate, 10) for rate in (1.0, 0.5, 0.2)] == [1, 8, 24]
    assert (1 - 0.2) ** peers.repeats_for(0.2, 30) * 30 <= peers.ERROR


# ---------------------------------------------------------------- parts and figures
def test_what_is_done_is_kept_and_read_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(table, "PARTS", tmp_path)
    part = Part(Row(name="some row", kinds=("single",)), "single", "adaptive")
    assert part.done() == {}
    played = part.solve(0)
    part.keep(0, played)
    assert part.done()[0].runs == played.runs and part.done()[0].exact
    part.path.write_text(part.path.read_text() + '{"number": 1, "ru')  # killed while it wrote
    assert list(part.done()) == [0]
    assert len(played.looks) == played.runs + played.verify and played.decisions == played.runs + played.verify


def test_every_row_can_draw_a_program_and_every_method_is_used() -> None:
    used = {method for row in table.ROWS for method in row.methods}
    assert set(table.METHODS) == used
    for row in table.ROWS:
        for kind in row.kinds:
            assert row.program(kind, 0).dies(row.program(kind, 0).spec.known_bad)


def test_the_calibration_error_is_the_distance_of_what_was_said_and_what_was_true(tmp_path) -> None:
    looks = tuple([(0.9, n % 10 < 7) for n in range(100)] + [(0.3, n % 10 < 3) for n in range(100)])
    part = Part(table.ROWS[0], "single", "adaptive")
    summary = figures.calibration({part: [Played(runs=1, exact=True, looks=looks)]})
    assert summary["other programs"]["looks"] == 200 and summary["other programs"]["error"] == pytest.approx(0.1)
    page.plot(summary, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").read_text().count("clip-path") >= 3  # the diagonal and two points


def test_the_page_has_a_line_for_each_kind_and_one_for_all_of_them() -> None:
    played = {Part(table.ROWS[0], kind, "adaptive"): [Played(runs=5, exact=kind != "pair", decisions=5)] for kind in KINDS}
    rows = figures.rows(played)
    assert [row["kind"] for row in rows] == [*KINDS, "all"] and rows[-1]["exact"] == pytest.approx(2 / 3, abs=1e-4)
    text = page.text({"rows": rows, "calibration": {}, "decision_cpu_ms": {}, "peak_memory_mib": {}})
    assert "| fixed length, p=1 | adaptive | all | 3 | 5 | 5 |" in text
