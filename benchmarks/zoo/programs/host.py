"""A small training loop that is well by itself, for faults that are planted from outside."""

import hashlib
import multiprocessing
import time
from pathlib import Path

import job
import numpy as np

DATA = Path(__file__).with_name("samples.bin")  # a sha256, then the samples


def load(length: int) -> np.ndarray:
    with open(DATA, "rb") as file:
        told, samples = file.read(32), file.read()
    if hashlib.sha256(samples).digest() != told:
        raise ValueError(f"{DATA.name}: the checksum of record 0 does not match")
    return np.frombuffer(samples, np.float32).reshape(-1, 32)[:length]


def prepare(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def main() -> None:
    A = job.options()
    samples = load(4096)
    random = np.random.default_rng(A.seed)
    pool = multiprocessing.get_context("fork").Pool(A.workers) if A.workers else None
    weights = np.full(32, 0.1)
    for number in range(A.steps):
        rows = samples[random.integers(0, len(samples), A.bs)] if A.shuffle else samples[number * A.bs % 2048 :][: A.bs]
        rows = np.concatenate(pool.map(prepare, np.array_split(rows, A.workers))) if pool else prepare(rows)
        moment = np.linalg.solve(rows.T @ rows + np.eye(32), weights)
        loss = float((moment**2).mean())
        weights = weights - 0.01 * moment
        bin_ = int(loss * 100)  # where it falls in a histogram
        job.step(number, loss=loss, bin=bin_)
        until = time.process_time() + 0.06
        while time.process_time() < until:
            prepare(samples)
    job.finished()


if __name__ == "__main__":
    main()
