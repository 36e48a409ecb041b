"""Miners that work beside the training loop: a thread and a process.  No torch in here: a spawned miner must start quickly."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import queue
import signal
import threading
import time
import traceback
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trainer import TrainingError
from trainer.config import TrainConfig
from trainer.data import Floats, open_bank
from trainer.mining import Ids, mine


class Miner(Protocol):
    """One request is under way at a time; `collect` waits for what was mined for it, as the request's configuration says.

    Both raise TrainingError when the miner died, failed or took too long.
    """

    def request(self, queries: Floats, positives: Floats, config: TrainConfig) -> None: ...

    def collect(self) -> Ids: ...

    def close(self) -> None: ...


class ThreadMiner:
    def __init__(self, bank: Floats, config: TrainConfig) -> None:
        self.bank, self.config = bank, config
        self.requests: queue.Queue[tuple[Floats, Floats, TrainConfig] | None] = queue.Queue(maxsize=1)
        self.results: queue.Queue[Ids | str] = queue.Queue(maxsize=1)
        self.thread = threading.Thread(target=self._serve, name="miner", daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while (request := self.requests.get()) is not None:
            try:
                self.results.put(mine(self.bank, *request))
            except Exception:
                self.results.put(traceback.format_exc())

    def request(self, queries: Floats, positives: Floats, config: TrainConfig) -> None:
        self.requests.put((queries, positives, config))

    def collect(self) -> Ids:
        started = time.monotonic()
        try:
            result = self.results.get(timeout=self.config.mine_timeout or None)
        except queue.Empty:
            name = f"miner thread {self.thread.native_id}"
            seen = describe(Path(f"/proc/self/task/{self.thread.native_id}"))
            raise TrainingError(no_answer(name, time.monotonic() - started, self.config, seen)) from None
        if isinstance(result, str):
            raise TrainingError(f"the miner thread failed:\n{result}")
        return result

    def close(self) -> None:
        with contextlib.suppress(queue.Full):
            self.requests.put_nowait(None)
        self.thread.join(5)  # a thread that still searches while the interpreter is taken down can crash it


class ProcessMiner:
    """Vectors travel in shared memory and only a few bytes through the pipe, so that neither side can block halfway through a message."""

    def __init__(self, config: TrainConfig, rows: int) -> None:
        """`rows`: the most queries that one request may have; `config.negatives`: the most negatives that one may ask for."""
        context: Any = multiprocessing.get_context(None if config.start_method == "default" else config.start_method)
        self.config = config
        sizes = [("f", rows * config.dim), ("f", rows * config.dim), ("i", rows * config.negatives)]
        self.shared = [context.RawArray(kind, size) for kind, size in sizes]
        self.queries, self.positives, self.ids = views(self.shared, config)
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, self.shared, config), name="miner", daemon=True)
        self.process.start()
        self.name = f"miner process {self.process.pid} (start method {context.get_start_method()})"
        theirs.close()  # so that the pipe ends when the miner does

    def request(self, queries: Floats, positives: Floats, config: TrainConfig) -> None:
        self.queries[: len(queries)] = queries
        self.positives[: len(positives)] = positives
        self.asked = config.negatives
        try:
            self.pipe.send((len(queries), config))
        except BrokenPipeError:
            raise TrainingError(self._died(0.0)) from None

    def collect(self) -> Ids:
        started = time.monotonic()
        if not self.pipe.poll(self.config.mine_timeout or None):
            seen = describe(Path(f"/proc/{self.process.pid}"))
            raise TrainingError(no_answer(self.name, time.monotonic() - started, self.config, seen))
        try:
            reply = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise TrainingError(self._died(time.monotonic() - started)) from None
        if isinstance(reply, str):
            raise TrainingError(f"{self.name} failed:\n{reply}")
        return np.array(self.ids[:reply, : self.asked])

    def _died(self, waited_s: float) -> str:
        self.process.join(5)
        code = self.process.exitcode
        how = f"killed by {signal.Signals(-code).name}" if code is not None and code < 0 else "ended by itself"
        return f"{self.name} is dead: {how}, exit code {code}; noticed after {waited_s:.1f} s of waiting"

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it is dead already
            self.pipe.send(None)
        self.process.join(1)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


def views(shared: list[Any], config: TrainConfig) -> tuple[Floats, Floats, Ids]:
    queries, positives = (np.frombuffer(array, np.float32).reshape(-1, config.dim) for array in shared[:2])
    return queries, positives, np.frombuffer(shared[2], np.int32).reshape(-1, config.negatives)


def serve(pipe: Any, shared: list[Any], config: TrainConfig) -> None:
    """The miner process: maps the bank itself, mines until it is told to stop or its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the trainer ends its miner itself
    queries, positives, ids = views(shared, config)
    parent = multiprocessing.parent_process()
    assert parent is not None
    try:
        bank = open_bank(config.bank, config.dim)
        while pipe in multiprocessing.connection.wait([pipe, parent.sentinel]) and (request := pipe.recv()) is not None:
            rows, asked = request
            ids[:rows, : asked.negatives] = mine(bank, queries[:rows], positives[:rows], asked)
            pipe.send(rows)
    except Exception:
        pipe.send(traceback.format_exc())


def no_answer(name: str, waited_s: float, config: TrainConfig, seen: str) -> str:
    threads = config.threads or "the libraries' default number of"
    waited = f"did not answer within {waited_s:.1f} s (--mine-timeout {config.mine_timeout:g})"
    return f"{name} {waited}: it is alive, {seen}; it searches with {threads} threads"


def describe(proc: Path) -> str:
    """State, kernel function and CPU time of a process or thread, from its folder in /proc (see proc(5))."""
    try:
        fields = (proc / "stat").read_text(errors="replace").rpartition(")")[2].split()
        wchan = (proc / "wchan").read_text(errors="replace")
    except OSError as error:
        return f"more is not known ({error.strerror} for {proc})"
    cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return f"state {fields[0]}, wchan {wchan}, {cpu_s:.1f} s of CPU used, {fields[17]} threads in its process"
