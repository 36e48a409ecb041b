"""The trainer, killed with SIGKILL in the middle of a run and resumed: is the rest as if it had never been killed?

The losses of every step are compared with those of a run that nobody kills.  --damage plants what a writer that replaces its checkpoint
in place leaves behind when it is killed: half a file.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from trainer.config import SynthConfig
from trainer.synth import synth

STEPS, SAVE_EVERY, KILL_AFTER = 12, 3, 7


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--damage", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        synth(SynthConfig(out=folder, train=64, val=4, bank=70, dim=32, clusters=8))
        whole = run(folder, "whole")
        print("step 1 ran without a kill", flush=True)
        killed = run(folder, "killed", kill_after=KILL_AFTER)
        print(f"step 2 killed after step {max(killed)}", flush=True)
        if options.damage:
            checkpoint = folder / "killed" / "checkpoint.pt"
            os.truncate(checkpoint, checkpoint.stat().st_size // 2)
        resumed = run(folder, "killed", "--resume")
        print(f"step 3 resumed at step {min(resumed)}", flush=True)
        if not 1 < min(resumed) <= max(killed) + 1:
            sys.exit(f"error: killed after step {max(killed)}, it went on at step {min(resumed)}")
        for part in (killed, resumed):
            if wrong := [step for step, loss in part.items() if whole[step] != loss]:
                sys.exit(f"error: the loss of step {wrong[0]} is {part[wrong[0]]}; without a kill it is {whole[wrong[0]]}")
        if max(resumed) != STEPS:
            sys.exit(f"error: it stopped at step {max(resumed)} of {STEPS}")
    print("suspect finished", flush=True)


def run(folder: Path, out: str, *further: str, kill_after: int | None = None) -> dict[int, str]:
    """One run of the trainer: the loss of each step, as it was printed."""
    command = [
        *(sys.executable, "-m", "trainer", "train", "--pairs", str(folder / "pairs.npz"), "--bank", str(folder / "bank.npz")),
        *("--out", str(folder / out), "--dim", "32", "--hidden", "16", "--bs", "4", "--accum", "2", "--max-steps", str(STEPS)),
        *("--save-every", str(SAVE_EVERY), "--memory-bank-size", "20", "--val-queries", "0", "--cache-l1-mb", "0.01", *further),
    ]
    losses: dict[int, str] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace") as trainer:
        assert trainer.stdout is not None
        for line in trainer.stdout:
            if line.startswith("step "):
                step, loss = line.split()[1:3]
                losses[int(step.partition("/")[0])] = loss
                if len(losses) == kill_after:
                    trainer.kill()
    if trainer.returncode != 0 and kill_after is None:
        sys.exit(f"error: the trainer ended with status {trainer.returncode} ({' '.join(further) or 'first run'})")
    return losses


if __name__ == "__main__":
    main()
