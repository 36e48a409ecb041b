"""`--set axis=v,v` and its like give a specification that is as good as the file's."""

from __future__ import annotations

from typing import Any

import pytest

from matrix.spec import Spec, SpecError
from matrix.spec.override import override

SPEC = {
    "run": {"command": "prog"},
    "matrix": {
        "bs": [4, 8, 32],
        "lr": [0.1, 0.01],
        "mining": ["off", "sync", "process"],
        "omp": {"choices": {"plain": {}, "alone": {}}},
    },
    "known_bad": {"bs": 32, "mining": "sync"},
    "known_good": {"mining": "off"},
    "exclude": [{"mining": "process", "omp": "alone"}],
    "include": [{"bs": 64}],
    "observed": [{"cell": {"bs": 4}, "died": True}],
}


def with_axes(**axes: list[str]) -> Spec:
    return override(Spec.model_validate(SPEC), search={}, axes=axes)


def test_only_the_named_values_are_left() -> None:
    spec = with_axes(bs=["32", "4"], omp=["plain"])
    assert [axis.values for axis in spec.axes] == [(4, 32), (0.01, 0.1), ("off", "sync", "process"), ("plain",)]
    assert spec.known_bad == {"bs": 32, "lr": 0.1, "mining": "sync", "omp": "plain"}


def test_known_bad_moves_to_the_first_value_named() -> None:
    assert with_axes(mining=["process", "off"]).known_bad["mining"] == "process"


@pytest.mark.parametrize(
    ("axes", "left"),
    [
        ({}, (1, 1, 1, True)),
        ({"mining": ["sync", "off"]}, (0, 1, 1, True)),
        ({"omp": ["plain"]}, (0, 1, 1, True)),
        ({"bs": ["32", "8"]}, (1, 0, 0, True)),
        ({"bs": ["32", "4", "64"]}, (1, 1, 1, True)),
        ({"mining": ["sync", "process"]}, (1, 1, 1, False)),
        ({"mining": ["off"]}, (0, 1, 0, False)),  # known_bad moves there too; it was seen to die with sync
    ],
)
def test_rules_and_cells_with_a_value_that_is_left_out_go_with_it(axes: dict[str, list[str]], left: tuple[int, int, int, bool]) -> None:
    spec = with_axes(**axes)
    assert (len(spec.exclude), len(spec.include), len(spec.observed), spec.known_good is not None) == left


def test_new_values_take_the_type_of_their_axis() -> None:
    spec = with_axes(bs=["32", "128"], lr=["1e-4"], mining=["7"])
    assert [axis.values for axis in spec.axes][:3] == [(32, 128), (0.0001,), ("7",)]


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"bz": ["4"]}, "no axis 'bz'"),
        ({"omp": ["other"]}, "'other' is not a value of omp; values: plain, alone"),
        ({"bs": ["big"]}, "'big' is not a value of bs"),
        ({"bs": ["4", "4"]}, "^--set bs: duplicate value"),
    ],
)
def test_what_is_no_axis_or_no_value_is_refused(axes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        with_axes(**axes)


def test_search_options_are_replaced_and_checked() -> None:
    spec = Spec.model_validate(SPEC)
    assert override(spec, search={"strategy": "full", "max_runs": 5}, axes={}).search.max_runs == 5
    with pytest.raises(SpecError, match=r"--max-runs: must be at least 1, not 0"):
        override(spec, search={"max_runs": 0}, axes={})
