from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from trainer.config import TrainConfig
from trainer.data import Order, Pairs, open_bank
from trainer.hard_negatives import Mining
from trainer.mining import mine
from trainer.model import QueryTower
from trainer.schedule import Phase, parse, problems
from trainer.train import train


def test_a_schedule_is_read_part_by_part() -> None:
    assert parse("0-5:none; 6-10:8@0.82-0.92;11:16@-0.1-.96;") == [
        Phase(first=0, last=5),
        Phase(first=6, last=10, negatives=8, low=0.82, high=0.92),
        Phase(first=11, last=11, negatives=16, low=-0.1, high=0.96),
    ]
    assert problems("0-5:none; 6-10:8@0.82-0.92;11:16@-0.1-.96;", 128) == []
    assert parse("") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0-5", "'0-5' is no part of a schedule; expected FIRST-LAST:none or FIRST-LAST:NEGATIVES@LOW-HIGH"),
        ("a-b:none", "'a-b:none' is no part of a schedule"),
        ("1-2:8", "'1-2:8' is no part of a schedule"),
        ("1-2:8@0.8", "'1-2:8@0.8' is no part of a schedule"),
        ("5-1:none", "'5-1:none': epoch 1 comes before epoch 5"),
        ("1-2:0@0.1-0.2", "0 negatives are written as none"),
        ("1-2:200@0.1-0.2", "200 negatives are more than --candidates 128"),
        ("1-2:8@0.9-0.2", "the band's low end 0.9 is not below its high end 0.2"),
        ("1-2:8@0.9-1.2", "a cosine is between -1 and 1"),
        ("5-6:none;1-5:8@0.1-0.2", "epoch 5 is in two parts"),
    ],
)
def test_what_is_wrong_with_a_schedule_is_said(text: str, said: str) -> None:
    (problem,) = problems(text, 128)
    assert problem.startswith("--mining-schedule: ")
    assert said in problem


def test_all_problems_of_a_schedule_are_said_at_once() -> None:
    assert len(problems("x;1-2:8@0.9-0.2;2:none", 128)) == 3


SCHEDULE = "1:none;2:2@0.0-0.9;3:4@0.1-0.8;5:none"  # epoch 4 is in no part
SMALL: dict[str, Any] = {"hidden": 8, "bs": 32, "memory_bank_size": 100, "val_queries": 0}


def mined_in(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, float, float]]:
    """Negatives and band of each search of a run."""
    seen: list[tuple[int, float, float]] = []

    def noting(bank: Any, queries: Any, positives: Any, asked: TrainConfig) -> Any:
        seen.append((asked.negatives, asked.band_low, asked.band_high))
        return mine(bank, queries, positives, asked)

    monkeypatch.setattr("trainer.hard_negatives.mine", noting)
    monkeypatch.setattr("trainer.miners.mine", noting)
    train(config)
    return seen


@pytest.mark.parametrize("mode", ["sync", pytest.param("thread", marks=pytest.mark.slow)])
def test_each_epoch_mines_as_its_part_says(config: TrainConfig, monkeypatch: pytest.MonkeyPatch, mode: Any) -> None:
    config = dataclasses.replace(config, mining=mode, mining_schedule=SCHEDULE, mine_start=1, mine_every=20, epochs=5, **SMALL)
    assert mined_in(config, monkeypatch) == [(2, 0.0, 0.9), (4, 0.1, 0.8)]  # 20 steps are an epoch


@pytest.mark.slow
def test_mining_in_a_process_with_a_schedule_trains_as_mining_in_a_thread(config: TrainConfig, capsys: pytest.CaptureFixture[str]) -> None:
    shared = dataclasses.replace(config, mining_schedule=SCHEDULE, mine_start=1, mine_every=10, epochs=5, mine_timeout=60, **SMALL)
    printed = []
    for mode in ("thread", "process"):
        train(dataclasses.replace(shared, mining=mode, start_method="fork"))  # type: ignore[arg-type]
        printed.append([line for line in capsys.readouterr().out.splitlines() if line.startswith("step")])
    assert printed[0] == printed[1]


def test_what_was_mined_for_another_band_is_not_used_in_the_next(config: TrainConfig) -> None:
    config = dataclasses.replace(
        config, mining="sync", mining_schedule="1:4@0.0-0.9;2:none", mine_start=1, mine_every=40, mine_reuse=1000, hidden=8
    )
    pairs = Pairs(config.pairs, config.dim, 0)
    order = Order(len(pairs), config.bs, True, 0)
    mining = Mining(config, pairs, open_bank(config.bank, config.dim), order, 80)
    tower = QueryTower(config.dim, 8)
    mining.refresh(1, tower)
    assert mining.documents(order.rows(1), 1) is not None
    mining.refresh(41, tower)
    assert mining.documents(order.rows(1), 41) is None


@pytest.mark.parametrize("fraction", [0.0, 0.25, 1.0])
def test_hard_negatives_are_used_for_the_share_of_queries_asked_for(config: TrainConfig, fraction: float) -> None:
    config = dataclasses.replace(config, mining="sync", mine_start=1, mine_every=40, hard_fraction=fraction, hidden=8, band_low=-0.9)
    pairs = Pairs(config.pairs, config.dim, 0)
    order = Order(len(pairs), config.bs, True, 0)
    mining = Mining(config, pairs, open_bank(config.bank, config.dim), order, 40)
    mining.refresh(1, QueryTower(config.dim, 8))
    found = mining.documents(order.rows(1), 1)
    assert (0 if found is None else int(found[1].any(1).sum())) == fraction * config.bs
