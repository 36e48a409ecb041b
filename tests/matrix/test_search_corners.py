"""Two axes that trade off: half the batch and twice the memory survive together, though neither alone does."""

from __future__ import annotations

import itertools

import numpy as np

from matrix.records import Trial
from matrix.search import Search
from matrix.search.grid import Grid
from matrix.search.space import Space
from tests.matrix.simulated_programs import crashing, died, make_spec, play, survived

LEAK = {"keep": [0, 1], "bs": [8, 16, 32, 64, 128], "memory": [400, 3000], "workers": [0, 2], "threads": [1, 2], "mode": ["a", "b", "c"]}
WORST = {"keep": 1, "bs": 32, "memory": 400, "workers": 2, "threads": 2, "mode": "b"}


def leaks(cell):
    return cell["keep"] == 1 and 150 * cell["bs"] > cell["memory"] - 350


def test_a_change_that_survives_only_together_with_another_is_an_interaction_and_the_answer_is_confirmed():
    results = [play(Search(make_spec(LEAK, WORST), seed=seed), crashing(leaks)).result() for seed in range(4)]
    assert all(each.confirmed and each.culprit == {"keep": [1]} and each.runs <= 40 for each in results)
    told = [each for each in results if each.interactions]  # the others never came upon it
    assert len(told) >= 2
    for each in told:
        assert any(found.axes == ["bs", "memory"] and "In full, it dies with" in found.text for found in each.interactions)
        assert all(each.dies(cell) == leaks(cell) for cell in make_spec(LEAK, WORST).cells())


def test_survivals_where_it_should_die_at_times_are_no_luck_as_long_as_no_cell_has_done_both():
    search, told = Search(make_spec(LEAK, WORST)), "no cell has both died and survived"

    def tell(outcome, **changes):
        search.tell(Trial(id=search.new_id(), cell={**WORST, **changes}, purpose="verify"), outcome)

    for _ in range(4):
        tell(died())
        tell(survived(), keep=0)
    for bs, memory, workers, threads, mode in itertools.islice(itertools.product([8, 128], [400, 3000], [0, 2], [1, 2], "abc"), 0, None, 2):
        tell(died(), bs=bs, memory=memory, workers=workers, threads=threads, mode=mode)
    assert not any(told in reason for reason in search.result().reasons)
    tell(survived(), threads=1, mode="a")
    tell(survived(), bs=64, workers=0, mode="c")
    assert any(told in reason and "threads=1 and mode=a" in reason for reason in search.result().reasons)
    tell(died(), threads=1, mode="a")
    assert not any(told in reason for reason in search.result().reasons)


def test_a_product_of_two_axes_is_told_in_full_also_where_it_reaches_beyond_the_known_bad_values():
    axes = {"rows": [1, 2, 4, 8], "width": [1, 2, 4, 8], "threads": [1, 2], "mode": ["a", "b", "c"]}
    spec = make_spec(axes, {"rows": 8, "width": 4, "threads": 2, "mode": "a"})

    def large(cell):
        return cell["rows"] * cell["width"] >= 16

    result = play(Search(spec), crashing(large)).result()
    assert result.confirmed and result.culprit == {"rows": [4, 8], "width": [2, 4, 8]}
    assert all(result.dies(cell) == large(cell) for cell in spec.cells())


def test_what_dies_with_either_of_two_changes_but_not_with_both_is_not_confirmed():
    def either(cell):
        return (cell["threads"] == 2) != (cell["mode"] == "c")

    result = play(Search(make_spec(LEAK, WORST, search={"max_runs": 60})), crashing(either)).result()
    assert not result.confirmed


def test_the_staircases_of_two_axes_are_all_that_fall_from_step_to_step_and_hold_the_known_bad_cell():
    grid = Grid(make_spec({"a": [1, 2, 3], "b": [1, 2, 3], "c": ["x", "y"]}, {"a": 2, "b": 2, "c": "x"}))
    space = Space(grid, 0)
    cells = [{"a": a, "b": b, "c": "x"} for a, b in itertools.product([1, 2, 3], repeat=2)]
    truth = np.stack([space.truth(cell) for cell in cells], axis=1)
    inside = space.corners.inside(truth)[(space.corners.axes == [0, 1]).all(axis=1)].astype(bool)
    tables = {tuple(row) for row in inside.tolist()}
    assert len(tables) == len(inside) and all(row[4] for row in inside)
    assert tables == {tuple(table) for table in _falling() if table[4] and not _rectangle(table)}


def _falling():
    """Every table (3, 3) that is monotone in both axes, in any of the four directions."""
    for heights in itertools.combinations_with_replacement(range(3, -1, -1), 3):
        table = np.array([[row >= height for row in range(3)] for height in heights])
        for flipped in (table, table[::-1], table[:, ::-1], table[::-1, ::-1]):
            yield flipped.ravel().tolist()


def _rectangle(table):
    grid = np.array(table).reshape(3, 3)
    return bool((grid == np.outer(grid.any(axis=1), grid.any(axis=0))).all())
