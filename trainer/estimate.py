"""How much memory a run will need: what each part of it holds, added up, beside what was measured where it has run.

Total is counted as PSS over the process tree is: what several processes share, once; mapped files as far as they are read.
Anonymous is the part that belongs to no file.  A container's limit stops that: pages of files are given back first.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from trainer import InputError
from trainer.config import EstimateConfig, TrainConfig, check, from_yaml
from trainer.data import Order, Pairs, open_bank
from trainer.evaluate import BLOCK
from trainer.hard_negatives import most_negatives
from trainer.memory import MB, held
from trainer.mining import BLOCK as SEARCH_BLOCK
from trainer.progress import write_text

F32 = 4  # bytes
WORKER_BYTES = 20e6  # a forked process's own pages: reference counts, its queue, what it loads at the moment
FIRST_STEP_BYTES, FAISS_BYTES = 13e6, 14e6  # of libraries: mapped in by the first step, and by the first search (torch 2.13, faiss 1.15)
LOGITS = 6  # matrices of the size of the logits at the peak of a backward pass: the products, log softmax, gradients
GATES = 16  # values for each hidden unit and time step that a recurrent cell keeps for its backward pass


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    name: str
    total_bytes: float
    anonymous_bytes: float
    note: str = ""


def estimate(config: EstimateConfig) -> None:
    """Print the table.  Raises InputError."""
    asked = from_yaml(config.config)
    check(asked)
    parts = predict(asked)
    for part in parts:
        print(f"{part.name:<22}{part.total_bytes / MB:>10.1f}{part.anonymous_bytes / MB:>12.1f}  {part.note}")
    total, anonymous = (sum(getattr(part, name) for part in parts) for name in ("total_bytes", "anonymous_bytes"))
    print(f"{'predicted peak':<22}{total / MB:>10.1f}{anonymous / MB:>12.1f}  MB in all, and of it anonymous")
    measured = measured_peak(config.config.parent / "memory.jsonl")
    if measured is None:
        print("measured peak: none yet; it stands in memory.jsonl beside config.yaml once the run has begun")
    else:
        print(f"{'measured peak':<22}{measured / MB:>10.1f}{'':>12}  MB; predicted is {total / measured:.2f} of it")


def write_estimate(config: TrainConfig) -> None:
    """estimate.json in the run's folder, for whoever sets it beside what a run took; called before the data are opened.

    It takes milliseconds: the libraries are measured as they stand in this process.  A full disk ends no run."""
    parts = {part.name: round(part.total_bytes) for part in predict(config, measure_here(config))}
    text = json.dumps({"peak_bytes": sum(parts.values()), "components": parts}, indent=1) + "\n"
    try:
        write_text(config.out / "estimate.json", text)
    except OSError as error:
        print(f"{config.out / 'estimate.json'}: {error.strerror}; the run goes on without it", file=sys.stderr, flush=True)


def predict(config: TrainConfig, machine: Machine | None = None) -> list[Part]:
    """The parts of the peak.  Opens the files; None: measures the libraries in a process of their own.  Raises InputError."""
    pairs = Pairs(config.pairs, config.dim, config.seq_len)
    bank = open_bank(config.bank, config.dim)
    order = Order(len(pairs), config.bs, config.shuffle, config.seed)
    steps = config.max_steps or config.epochs * order.steps_per_epoch
    return [
        part
        for part in _parts(config, pairs, len(bank), bank.ctypes.data % F32 != 0, steps, machine or measure(config))
        if part.total_bytes
    ]


def _parts(config: TrainConfig, pairs: Pairs, documents: int, unaligned: bool, steps: int, machine: Machine) -> Iterator[Part]:
    row = F32 * config.dim  # bytes of one vector
    seq = pairs.x_train.shape[1]
    seen = min(len(pairs), steps * config.bs)  # training pairs that are used
    reached = steps >= config.mine_start and config.mining != "off"
    parameters = _parameters(config)

    yield Part(
        name="runtime",
        total_bytes=machine.main,
        anonymous_bytes=machine.main_anonymous,
        note="interpreter and libraries, measured just now",
    )
    yield _own("weights", F32 * parameters, f"{parameters:,} values")
    yield _own("gradients", F32 * parameters)
    yield _own("optimizer", 2 * F32 * parameters, "AdamW: means and squares")
    filled = min(config.memory_bank_size, steps * config.bs)
    yield _own("FIFO bank", config.memory_bank_size * row, f"room for {config.memory_bank_size:,} documents")

    if reached or config.val_queries:
        yield Part(name="bank", total_bytes=documents * row, anonymous_bytes=0, note=f"{documents:,} documents, mapped")
    read = _touched(pairs, config, steps, machine.access) + (
        min(len(pairs.y_val), config.val_queries) * seq * row + pairs.y_val.nbytes if config.val_queries else 0
    )
    yield Part(name="data", total_bytes=read, anonymous_bytes=0, note="pairs that are read, mapped")

    batch = config.bs * (seq + 1) * row
    yield _own("workers x prefetch", config.workers * config.prefetch * batch, f"{config.workers} x {config.prefetch} micro-batches")
    forked = config.start_method == "fork" or (config.start_method == "default" and sys.platform == "linux" and sys.version_info < (3, 14))
    yield _own(
        "workers", config.workers * (WORKER_BYTES if forked else machine.spawned), "forked" if forked else "each with libraries of its own"
    )
    if forked and (config.workers or (reached and config.mining == "process" and config.warm_search)):
        rewritten = 3 * F32 * parameters + filled * row
        yield _own("old pages", rewritten, "weights, optimizer and FIFO bank as they were at the fork, rewritten since")
    if config.chunk:
        loaders = max(1, config.workers)
        kept = min(config.chunk_cache_mb * MB, pairs.x_train.nbytes + pairs.y_train.nbytes, seen / loaders * config.chunk * (seq + 1) * row)
        yield _own("chunk caches", loaders * kept, f"{loaders} x {kept / MB:.0f} MB")
    if config.cache_l1_mb:
        tiers = min((config.cache_l1_mb + config.cache_l2_mb) * MB, seen * row)
        yield _own("offsets, L1 and L2", tiers)
        yield Part(name="offsets, L3", total_bytes=seen * row, anonymous_bytes=0, note="file, mapped")
    if reached and config.mining == "process":
        rows = config.mine_every * config.bs
        shared = 2 * rows * row + F32 * rows * most_negatives(config)
        yield _own("miner process", (WORKER_BYTES if forked else machine.miner) + shared + _search(config, rows, documents, unaligned))
    yield _own(
        "work at the peak",
        max(_work(config, seq, filled, documents, unaligned, reached, len(pairs.y_val))),
        "the largest of a step, mining, recall",
    )


def _own(name: str, size: float, note: str = "") -> Part:
    return Part(name=name, total_bytes=size, anonymous_bytes=size, note=note)


def _parameters(config: TrainConfig) -> int:
    gates = 3 if config.cell == "gru" else 4
    recurrent = 2 * gates * config.hidden * (config.dim + config.hidden + 2)
    return recurrent + (2 * config.hidden + 1) * config.dim


def _touched(pairs: Pairs, config: TrainConfig, steps: int, access: float) -> float:
    """Bytes of the training pairs that are mapped in: an access brings in `access` bytes, its neighbours as well."""
    total = 0.0
    for array in (pairs.x_train, pairs.y_train):
        accesses = steps * config.bs
        wide = max(1, config.chunk) * array[0].nbytes
        by_chance = 1 - math.exp(-accesses * max(wide, access) / array.nbytes)
        total += array.nbytes * (by_chance if config.shuffle else min(1.0, accesses / len(array)))
    return total


def _work(config: TrainConfig, seq: int, filled: int, documents: int, unaligned: bool, reached: bool, val: int) -> Iterator[float]:
    """Bytes that come and go: of a step, of mining here, of recall."""
    row = F32 * config.dim
    logits = F32 * config.bs * (config.bs + filled + (most_negatives(config) if reached else 0))
    hard = config.bs * most_negatives(config) * row if reached else 0
    states = F32 * config.bs * seq * 2 * config.hidden * GATES
    largest = F32 * 4 * config.hidden * config.dim  # a gradient before it is added
    yield 3 * config.bs * (seq + 1) * row + LOGITS * logits + 2 * hard + states + largest
    if reached:
        rows = config.mine_every * config.bs
        here = 0.0 if config.mining == "process" and not config.warm_search else _search(config, rows, documents, unaligned)
        yield rows * (seq + 2) * row + here
    if config.val_queries:
        queries = min(val, config.val_queries)
        yield F32 * queries * BLOCK + 3 * min(BLOCK, documents) * row + 2 * queries * row


def _search(config: TrainConfig, rows: int, documents: int, unaligned: bool) -> float:
    """Bytes of one FAISS search, which has no index: a block of products, the best so far, and a copy of unaligned documents."""
    queries = min(rows, config.query_batch)
    copied = min(documents, SEARCH_BLOCK) * F32 * config.dim if unaligned else 0
    return F32 * min(queries, 4096) * 1024 + 12 * queries * min(config.candidates, documents) * max(1, documents // SEARCH_BLOCK) + copied


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """Bytes that depend on the machine and its libraries, and not on sizes of the run."""

    main: float  # the trainer without any data
    main_anonymous: float
    spawned: float  # anonymous, of a worker that imports everything anew
    miner: float  # ... of such a miner
    access: float  # that one access to the mapped pairs brings in: 64 KB, or a whole huge page


LIBRARIES = """
import json, os, sys
from pathlib import Path
from trainer.memory import held
def now():
    one = held(os.getpid())
    return one.total_bytes, one.anonymous_bytes or one.total_bytes
def mapped():
    total, anonymous = now()
    return total - anonymous
mining, cell, threads, pairs = sys.argv[1] != "off", sys.argv[2], int(sys.argv[3]), sys.argv[4]
import trainer.miners
found = {"miner": now()[1]}
if mining:
    import faiss, numpy
    faiss.knn(numpy.ones((32, 64), "float32"), numpy.ones((64, 64), "float32"), 4)
    found["miner"] = now()[1]
import torch, trainer.train
found["spawned"] = now()[1]
if threads:
    torch.set_num_threads(threads)
from trainer.model import QueryTower
tower = QueryTower(64, 32, cell)
tower(torch.ones(16, 2, 64)).sum().backward()
found["main"], found["main_anonymous"] = now()
from trainer.npz import open_npz
array = open_npz(Path(pairs), "pairs")["X_train"]
before = mapped()
rows = range(0, len(array), max(1, len(array) // 8))
for row in rows:
    float(array[row].sum())
found["access"] = max(65_536, (mapped() - before) / len(rows))
print(json.dumps(found))
"""


def measure(config: TrainConfig) -> Machine:
    """In a process of its own."""
    argv = [sys.executable, "-c", LIBRARIES, config.mining, config.cell, str(config.threads), str(config.pairs)]
    done = subprocess.run(argv, capture_output=True, text=True)
    if done.returncode:
        raise InputError(f"the libraries could not be measured: {done.stderr.strip().splitlines()[-1:]}")
    return Machine(**json.loads(done.stdout))


def measure_here(config: TrainConfig) -> Machine:
    """From this process before it holds any data; what the libraries load at their first use is added as it was measured once."""
    now = held(os.getpid())
    own = now.anonymous_bytes or now.total_bytes
    main = now.total_bytes + FIRST_STEP_BYTES + (FAISS_BYTES if config.mining != "off" else 0)
    return Machine(main=main, main_anonymous=own, spawned=own, miner=WORKER_BYTES, access=64 << 10)


def measured_peak(path: Path) -> float | None:
    """Most that the tree held at a stage of a run, and above it what its main process once had more; None: nothing was written."""
    try:
        stages = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    except OSError:
        return None
    if not stages:
        return None
    most = max(stages, key=lambda stage: float(stage["total_bytes"]))
    above = max(0, (stages[-1]["high_water_bytes"] or 0) - (most["main_bytes"] or 0))
    return float(most["total_bytes"] + above)
