from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from trainer import InputError
from trainer.__main__ import main, parse
from trainer.config import TrainConfig, check, to_yaml

CONFIG = TrainConfig(pairs=Path("p: #.npz"), bank=Path("b.npz"))


@pytest.mark.parametrize("version", ["1.1", "1.2"])
def test_config_yaml_reads_back_as_what_was_used(version: str) -> None:
    reader = YAML(typ="safe", pure=True)
    reader.version = version
    read = reader.load(to_yaml(dataclasses.replace(CONFIG, lr=5e-5, clip=1.0, mining="off", shuffle=False)))
    wanted = {**dataclasses.asdict(CONFIG), "shuffle": False}
    assert read == {name: str(value) if isinstance(value, Path) else value for name, value in wanted.items()}
    assert isinstance(read["lr"], float)


def test_every_field_is_an_option() -> None:
    _, config = parse(["train", "--pairs", "p", "--bank", "b", "--no-shuffle", "--lr", "1e-3", "--cell", "lstm", "--mine-every", "7"])
    assert config == TrainConfig(pairs=Path("p"), bank=Path("b"), shuffle=False, lr=1e-3, cell="lstm", mine_every=7)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"bs": 0}, "--bs is 0; it must be more than 0"),
        ({"threads": -1}, "--threads is -1; it must be 0 or more"),
        ({"tau": float("nan")}, "--tau is nan; it must be more than 0"),
        ({"negatives": 200}, "--negatives 200 is more than --candidates 128"),
        ({"band_low": 0.9, "band_high": 0.8}, "--band-low 0.9 is not below --band-high 0.8"),
        ({"mine_reuse": 3}, "--mine-reuse 3 is less than --mine-every 10"),
        ({"lr": 1e-7}, "--lr-floor 1e-06 is more than --lr 1e-07"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_the_allowed_range(changes: dict[str, float], said: str) -> None:
    with pytest.raises(InputError) as caught:
        check(dataclasses.replace(CONFIG, **changes))  # type: ignore[arg-type]
    assert str(caught.value) == said


def test_all_wrong_values_are_named_at_once() -> None:
    with pytest.raises(InputError, match=r"--bs is 0.*; --accum is 0"):
        check(dataclasses.replace(CONFIG, bs=0, accum=0))


def test_the_defaults_are_allowed() -> None:
    check(CONFIG)


def test_a_wrong_value_ends_the_command_with_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--pairs", "p", "--bank", "b", "--accum", "0"]) == 2
    assert capsys.readouterr().err == "trainer train: --accum is 0; it must be more than 0\n"
