"""Small made data, and the trainer as a child process."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainer.config import SynthConfig, TrainConfig
from trainer.synth import synth

ROOT = Path(__file__).parents[2]
DIM = 64
THREAD_LIMITS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """640 + 100 pairs and 1000 documents of 64 values."""
    folder = tmp_path_factory.mktemp("data")
    synth(SynthConfig(out=folder, train=640, val=100, bank=1000, dim=DIM, clusters=20))
    return folder


@pytest.fixture(scope="session")
def wide_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `data`, but of 768 values: OpenBLAS uses a single thread for products of small matrices."""
    folder = tmp_path_factory.mktemp("wide")
    synth(SynthConfig(out=folder, train=640, val=10, bank=5000))
    return folder


@pytest.fixture
def config(data: Path, tmp_path: Path) -> TrainConfig:
    return small_config(data, tmp_path / "out")


def small_config(data: Path, out: Path, **changes: Any) -> TrainConfig:
    fixed: dict[str, Any] = {"dim": DIM, "hidden": 32, "bs": 16, "lr": 3e-3, "threads": 1}
    return TrainConfig(pairs=data / "pairs.npz", bank=data / "bank.npz", out=out, **{**fixed, **changes})


def arguments(folder: Path, out: Path, *more: str) -> list[str]:
    return ["train", "--pairs", str(folder / "pairs.npz"), "--bank", str(folder / "bank.npz"), "--out", str(out), *more]


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[str]]]:
    """Whatever is put in here is killed, with its whole group, when the test ends."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for child in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


def start(children: list[subprocess.Popen[str]], argv: list[str]) -> subprocess.Popen[str]:
    """The trainer in a group of its own, free to use as many threads as --threads says."""
    env = {name: value for name, value in os.environ.items() if name not in THREAD_LIMITS}
    child = subprocess.Popen(
        [sys.executable, "-m", "trainer", *argv],
        cwd=ROOT, env=env, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    children.append(child)
    return child
