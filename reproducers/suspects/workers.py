"""The trainer's own micro-batches, loaded by DataLoader workers after torch has computed in the parent.

What may go wrong there: the start method, shared memory (each batch travels through /dev/shm), and the chunks that each worker keeps.
--crash-at plants a write through a bad pointer into a worker; --shm-mb gives this process a /dev/shm of that size, as containers do.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import time
from pathlib import Path
from typing import Any, Literal

from reproducers.suspects import give_up

NEW_NAMES, RECURSIVE, PRIVATE = 0x20000, 0x4000, 0x40000  # CLONE_NEWNS, MS_REC, MS_PRIVATE


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--start", default="fork", choices=["fork", "spawn", "forkserver"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--bs", type=int, default=32)
    parser.add_argument("--prefetch", type=int, default=2)
    parser.add_argument("--chunk", type=int, default=0)
    parser.add_argument("--chunk-cache-mb", type=float, default=256.0)
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after the first step, in which the workers load ahead")
    parser.add_argument("--crash-at", type=int, default=0, help="the row at which a worker crashes; 0: none")
    parser.add_argument("--shm-mb", type=int, default=0)
    options = parser.parse_args()
    if options.start not in multiprocessing.get_all_start_methods():
        give_up(f"this platform has no start method {options.start}")
    if options.shm_mb:
        have_shared_memory_of(options.shm_mb)
    train(options, options.start)
    print("suspect finished", flush=True)


def train(options: argparse.Namespace, start: Literal["fork", "spawn", "forkserver"]) -> None:
    import torch

    from trainer.config import TrainConfig
    from trainer.data import Order, Pairs
    from trainer.train import micro_batches

    weight = torch.randn(768, 768)
    float((weight @ weight).sum())  # the parent's threads exist before the workers do
    kind: Any = crashing(options.crash_at) if options.crash_at else Pairs
    pairs = kind(options.pairs, 768, 0, options.chunk, options.chunk_cache_mb)
    config = TrainConfig(
        pairs=options.pairs, bank=options.pairs, workers=options.workers, prefetch=options.prefetch, start_method=start, bs=options.bs
    )
    order = Order(len(pairs), options.bs, shuffle=not options.crash_at, seed=0)
    for step, (_, x, y) in enumerate(micro_batches(pairs, order, 1, options.steps, config), start=1):
        print(f"step {step} {float((x[:, 0] @ weight * y).sum()):.3f}", flush=True)
        if step == 1:
            time.sleep(options.pause)


def crashing(row: int) -> Any:
    from trainer.data import Pairs

    class Crashing(Pairs):
        """Only for fork: what is made here cannot be sent to another interpreter."""

        def __getitem__(self, rows: Any) -> Any:
            if row in rows:
                ctypes.memset(1, 0, 1)
            return super().__getitem__(rows)

    return Crashing


def have_shared_memory_of(mb: int) -> None:
    """A mount of its own at /dev/shm, which ends with this process."""
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        not hasattr(libc, "unshare")
        or libc.unshare(NEW_NAMES)
        or libc.mount(None, b"/", None, RECURSIVE | PRIVATE, None)
        or libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, f"size={mb}m".encode())
    ):
        give_up(f"no /dev/shm of its own can be mounted: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    main()
