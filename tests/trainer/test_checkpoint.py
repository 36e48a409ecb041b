"""Checkpoints: a run that goes on has the losses of one that was never interrupted, whatever interrupted it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer.conftest import DIM, arguments, start
from trainer import InputError
from trainer.__main__ import main
from trainer.config import TrainConfig
from trainer.train import train

SMALL: dict[str, Any] = {"hidden": 8, "memory_bank_size": 300, "val_queries": 20, "epochs": 2}  # 40 steps are an epoch
OPTIONS = ["--dim", str(DIM), "--hidden", "8", "--threads", "1", "--bs", "16", "--val-queries", "0"]


def steps(text: str) -> dict[str, str]:
    """Step -> the rest of its line, the last time that it was printed."""
    return dict(line.split(" ", 2)[1:] for line in text.splitlines() if line.startswith("step "))


def history(folder: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


class Stopped(Exception):
    pass


def stop_after(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def shown(progress: Any, now: int, *others: Any) -> None:
        if now > step:
            raise Stopped

    monkeypatch.setattr("trainer.train.Progress.step", shown)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"accum": 4, "save_every": 10},  # in the middle of an accumulation
        pytest.param({"cell": "lstm", "precision": "bf16", "workers": 1}, marks=pytest.mark.slow),
        pytest.param({"mining": "sync", "mining_schedule": "1:2@0-0.9;2:4@0-0.8"}, marks=pytest.mark.slow),
        pytest.param({"mining": "thread", "mine_every": 7}, marks=pytest.mark.slow),
        {"mining": "process", "mine_every": 7, "start_method": "fork", "mine_reuse": 50},
        {"cache_l1_mb": 0.02, "cache_l2_mb": 0.02, "cache_sync_every": 3},
    ],
    ids=str,
)
def test_a_resumed_run_has_the_losses_of_one_that_was_never_interrupted(
    config: TrainConfig, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    config = dataclasses.replace(config, **{**SMALL, "save_every": 25, "mine_timeout": 60.0, **changes})
    train(dataclasses.replace(config, out=config.out / "whole"))
    whole = steps(capsys.readouterr().out)
    with monkeypatch.context() as interrupted, pytest.raises(Stopped):
        stop_after(55, interrupted)
        train(config)
    capsys.readouterr()
    train(dataclasses.replace(config, resume=True))
    resumed = steps(capsys.readouterr().out)
    assert list(resumed) == [f"{step}/80" for step in range(51, 81)]
    assert resumed == {step: whole[step] for step in resumed}
    assert history(config.out) == history(config.out / "whole")


def test_without_a_checkpoint_a_resumed_run_starts_at_the_first_step(config: TrainConfig, capsys: pytest.CaptureFixture[str]) -> None:
    train(dataclasses.replace(config, **SMALL, resume=True, max_steps=3))
    out = capsys.readouterr().out
    assert out.startswith(f"no checkpoint in {config.out}: starting at the first step\n")
    assert list(steps(out)) == ["1/3", "2/3", "3/3"]


def test_a_run_that_is_not_resumed_starts_anew(config: TrainConfig, capsys: pytest.CaptureFixture[str]) -> None:
    config = dataclasses.replace(config, **{**SMALL, "max_steps": 4, "save_every": 2, "cache_l1_mb": 0.1})
    train(config)
    first = steps(capsys.readouterr().out)
    train(config)
    assert steps(capsys.readouterr().out) == first
    assert len(history(config.out)) == 1


# ------------------------------------------------------------------ refusals
@pytest.fixture
def saved(config: TrainConfig) -> TrainConfig:
    config = dataclasses.replace(config, **{**SMALL, "max_steps": 2, "save_every": 1})
    train(config)
    return config


def test_a_checkpoint_of_another_configuration_is_refused_with_what_differs(saved: TrainConfig) -> None:
    with pytest.raises(InputError, match=r"checkpoint\.pt: was made with --bs 16 \(now 8\), --lr 0\.003 \(now 0\.001\); give the same"):
        train(dataclasses.replace(saved, resume=True, bs=8, lr=1e-3))


@pytest.mark.parametrize("keep", [0, 10, 0.5, 0.99])
def test_a_damaged_checkpoint_is_refused_by_name(saved: TrainConfig, keep: float) -> None:
    path = saved.out / "checkpoint.pt"
    content = path.read_bytes()
    path.write_bytes(content[: int(keep if keep > 1 else keep * len(content))])
    with pytest.raises(InputError, match=r"checkpoint\.pt: damaged or no checkpoint \("):
        train(dataclasses.replace(saved, resume=True))


def test_a_checkpoint_may_go_on_elsewhere_and_for_longer(saved: TrainConfig, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    train(dataclasses.replace(saved, resume=True, max_steps=5, workers=1, save_every=0))
    assert list(steps(capsys.readouterr().out)) == ["3/5", "4/5", "5/5"]


# ------------------------------------------------------------------ SIGKILL in the middle of a save
@pytest.mark.skipif(sys.platform != "linux", reason="the moment is found in /proc")
def test_a_run_that_was_killed_in_the_middle_of_a_save_goes_on_from_the_one_before(
    data: Path, tmp_path: Path, children: list[subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    argv = arguments(data, tmp_path / "out", *OPTIONS, "--max-steps", "14", "--memory-bank-size", "100000", "--save-every", "3")
    child = start(children, argv)
    assert child.stdout is not None
    assert any(line.startswith("step 7/") for line in child.stdout)  # two checkpoints are there, and the third is two steps away
    part = tmp_path / "out" / "checkpoint.pt.part"
    before = (tmp_path / "out" / "checkpoint.pt").stat().st_size
    while not 0 < _size(part) < before:
        assert child.poll() is None, "it ended before it was seen in the middle of a save"
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    assert part.exists()
    assert main([*argv, "--resume"]) == 0
    out = capsys.readouterr().out
    resumed = steps(out)
    assert next(iter(resumed)) in ("7/14", "10/14", "13/14")
    assert not part.exists() or _size(part) == 0
    assert main([*argv[:-2], "--out", str(tmp_path / "whole")]) == 0
    whole = steps(capsys.readouterr().out)
    assert resumed == {step: whole[step] for step in resumed}


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# ------------------------------------------------------------------ a full disk
@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # a file may still be mapped


@pytest.mark.parametrize("cache", [False, True])
def test_a_disk_that_is_full_during_a_save_keeps_the_checkpoint_before_and_the_run_goes_on(
    config: TrainConfig, small_disk: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, cache: bool
) -> None:
    config = dataclasses.replace(config, **{**SMALL, "save_every": 5, "max_steps": 24, "cache_l1_mb": 0.05 * cache})
    train(dataclasses.replace(config, out=config.out / "whole"))
    whole = steps(capsys.readouterr().out)
    config = dataclasses.replace(config, out=small_disk)

    original = torch.save
    filler = small_disk / "filler"

    def fill_after_the_first(*args: Any) -> None:
        if (small_disk / "checkpoint.pt").exists() and not filler.exists():
            with filler.open("wb", buffering=0) as sink, contextlib.suppress(OSError):
                while sink.write(bytes(4096)):
                    pass
        original(*args)

    monkeypatch.setattr(torch, "save", fill_after_the_first)
    train(config)
    captured = capsys.readouterr()
    said = [line for line in captured.err.splitlines() if "no checkpoint could be written" in line]
    assert [line.split(":")[0] for line in said] == ["step 10", "step 15", "step 20"]
    assert all("the one before is kept" in line for line in said)
    assert steps(captured.out) == whole
    assert not (small_disk / "checkpoint.pt.part").exists()

    monkeypatch.setattr(torch, "save", original)
    filler.unlink()
    train(dataclasses.replace(config, resume=True))
    resumed = steps(capsys.readouterr().out)
    assert list(resumed) == [f"{step}/24" for step in range(6, 25)]
    assert resumed == {step: whole[step] for step in resumed}
