"""The trainer's estimate of its memory against the measured peak of its process tree (PSS), on eight configurations.

python -m benchmarks.estimate
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.record import save
from trainer.config import SynthConfig, TrainConfig, to_yaml
from trainer.estimate import measured_peak, predict
from trainer.memory import MB, held_by_tree
from trainer.synth import synth

EVERY_S = 0.02
ALLOWED = 0.15
ROOT = Path(__file__).parents[1]
CONFIGURATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "2 spawned workers, sequences of 20": ("long", {"workers": 2, "start_method": "spawn", "bs": 16, "memory_bank_size": 5_000}),
    "offsets in three tiers, LSTM, sequences of 20": (
        "long",
        {"cell": "lstm", "bs": 64, "memory_bank_size": 0, "cache_l1_mb": 2.0, "cache_l2_mb": 2.0},
    ),
    "FIFO bank of 50,000": ("short", {}),
    "small micro-batches, no FIFO bank": ("short", {"bs": 8, "memory_bank_size": 0, "val_queries": 0}),
    "mining in place, recall": ("short", {"mining": "sync", "memory_bank_size": 10_000}),
    "mining in a forked process": ("short", {"mining": "process", "start_method": "fork", "memory_bank_size": 10_000, "val_queries": 0}),
    "mining in a spawned process": ("short", {"mining": "process", "start_method": "spawn", "memory_bank_size": 0}),
    "4 forked workers with chunk caches of 64 MB": (
        "long",
        {"workers": 4, "start_method": "fork", "chunk": 16, "chunk_cache_mb": 64.0, "bs": 16, "memory_bank_size": 0, "max_steps": 80},
    ),
}


def configuration(name: str, data: Path, out: Path) -> TrainConfig:
    folder, changes = CONFIGURATIONS[name]
    fixed: dict[str, Any] = {"threads": 1, "max_steps": 40, "mine_every": 10}
    return TrainConfig(pairs=data / folder / "pairs.npz", bank=data / folder / "bank.npz", out=out, **{**fixed, **changes})


def measured(config: TrainConfig) -> tuple[float, float]:
    """Peaks of a run, in bytes: PSS of the process tree, and the anonymous part of it."""
    options = [f"--{name.replace('_', '-')}" for name in dataclasses.asdict(config)]
    argv = [sys.executable, "-m", "trainer", "train"]
    for option, value in zip(options, dataclasses.asdict(config).values(), strict=True):
        argv += [option.replace("--", "--no-", 1) if value is False else option] if isinstance(value, bool) else [option, str(value)]
    total, anonymous = 0, 0
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    with subprocess.Popen(argv, cwd=ROOT, env={**os.environ, **threads}, stdout=subprocess.DEVNULL) as child:
        while child.poll() is None:
            tree = held_by_tree(child.pid)
            total, anonymous = max(total, tree.total_bytes), max(anonymous, tree.anonymous_bytes or 0)
            time.sleep(EVERY_S)
    if child.returncode:
        raise SystemExit(f"the trainer ended with status {child.returncode}: {' '.join(argv)}")
    return total, anonymous


def compare(config: TrainConfig) -> dict[str, float]:
    total, anonymous = measured(config)
    parts = predict(config)
    (config.out / "config.yaml").write_text(to_yaml(config))
    predicted, predicted_anonymous = (sum(getattr(part, name) for part in parts) for name in ("total_bytes", "anonymous_bytes"))
    own = measured_peak(config.out / "memory.jsonl") or 0
    return {
        "measured_mb": round(total / MB, 1),
        "predicted_mb": round(predicted / MB, 1),
        "predicted over measured": round(predicted / total, 3),
        "measured_anonymous_mb": round(anonymous / MB, 1),
        "predicted_anonymous_mb": round(predicted_anonymous / MB, 1),
        "anonymous, predicted over measured": round(predicted_anonymous / anonymous, 3),
        "the trainer's own measure over this one": round(own / total, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="configurations whose names begin like this (default: all; only then the result is kept)")
    names = parser.parse_args().names
    chosen = [name for name in CONFIGURATIONS if not names or name.startswith(tuple(names))]
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as place:
        data = Path(place)
        synth(SynthConfig(out=data / "short", train=20_000, val=2000, bank=50_000))
        synth(SynthConfig(out=data / "long", train=2000, val=64, bank=5000, seq_len=20))
        for number, name in enumerate(chosen):
            figures[name] = compare(configuration(name, data, data / f"out-{number}"))
            print(name, figures[name], flush=True)
    worst = max(abs(figure["predicted over measured"] - 1) for figure in figures.values())
    if not names:
        save("estimate", {"configurations": figures, "worst": round(worst, 3), "wanted": ALLOWED, "load": round(psutil.getloadavg()[0], 1)})


if __name__ == "__main__":
    main()
