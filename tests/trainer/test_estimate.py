"""The estimate as a table; how near it comes is measured by `python -m benchmarks.estimate`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.conftest import small_config
from trainer import InputError
from trainer.__main__ import main
from trainer.config import TrainConfig, from_yaml, to_yaml
from trainer.estimate import Machine, measured_peak, predict
from trainer.train import train


@pytest.fixture(autouse=True)
def same_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Starting a process that imports torch takes seconds; one test does it."""
    if "libraries_are_measured" not in request.node.name:
        machine = Machine(main=200e6, main_anonymous=120e6, spawned=100e6, miner=30e6, access=65_536)
        monkeypatch.setattr("trainer.estimate.measure", lambda config: machine)


def sizes(config: TrainConfig) -> dict[str, float]:
    """Of each part in MB."""
    return {part.name: part.total_bytes / 1e6 for part in predict(config)}


def test_parts_that_a_run_does_not_have_are_not_in_its_table(config: TrainConfig) -> None:
    parts = sizes(dataclasses.replace(config, memory_bank_size=0, val_queries=0))
    assert list(parts) == ["runtime", "weights", "gradients", "optimizer", "data", "work at the peak"]


def test_the_tower_of_the_documented_size_has_its_parameters_counted_right(config: TrainConfig) -> None:
    for cell in ("gru", "lstm"):
        from trainer.model import QueryTower

        chosen = dataclasses.replace(config, cell=cell, hidden=32)  # type: ignore[arg-type]
        wanted = sum(parameter.numel() for parameter in QueryTower(config.dim, 32, cell).parameters())
        assert sizes(chosen)["weights"] == pytest.approx(4 * wanted / 1e6)
        assert sizes(chosen)["optimizer"] == pytest.approx(8 * wanted / 1e6)


@pytest.mark.parametrize(
    ("few", "many", "part"),
    [
        ({"workers": 2, "chunk": 16, "chunk_cache_mb": 0.05}, {"workers": 4, "chunk": 16, "chunk_cache_mb": 0.05}, "chunk caches"),
        ({"workers": 2, "prefetch": 2}, {"workers": 2, "prefetch": 4}, "workers x prefetch"),
        ({"workers": 2}, {"workers": 4}, "workers"),
        ({"memory_bank_size": 100}, {"memory_bank_size": 200}, "FIFO bank"),
    ],
    ids=["chunk caches", "prefetch", "workers", "bank"],
)
def test_what_multiplies_is_multiplied(config: TrainConfig, few: dict[str, Any], many: dict[str, Any], part: str) -> None:
    before, after = (sizes(dataclasses.replace(config, **changes))[part] for changes in (few, many))
    assert after == pytest.approx(2 * before)


def test_a_cache_is_never_larger_than_what_is_there_to_keep(config: TrainConfig) -> None:
    config = dataclasses.replace(config, cache_l1_mb=1000, chunk=8, chunk_cache_mb=1000, epochs=1)
    assert sizes(config)["offsets, L1 and L2"] == pytest.approx(4 * 640 * 64 / 1e6)
    assert sizes(config)["chunk caches"] <= 2 * 4 * 640 * 64 / 1e6


def test_a_spawned_worker_has_libraries_of_its_own(config: TrainConfig) -> None:
    parts = [sizes(dataclasses.replace(config, workers=1, start_method=method))["workers"] for method in ("fork", "spawn")]  # type: ignore[arg-type]
    assert parts[0] < parts[1] == 100


def test_before_the_run_nothing_was_measured_and_after_it_the_peak_stands_beside(
    config: TrainConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    config = dataclasses.replace(config, hidden=8, memory_bank_size=0, max_steps=3, val_queries=0)
    config.out.mkdir()
    (config.out / "config.yaml").write_text(to_yaml(config))
    assert main(["estimate", str(config.out / "config.yaml")]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("measured peak: none yet")
    train(config)
    capsys.readouterr()
    assert main(["estimate", str(config.out / "config.yaml")]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("measured peak ")
    assert "; predicted is " in last


def test_a_run_leaves_its_estimate_in_its_folder_for_whoever_measures_it(config: TrainConfig) -> None:
    config = dataclasses.replace(config, hidden=8, memory_bank_size=100, max_steps=1, val_queries=0)
    train(config)
    said = json.loads((config.out / "estimate.json").read_bytes())
    assert said["peak_bytes"] == sum(said["components"].values())
    assert said["components"]["FIFO bank"] == 100 * 4 * config.dim
    assert said["components"]["runtime"] > 50e6


def test_the_measured_peak_has_what_the_main_process_once_had_more(tmp_path: Path) -> None:
    lines = [
        {"total_bytes": total, "main_bytes": main_, "high_water_bytes": high} for total, main_, high in [(5, 4, 4), (9, 6, 7), (8, 5, 8)]
    ]
    (tmp_path / "memory.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert measured_peak(tmp_path / "memory.jsonl") == 9 + 2


@pytest.mark.slow
def test_the_libraries_are_measured_where_they_run(data: Path, tmp_path: Path) -> None:
    from trainer.estimate import measure

    without, with_faiss = (measure(small_config(data, tmp_path, mining=mining)) for mining in ("off", "sync"))
    for machine in (without, with_faiss):
        assert machine.main > machine.main_anonymous > machine.spawned / 2 > machine.miner / 2 > 0
        assert machine.access >= 65_536
    assert with_faiss.miner > without.miner


# ------------------------------------------------------------------ configurations in files
def test_the_config_of_a_run_reads_back_as_it_was(config: TrainConfig, tmp_path: Path) -> None:
    config = dataclasses.replace(config, lr=5e-5, mining_schedule="0-5:none;6:8@0.82-0.92", shuffle=False, mining="off")
    (tmp_path / "c.yaml").write_text(to_yaml(config))
    assert from_yaml(tmp_path / "c.yaml") == config


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pairs: p\nbank: b\nbatch: 3\nbs: x\n", "batch is no option of train; bs is 'x'; expected int"),
        ("pairs: p\nbank: b\ncell: rnn\n", "cell is 'rnn'; expected one of gru, lstm"),
        ("bs: 3\n", "pairs is missing; bank is missing"),
        ("pairs: p\nbank: b\nshuffle: 1\n", "shuffle is 1; expected bool"),
        ("just text", "holds no options; expected lines as in the config.yaml of a run"),
        ("a: [", "expected the config.yaml of a run"),
    ],
)
def test_a_config_that_cannot_be_used_is_refused_with_every_reason(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(InputError) as caught:
        from_yaml(tmp_path / "c.yaml")
    assert str(caught.value).startswith(f"{tmp_path / 'c.yaml'}: ")
    assert said in str(caught.value)


def test_a_missing_config_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", str(tmp_path / "absent.yaml")]) == 2
    assert (
        capsys.readouterr().err
        == f"trainer estimate: {tmp_path / 'absent.yaml'}: No such file or directory; expected the config.yaml of a run\n"
    )
