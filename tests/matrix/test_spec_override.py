"""`--set axis=v,v` and its like give a specification that is as good as the file's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from matrix.spec import Spec, SpecError, load_spec
from matrix.spec.override import is_setting, override

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


def test_every_single_key_of_the_file_can_be_given_in_its_own_units() -> None:
    settings = {"limits.wall": "60s", "limits.memory": "2GiB", "search.repeats": "5", "evidence.hook": "false", "executor.jobs": "1"}
    spec = override(Spec.model_validate(SPEC), search={"max_wall": "10m"}, axes={}, settings=settings)
    assert (spec.limits.wall_s, spec.limits.memory_bytes, spec.search.max_wall_s) == (60, 2 << 30, 600)
    assert (spec.search.repeats, spec.evidence.hook, spec.executor.jobs) == (5, False, 1)
    with pytest.raises(SpecError, match=r"--set limits.wall: .*'soon'"):
        override(Spec.model_validate(SPEC), search={}, axes={}, settings={"limits.wall": "soon"})


def test_an_axis_whose_name_looks_like_a_key_stays_an_axis() -> None:
    spec = Spec.model_validate({"run": {"command": "prog"}, "matrix": {"run.wall": [1, 2]}})
    assert is_setting(spec, "limits.wall") and not is_setting(spec, "run.wall") and not is_setting(spec, "wall")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py --readers 4 --out {attempt_dir}/o", "python train.py --out A/o --readers 2"),
        ("python train.py --readers=4", "python train.py --readers=2"),
        ("python train.py readers=4 x=1", "python train.py x=1 readers=2"),
        ("torchrun --standalone --readers 4 train.py --bs 8", "torchrun --standalone --readers 2 train.py --bs 8"),
    ],
)
def test_a_flag_of_the_command_becomes_an_axis_in_its_place(command: str, expected: str) -> None:
    base = Spec.model_validate({"run": {"command": command}, "matrix": {"env": {"values": [1, 2], "env": "X"}}})
    spec = override(base, search={}, axes={"readers": ["2", "0"]})
    assert spec.axis("readers").values == (0, 2, 4) and spec.known_bad == {"env": 1, "readers": 4}
    cell = {**spec.known_bad, "readers": 2}
    assert spec.launch(cell, max_steps=None, placeholders={"attempt_dir": "A"}).argv == expected.split()


@pytest.mark.parametrize("name", ["reader", "out", "quiet"])
def test_a_name_without_a_value_of_its_own_in_the_command_is_refused(name: str) -> None:
    base = Spec.model_validate({"run": {"command": "prog --readers 4 --out {attempt_dir} --quiet"}, "matrix": {"bs": [1, 2]}})
    with pytest.raises(SpecError, match=f"--set {name}: no axis '{name}'.*a flag of the command"):
        override(base, search={}, axes={name: ["1"]})


COMMENTED = """
run: {command: [python, train.py, -j, "4"]}
matrix:
  bs: [4, 8]
  # not varied:
  # seed: {values: [0, 1, 2], ordered: false}  # seed: does it depend on the data's order?; 0 is its default
  # workers: {values: [0, 4], flag: -j}  # worker processes; take -j out of the command then
  # cache: {choices: {cache: {args: [--cache]}, without: {}}}  # on and off
  # depth: [1, 2
known_bad: {bs: 8}
"""


def test_an_axis_that_waits_as_a_comment_can_be_named(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(COMMENTED)
    spec = override(load_spec(path), search={}, axes={"seed": ["0", "5"], "workers": ["0"], "cache": ["without", "cache"]})
    assert (spec.axis("seed").values, spec.axis("seed").ordered, spec.known_bad["seed"]) == ((0, 5), False, 0)
    assert (spec.axis("workers").values, spec.known_bad["workers"], spec.known_bad["cache"]) == ((0, 4), 4, "without")
    words = spec.launch({**spec.known_bad, "workers": 0, "cache": "cache"}, max_steps=None, placeholders={}).argv
    assert words == ["python", "train.py", "--bs", "8", "--seed", "0", "-j", "0", "--cache"]
    for name, value, said in (("cache", "warm", "values: cache, without"), ("depth", "1", "no axis 'depth'"), ("see", "1", "no axis")):
        with pytest.raises(SpecError, match=said):
            override(load_spec(path), search={}, axes={name: [value]})
