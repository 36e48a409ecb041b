"""What a run shows and keeps: a line for each step, config.yaml, history.jsonl."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from trainer import InputError
from trainer.config import TrainConfig, to_yaml
from trainer.memory import held_by_tree, high_water_bytes, resident_bytes


class Progress:
    """One plain line for each step on stdout; a bar on stderr as well when that is a terminal."""

    def __init__(self, total: int, done: int = 0) -> None:
        self.total = total
        self.bar: Any = None
        if sys.stderr.isatty():
            from tqdm import tqdm  # here: a bar brings a lock and a thread, which a run without a terminal need not have

            self.bar = tqdm(total=total, initial=done, unit="step")

    def step(self, step: int, loss: float, lr: float) -> None:
        line = f"step {step}/{self.total} loss={loss:.4f} lr={lr:.3g}"
        if self.bar is None:
            print(line, flush=True)  # flushed: a line that dies in a buffer tells nobody where the run died
            return
        self.bar.write(line, file=sys.stdout)
        sys.stdout.flush()
        self.bar.update()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class History:
    """The run folder: config.yaml, written whole at the start; history.jsonl gets a line after each epoch, memory.jsonl after each stage.

    A run that goes on after step `done` keeps the lines up to there.
    """

    def __init__(self, config: TrainConfig, done: int = 0) -> None:
        self.path, self.stages = config.out / "history.jsonl", config.out / "memory.jsonl"
        self.started = time.monotonic()
        self.waiting: dict[Path, list[str]] = {}
        try:
            config.out.mkdir(parents=True, exist_ok=True)
            write_text(config.out / "config.yaml", to_yaml(config))
            for path in (self.path, self.stages):
                write_text(path, _lines_until(path, done))
        except OSError as error:
            raise InputError(f"{config.out}: {error.strerror or error}; expected a folder that can be written (--out)") from error

    def add(self, step: int, epoch: int, losses: list[float], found: dict[str, float]) -> None:
        """`losses`: of the epoch's steps; `found`: recall@k by name, empty when it was not measured."""
        seconds = round(time.monotonic() - self.started, 3)
        values = {"epoch": epoch, "step": step, "loss": statistics.fmean(losses), **found, "seconds": seconds}
        self._append(self.path, values)
        shown = " ".join(f"{name}={value:.4f}" for name, value in values.items() if isinstance(value, float))
        print(f"epoch {epoch}: {shown}", flush=True)

    def stage(self, name: str, step: int) -> None:
        """Keep what the process tree holds at this point; 2 ms for each process and GB."""
        tree = held_by_tree()
        values = {"stage": name, "step": step, **dataclasses.asdict(tree)}
        values |= {"main_bytes": resident_bytes(), "high_water_bytes": high_water_bytes()}
        self._append(self.stages, values)

    def _append(self, path: Path, values: dict[str, Any]) -> None:
        """A whole line or nothing of it; one that finds no space waits for the next, instead of ending the run."""
        lines = [*self.waiting.pop(path, []), json.dumps(values) + "\n"]
        size = path.stat().st_size if path.exists() else 0
        try:
            with path.open("a", encoding="utf-8") as sink:
                sink.writelines(lines)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.truncate(path, size)
            self.waiting[path] = lines
            print(f"{path}: {error.strerror}; {len(lines)} lines wait for the next time", file=sys.stderr, flush=True)


def _lines_until(path: Path, step: int) -> str:
    if step == 0 or not path.exists():
        return ""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    return "".join(line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with part.open("w", encoding="utf-8") as sink:
        sink.write(text)
        sink.flush()
        os.fsync(sink.fileno())
    part.replace(path)
