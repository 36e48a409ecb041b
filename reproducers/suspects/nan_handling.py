"""The trainer with a NaN or an infinity in its data, or a learning rate that blows up: does it stop there and say so?

--unchecked takes the trainer's checks away, as in a trainer that has none.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import sys
import tempfile
from pathlib import Path

import numpy as np

import trainer.train
from trainer.__main__ import main as trainer_main
from trainer.config import SynthConfig
from trainer.synth import synth

CASES = [("X_train", np.nan, "X_train holds NaN"), ("Y_train", np.inf, "Y_train holds infinity"), ("lr", 0.0, "holds")]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--unchecked", action="store_true")
    options = parser.parse_args()
    if options.unchecked:
        trainer.train.check_finite = lambda step, tensors: None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        synth(SynthConfig(out=folder, train=64, val=4, bank=70, dim=32, clusters=8))
        with np.load(folder / "pairs.npz") as file:
            clean = dict(file)
        for number, (array, value, expected) in enumerate(CASES, start=1):
            arrays = {key: values.copy() for key, values in clean.items()}
            if array in arrays:
                arrays[array][40] = value
            np.savez(folder / "pairs.npz", **arrays)
            said = stops(folder, lr="1e30" if array == "lr" else "1e-3")
            if said is None or expected not in said:
                sys.exit(f"error: {array}: a value that is no number passed unnoticed; expected words with {expected!r}, got {said!r}")
            print(f"step {number} {said}", flush=True)
    print("suspect finished", flush=True)


def stops(folder: Path, lr: str) -> str | None:
    """What the trainer said as it stopped; None: it did not stop."""
    command = [
        *("train", "--pairs", str(folder / "pairs.npz"), "--bank", str(folder / "bank.npz"), "--out", str(folder / "out")),
        *("--dim", "32", "--hidden", "16", "--bs", "4", "--max-steps", "16", "--memory-bank-size", "20", "--val-queries", "0", "--lr", lr),
    ]
    steps, words = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(steps), contextlib.redirect_stderr(words):
        status = trainer_main(command)
    print(f"last line: {(steps.getvalue().splitlines() or ['none'])[-2:]}", flush=True)
    return words.getvalue().strip() if status == 1 else None


if __name__ == "__main__":
    main()
