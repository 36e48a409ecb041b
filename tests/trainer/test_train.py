"""The loop: what it learns, what it prints and keeps, and how it refuses."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML

from tests.trainer.conftest import DIM, ROOT, arguments, small_config
from trainer import InputError, TrainingError
from trainer.__main__ import main
from trainer.config import SynthConfig, TrainConfig
from trainer.data import Order, Pairs, open_bank
from trainer.evaluate import recall
from trainer.loss import info_nce
from trainer.model import QueryTower
from trainer.synth import synth
from trainer.train import check_finite, train

STEP = re.compile(r"step (\d+)/(\d+) loss=(\d+\.\d{4}) lr=([\d.e-]+)")


def steps_of(text: str) -> list[tuple[int, int]]:
    return [(int(match[1]), int(match[2])) for line in text.splitlines() if (match := STEP.fullmatch(line))]


def history_of(config: TrainConfig) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (config.out / "history.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("changes", [{}, {"cell": "lstm"}, {"mining": "sync"}, {"accum": 2, "memory_bank_size": 1000}], ids=str)
def test_training_lowers_the_loss_and_beats_the_untrained_tower_by_half_of_all_queries(tmp_path: Path, changes: dict[str, Any]) -> None:
    synth(SynthConfig(out=tmp_path, train=1600, val=200, bank=2000, dim=DIM, clusters=40))
    config = small_config(tmp_path, tmp_path / "out", hidden=64, epochs=4, **{"memory_bank_size": 0, "mine_every": 50, **changes})
    torch.manual_seed(config.seed)
    untrained = QueryTower(DIM, 64, config.cell)
    before = recall(untrained, Pairs(config.pairs, DIM, 0), open_bank(config.bank, DIM), 200)
    train(config)
    epochs = history_of(config)
    assert epochs[-1]["recall@10"] > before["recall@10"] + 0.5
    assert epochs[-1]["recall@100"] > before["recall@100"]
    assert epochs[-1]["loss"] < 0.8 * epochs[0]["loss"]


def test_a_run_prints_one_line_for_each_step_and_ends_with_the_line_of_a_finished_run(
    config: TrainConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    train(dataclasses.replace(config, epochs=2))
    captured = capsys.readouterr()
    assert steps_of(captured.out) == [(step, 80) for step in range(1, 81)]
    assert captured.out.splitlines()[-1] == "training finished"
    assert [line.split(":")[0] for line in captured.out.splitlines() if line.startswith("epoch")] == ["epoch 1", "epoch 2"]
    assert captured.err == ""


def test_history_and_config_are_in_the_run_folder(config: TrainConfig) -> None:
    train(dataclasses.replace(config, max_steps=50))
    epochs = history_of(config)
    assert [(epoch["epoch"], epoch["step"]) for epoch in epochs] == [(1, 40), (2, 50)]
    assert set(epochs[0]) == {"epoch", "step", "loss", "recall@10", "recall@100", "recall@500", "seconds"}
    assert YAML(typ="safe").load(config.out / "config.yaml")["max_steps"] == 50
    assert sorted(path.name for path in config.out.iterdir()) == ["config.yaml", "estimate.json", "history.jsonl", "memory.jsonl"]


def test_max_steps_asks_for_more_than_the_epochs_as_well_as_for_less(config: TrainConfig, capsys: pytest.CaptureFixture[str]) -> None:
    for wanted in (5, 41):
        train(dataclasses.replace(config, epochs=1, max_steps=wanted, val_queries=0))
        assert steps_of(capsys.readouterr().out)[-1] == (wanted, wanted)


@pytest.mark.parametrize(
    "method", ["fork", pytest.param("spawn", marks=pytest.mark.slow), pytest.param("forkserver", marks=pytest.mark.nightly)]
)
def test_workers_change_nothing_but_who_reads_the_file(data: Path, tmp_path: Path, method: str) -> None:
    def lines(*more: str) -> list[str]:
        argv = arguments(data, tmp_path, "--dim", str(DIM), "--hidden", "8", "--threads", "1", "--max-steps", "45", *more)
        done = subprocess.run([sys.executable, "-m", "trainer", *argv], cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith("step")]

    assert lines("--workers", "2", "--start-method", method) == lines()


def test_accumulated_gradients_are_those_of_the_mean_of_the_losses(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """One backward for each micro-batch equals one backward through all of them, each with the negatives of its own micro-batch."""
    seen: list[list[torch.Tensor]] = []

    def step(optimizer: Any, lr: float) -> None:
        seen.append([parameter.grad.clone() for parameter in optimizer.parameters])

    monkeypatch.setattr("trainer.train.AdamW.step", step)
    config = dataclasses.replace(config, accum=4, max_steps=4, memory_bank_size=0, clip=0, val_queries=0)
    train(config)

    torch.manual_seed(config.seed)
    tower, pairs = QueryTower(DIM, config.hidden), Pairs(config.pairs, DIM, 0)
    rows = np.concatenate([Order(len(pairs), config.bs, True, config.seed).rows(step) for step in (1, 2, 3, 4)])
    queries, documents = tower(torch.tensor(pairs.x_train[rows])), torch.tensor(pairs.y_train[rows])
    parts = [slice(start, start + config.bs) for start in range(0, 4 * config.bs, config.bs)]
    torch.stack([info_nce(queries[part], documents[part], [], config.tau, config.margin) for part in parts]).mean().backward()
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], [parameter.grad for parameter in tower.parameters()])


def test_an_incomplete_accumulation_at_the_end_still_makes_an_update(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    rates: list[float] = []
    monkeypatch.setattr("trainer.train.AdamW.step", lambda optimizer, lr: rates.append(lr))
    train(dataclasses.replace(config, accum=4, max_steps=10, val_queries=0))
    assert (len(rates), rates[0], rates[-1]) == (3, config.lr, pytest.approx(config.lr_floor))


def test_gradients_are_clipped_to_the_norm_asked_for(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    norms: list[float] = []

    def step(optimizer: Any, lr: float) -> None:
        norms.append(float(torch.cat([parameter.grad.flatten() for parameter in optimizer.parameters]).norm()))

    monkeypatch.setattr("trainer.train.AdamW.step", step)
    for clip in (0.0, 0.01):
        train(dataclasses.replace(config, max_steps=1, clip=clip, val_queries=0))
    assert norms[0] > 0.1
    assert norms[1] == pytest.approx(0.01, rel=1e-3)


# ------------------------------------------------------------------ what is not finite
def test_a_nan_in_the_file_is_named_with_its_step(config: TrainConfig, tmp_path: Path) -> None:
    with np.load(config.pairs) as loaded:
        arrays = dict(loaded)
    arrays["X_train"][20, 5] = np.nan
    np.savez(tmp_path / "nan.npz", **arrays)
    with pytest.raises(TrainingError) as caught:
        train(dataclasses.replace(config, pairs=tmp_path / "nan.npz", shuffle=False))
    assert str(caught.value) == "step 2: X_train holds NaN (1 of 1024 values are not finite)"


def test_weights_that_explode_are_noticed_in_the_query_vectors_and_end_with_status_1(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = arguments(data, tmp_path, "--dim", str(DIM), "--hidden", "8", "--lr", "1e38", "--threads", "1")
    assert main(argv) == 1
    assert re.fullmatch(r"trainer train: step \d: the query vectors holds? (NaN|infinity) .*\n", capsys.readouterr().err)


def test_a_gradient_that_is_not_finite_is_named_before_it_reaches_the_weights(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def poisoned(queries: torch.Tensor, *others: Any) -> torch.Tensor:
        return (queries * 0).sum().sqrt()  # finite, but its derivative is not

    monkeypatch.setattr("trainer.train.info_nce", poisoned)
    monkeypatch.setattr("trainer.train.AdamW.step", lambda optimizer, lr: pytest.fail("the weights were changed"))
    with pytest.raises(TrainingError, match=r"step 2: the gradient of recurrent\.weight_ih_l0 holds NaN"):
        train(dataclasses.replace(config, accum=2))


@pytest.mark.parametrize(("value", "kind"), [(float("nan"), "NaN"), (float("inf"), "infinity"), (float("-inf"), "infinity")])
def test_the_first_tensor_that_is_not_finite_is_named(value: float, kind: str) -> None:
    good, bad = torch.zeros(3), torch.tensor([0.0, value])
    check_finite(7, {"a": good})
    with pytest.raises(TrainingError, match=rf"^step 7: b holds {kind} \(1 of 2"):
        check_finite(7, {"a": good, "b": bad, "c": bad})


# ------------------------------------------------------------------ refusals
@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has the device that must be absent")
def test_an_absent_device_is_refused_before_any_data_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tmp_path / "nowhere", tmp_path / "out", "--device", "cuda")) == 2
    captured = capsys.readouterr()
    assert re.fullmatch(r"trainer train: --device cuda: torch \S+ sees no CUDA device here; --device cpu always works\n", captured.err)
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="this machine has the device that must be absent")
def test_an_absent_mps_device_is_refused_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tmp_path / "nowhere", tmp_path / "out", "--device", "mps")) == 2
    assert "sees no MPS device here" in capsys.readouterr().err


@pytest.mark.parametrize("bad", ["pairs", "bank"])
@pytest.mark.parametrize("how", ["missing", "cut", "other"])
def test_a_bad_file_is_one_line_with_its_name_and_what_is_expected(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: str, how: str
) -> None:
    for name in ("pairs.npz", "bank.npz"):
        (tmp_path / name).write_bytes((data / name).read_bytes())
    path = tmp_path / f"{bad}.npz"
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    else:
        np.savez(path, something=np.zeros(3))
    assert main(arguments(tmp_path, tmp_path / "out", "--dim", str(DIM))) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert captured.err.startswith(f"trainer train: {path}: ")
    assert "; expected " in captured.err
    assert captured.out == ""


def test_a_run_folder_that_cannot_be_made_is_refused(config: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"file/out: Not a directory; expected a folder that can be written \(--out\)"):
        train(dataclasses.replace(config, out=tmp_path / "file" / "out"))


# ------------------------------------------------------------------ what a run loads
def test_faiss_is_loaded_by_the_first_mining_and_never_without(data: Path, tmp_path: Path) -> None:
    argv = arguments(data, tmp_path, "--dim", str(DIM), "--hidden", "8", "--threads", "1", "--max-steps", "12", "--mining")
    program = f"""
import sys
from trainer.__main__ import main
for more in (["off"], ["sync", "--mine-start", "13"], ["sync"]):
    assert main({argv!r} + more) == 0
    print("loaded", *sorted({{"torch", "faiss", "threadpoolctl", "sklearn", "torch._dynamo", "matrix", "reports"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    loaded = [line for line in done.stdout.splitlines() if line.startswith("loaded")]
    assert loaded == ["loaded torch", "loaded torch", "loaded faiss torch"]


# ------------------------------------------------------------------ on a terminal
def test_on_a_terminal_a_bar_is_drawn_and_the_lines_on_stdout_stay_whole(data: Path, tmp_path: Path) -> None:
    keeper, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))  # a new one has no columns at all
    argv = arguments(data, tmp_path, "--dim", str(DIM), "--hidden", "8", "--threads", "1", "--max-steps", "20")
    with subprocess.Popen([sys.executable, "-m", "trainer", *argv], cwd=ROOT, stdout=subprocess.PIPE, stderr=terminal, text=True) as child:
        os.close(terminal)
        drawn = b""
        with contextlib.suppress(OSError):  # EIO: the child has closed its side
            while chunk := os.read(keeper, 4096):
                drawn += chunk
        stdout, _ = child.communicate(timeout=120)
    os.close(keeper)
    assert steps_of(stdout) == [(step, 20) for step in range(1, 21)]
    assert stdout.endswith("training finished\n")
    assert b"20/20" in drawn
