"""Miners beside the loop: a thread and a process, their results, their deaths, and the hang of a forked one that is real."""

from __future__ import annotations

import dataclasses
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from tests.trainer.conftest import DIM, ROOT, arguments, start
from trainer import TrainingError
from trainer.config import TrainConfig
from trainer.data import Pairs, open_bank
from trainer.miners import Miner, ProcessMiner, ThreadMiner
from trainer.mining import mine
from trainer.train import train

linux = pytest.mark.skipif(sys.platform != "linux", reason="fork after threads, and /proc, are as expected here on Linux only")
NARROW = ["--dim", str(DIM), "--hidden", "8", "--band-low", "0"]


def vectors(config: TrainConfig, n: int) -> tuple[Any, Any]:
    pairs = Pairs(config.pairs, config.dim, 0)
    return np.array(pairs.y_val[:n]), np.array(pairs.y_train[:n])


@pytest.mark.parametrize("kind", ["thread", "fork", "spawn", "forkserver"])
def test_a_miner_beside_the_loop_finds_what_mining_in_the_loop_finds(config: TrainConfig, kind: Any) -> None:
    bank = open_bank(config.bank, config.dim)
    config = dataclasses.replace(config, start_method="default" if kind == "thread" else kind, mine_timeout=60)
    miner: Miner = ThreadMiner(bank, config) if kind == "thread" else ProcessMiner(config, rows=40)
    try:
        for n in (40, 7, 25):
            request = vectors(config, n)
            miner.request(*request, config)
            expected = mine(bank, *request, config)
            assert (expected >= 0).any()
            np.testing.assert_array_equal(miner.collect(), expected)
    finally:
        miner.close()


@pytest.mark.slow
def test_thread_and_process_train_alike_with_and_without_a_warm_search(data: Path, tmp_path: Path) -> None:
    def lines(*more: str) -> list[str]:
        argv = arguments(data, tmp_path, *NARROW, "--threads", "1", "--max-steps", "35", *more)
        done = subprocess.run([sys.executable, "-m", "trainer", *argv], cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        return [line for line in done.stdout.splitlines() if line.startswith("step")]

    thread = lines("--mining", "thread")
    assert lines("--mining", "process", "--start-method", "fork") == thread
    assert lines("--mining", "process", "--start-method", "fork", "--no-warm-search") == thread
    assert lines("--mining", "thread", "--no-warm-search") == thread
    assert lines("--mining", "off") != thread


def searched_rows(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts: list[int] = []

    def counting(bank: Any, queries: Any, *others: Any) -> Any:
        counts.append(len(queries))
        return mine(bank, queries, *others)

    monkeypatch.setattr("trainer.hard_negatives.mine", counting)
    train(config)
    return counts


def test_mining_starts_at_its_step_and_comes_again_at_its_interval(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(config, mining="sync", max_steps=30, mine_start=6, mine_every=10, val_queries=0)
    assert searched_rows(config, monkeypatch) == [160, 160, 80]  # at steps 6, 16 and 26 for 10, 10 and 5 steps of 16 pairs


def test_reuse_mines_a_query_again_only_when_its_negatives_are_too_old(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(config, mining="sync", max_steps=120, mine_start=1, mine_every=40, val_queries=0)  # 40 steps are an epoch
    assert searched_rows(config, monkeypatch) == [640, 640, 640]
    assert searched_rows(dataclasses.replace(config, mine_reuse=80), monkeypatch) == [640, 640]


# ------------------------------------------------------------------ failures
def test_an_error_in_the_thread_ends_the_run_with_its_traceback(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.miners.mine", lambda *anything: 1 / 0)
    miner = ThreadMiner(open_bank(config.bank, config.dim), config)
    miner.request(*vectors(config, 3), config)
    with pytest.raises(TrainingError, match=r"(?s)the miner thread failed:\nTraceback.*ZeroDivisionError"):
        miner.collect()
    miner.close()


def test_an_error_in_the_process_ends_the_run_with_its_traceback(config: TrainConfig, tmp_path: Path) -> None:
    miner = ProcessMiner(dataclasses.replace(config, bank=tmp_path / "gone.npz", start_method="spawn"), rows=3)
    with pytest.raises(TrainingError, match=r"(?s)miner process \d+ \(start method spawn\) failed:\nTraceback.*gone\.npz: No such file"):
        miner.collect()
    miner.close()


def test_a_thread_that_does_not_answer_is_reported(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr("trainer.miners.mine", lambda *anything: release.wait())
    miner = ThreadMiner(open_bank(config.bank, config.dim), dataclasses.replace(config, mine_timeout=0.1))
    miner.request(*vectors(config, 3), config)
    with pytest.raises(TrainingError, match=r"miner thread \d+ did not answer within 0\.\d s \(--mine-timeout 0\.1\): it is alive, "):
        miner.collect()
    release.set()
    miner.close()


def first_line_with(child: subprocess.Popen[str], text: str) -> None:
    assert child.stdout is not None
    assert any(text in line for line in child.stdout), f"it ended before it printed {text!r}"


def miner_of(child: subprocess.Popen[str]) -> psutil.Process:
    (miner,) = psutil.Process(child.pid).children()
    return miner


@linux
@pytest.mark.parametrize("timeout", [[], ["--mine-timeout", "60"]], ids=["no timeout", "timeout"])
def test_a_miner_that_is_killed_is_reported_with_pid_and_signal(
    data: Path, tmp_path: Path, children: list[subprocess.Popen[str]], timeout: list[str]
) -> None:
    more = ["--mining", "process", "--start-method", "fork", "--threads", "1", "--max-steps", "1000000", "--memory-bank-size", "0"]
    child = start(children, arguments(data, tmp_path, *NARROW, *more, *timeout))
    first_line_with(child, "step 25/")
    pid = miner_of(child).pid
    os.kill(pid, signal.SIGKILL)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == 1
    how = r"killed by SIGKILL, exit code -9; noticed after \d\.\d s of waiting"
    assert re.fullmatch(rf"trainer train: miner process {pid} \(start method fork\) is dead: {how}\n", stderr)


@linux
def test_a_miner_that_is_stopped_is_reported_with_its_state_and_not_left_behind(
    data: Path, tmp_path: Path, children: list[subprocess.Popen[str]]
) -> None:
    more = ["--mining", "process", "--start-method", "fork", "--threads", "1", "--max-steps", "1000000", "--memory-bank-size", "0"]
    child = start(children, arguments(data, tmp_path, *NARROW, *more, "--mine-timeout", "3"))
    first_line_with(child, "step 25/")
    miner = miner_of(child)
    os.kill(miner.pid, signal.SIGSTOP)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == 1
    said = "did not answer within 3.0 s (--mine-timeout 3): it is alive, state T, wchan "
    assert f"miner process {miner.pid} (start method fork) {said}" in stderr
    assert not miner.is_running()


@linux
def test_a_miner_ends_when_its_trainer_is_killed(data: Path, tmp_path: Path, children: list[subprocess.Popen[str]]) -> None:
    more = ["--mining", "process", "--start-method", "fork", "--threads", "1", "--max-steps", "1000000", "--memory-bank-size", "0"]
    child = start(children, arguments(data, tmp_path, *NARROW, *more))
    first_line_with(child, "step 25/")
    miner = miner_of(child)
    os.kill(child.pid, signal.SIGKILL)
    psutil.wait_procs([miner], timeout=30)
    assert not miner.is_running() or miner.status() == psutil.STATUS_ZOMBIE


# ------------------------------------------------------------------ the hang of a forked miner
HANGS = ["--mining", "process", "--start-method", "fork", "--threads", "2", "--max-steps", "25", "--hidden", "64", "--val-queries", "0"]
SECONDS = 15  # a search that answers does so in less than one


@linux
@pytest.mark.slow
@pytest.mark.control
def test_a_forked_miner_never_answers_when_the_trainer_has_searched_before(
    wide_data: Path, tmp_path: Path, children: list[subprocess.Popen[str]]
) -> None:
    child = start(children, arguments(wide_data, tmp_path, *HANGS))
    first_line_with(child, "step 19/")
    miner = miner_of(child)
    with pytest.raises(subprocess.TimeoutExpired):
        child.communicate(timeout=SECONDS)
    assert miner.is_running()
    assert miner.num_threads() == 1  # the others were lost in the fork, and it waits for them


@linux
@pytest.mark.slow
@pytest.mark.control
def test_with_a_timeout_that_hang_is_reported(wide_data: Path, tmp_path: Path, children: list[subprocess.Popen[str]]) -> None:
    child = start(children, arguments(wide_data, tmp_path, *HANGS, "--mine-timeout", str(SECONDS)))
    stdout, stderr = child.communicate(timeout=120)
    assert child.returncode == 1
    assert stdout.splitlines()[-1].startswith("step 19/25 ")
    assert re.fullmatch(
        rf"trainer train: miner process \d+ \(start method fork\) did not answer within {SECONDS}\.\d s \(--mine-timeout {SECONDS}\): "
        r"it is alive, state [RS], wchan \w+, \d+\.\d s of CPU used, 1 threads in its process; it searches with 2 threads\n",
        stderr,
    )


@linux
@pytest.mark.slow
@pytest.mark.parametrize("change", ["--start-method spawn", "--threads 1", "--no-warm-search", "--mining thread", "--mining off"])
def test_spawn_or_one_thread_or_no_search_before_the_fork_lets_it_finish(
    wide_data: Path, tmp_path: Path, children: list[subprocess.Popen[str]], change: str
) -> None:
    child = start(children, arguments(wide_data, tmp_path, *HANGS, "--mine-timeout", "60", *change.split()))
    stdout, stderr = child.communicate(timeout=120)
    assert (child.returncode, stderr) == (0, "")
    assert stdout.endswith("training finished\n")
