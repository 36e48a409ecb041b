"""Every option of the trainer, once: the command line, the checks and config.yaml are all made from these fields."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, Literal

from trainer import InputError


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run.  A step is one micro-batch; `accum` steps make one update of the weights."""

    pairs: Annotated[Path, "npz with X_train Y_train X_val Y_val"]
    bank: Annotated[Path, "npz with the documents to mine from, as `bank`"]
    out: Annotated[Path, "folder for config.yaml and history.jsonl"] = Path("runs/train")

    device: Annotated[Literal["cpu", "mps", "cuda"], "where to compute"] = "cpu"
    threads: Annotated[int, "threads of torch and of FAISS; 0 leaves both at their own default"] = 0
    seed: Annotated[int, "seed of the weights and of the order of the pairs"] = 0
    bs: Annotated[int, "pairs in a micro-batch"] = 32
    accum: Annotated[int, "micro-batches in one update of the weights"] = 1
    epochs: Annotated[int, "passes over the training pairs"] = 10
    max_steps: Annotated[int, "number of steps, whatever --epochs says; 0: --epochs decides"] = 0
    shuffle: Annotated[bool, "a new random order of the pairs in every epoch"] = True
    workers: Annotated[int, "processes that load micro-batches; 0: the trainer loads them itself"] = 0
    start_method: Annotated[
        Literal["default", "fork", "spawn", "forkserver"], "how workers and the miner process are started; default: as Python does here"
    ] = "default"

    dim: Annotated[int, "size of one vector"] = 768
    hidden: Annotated[int, "hidden units in each direction"] = 512
    cell: Annotated[Literal["gru", "lstm"], "recurrent cell of the query tower"] = "gru"
    seq_len: Annotated[int, "use the first N vectors of each query; 0: all there are"] = 0

    tau: Annotated[float, "temperature"] = 0.05
    margin: Annotated[float, "taken off the cosine of the positive"] = 0.03
    memory_bank_size: Annotated[int, "recent documents kept as negatives; 0: none"] = 50_000
    lr: Annotated[float, "learning rate at the first update"] = 5e-5
    lr_floor: Annotated[float, "learning rate at the last update (cosine in between)"] = 1e-6
    weight_decay: Annotated[float, "of AdamW"] = 0.01
    clip: Annotated[float, "largest norm of the gradient; 0: no clipping"] = 1.0

    mining: Annotated[Literal["off", "sync", "thread", "process"], "who mines hard negatives with FAISS"] = "off"
    mine_start: Annotated[int, "first step that mines"] = 10
    mine_every: Annotated[int, "steps from one mining to the next, which mines for the queries of these steps"] = 10
    mine_reuse: Annotated[int, "steps for which a mined query is not mined again; 0: as --mine-every"] = 0
    mine_timeout: Annotated[float, "seconds to wait for the miner thread or process; 0: without end"] = 0.0
    warm_search: Annotated[bool, "the trainer mines the first time itself, then starts the miner; without: starts it first of all"] = True
    negatives: Annotated[int, "hard negatives for each query, at most"] = 8
    candidates: Annotated[int, "nearest documents that are looked at"] = 128
    query_batch: Annotated[int, "queries in one FAISS search"] = 2048
    band_low: Annotated[float, "smallest cosine of query and hard negative"] = 0.3
    band_high: Annotated[float, "largest cosine of query and hard negative"] = 0.95
    near_duplicate: Annotated[float, "a document this close to the query's own is no negative"] = 0.98

    val_queries: Annotated[int, "the first N validation pairs are ranked after each epoch; 0: none"] = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class SynthConfig:
    """Made data: documents in clusters on the unit sphere; a query is its document rotated, plus noise."""

    out: Annotated[Path, "folder for pairs.npz and bank.npz"]
    train: Annotated[int, "training pairs"] = 2000
    val: Annotated[int, "validation pairs"] = 500
    bank: Annotated[int, "documents in the bank: those of the pairs first, then others of the same clusters"] = 5000
    dim: Annotated[int, "size of one vector"] = 768
    seq_len: Annotated[int, "vectors in a query; 0: one, stored as (n, dim) instead of (n, 1, dim)"] = 0
    clusters: Annotated[int, "clusters of documents"] = 100
    spread: Annotated[float, "distance of documents from their cluster's centre; two of one cluster have cosine 1 / (1 + spread^2)"] = 0.4
    noise: Annotated[float, "length of the noise on each query vector, whose own length is 1"] = 0.5
    seed: Annotated[int, "equal seeds and sizes give equal files"] = 0


MAY_BE_ZERO = {
    *("threads", "seed", "max_steps", "workers", "seq_len", "margin", "memory_bank_size", "lr_floor", "weight_decay", "clip"),
    *("mine_reuse", "mine_timeout", "band_low", "val_queries", "spread", "noise"),
}


def check(config: TrainConfig | SynthConfig) -> None:
    """Raise InputError that names every option whose value cannot work."""
    problems = []
    for field in dataclasses.fields(config):
        value, zero = getattr(config, field.name), field.name in MAY_BE_ZERO
        if type(value) in (int, float) and not (value > 0 or (zero and value == 0)):
            problems.append(f"{flag(field.name)} is {value}; it must be {'0 or more' if zero else 'more than 0'}")
    if isinstance(config, TrainConfig):
        problems += _contradictions(config)
    if problems:
        raise InputError("; ".join(problems))


def _contradictions(config: TrainConfig) -> list[str]:
    rules = [
        (config.negatives > config.candidates, f"--negatives {config.negatives} is more than --candidates {config.candidates}"),
        (config.band_low >= config.band_high, f"--band-low {config.band_low} is not below --band-high {config.band_high}"),
        (0 < config.mine_reuse < config.mine_every, f"--mine-reuse {config.mine_reuse} is less than --mine-every {config.mine_every}"),
        (config.lr_floor > config.lr, f"--lr-floor {config.lr_floor} is more than --lr {config.lr}"),
    ]
    return [text for broken, text in rules if broken]


def flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def to_yaml(config: TrainConfig) -> str:
    """YAML that every reader understands alike: text in quotes (YAML 1.1 reads off as false), floats with a dot (5e-05 would be text)."""
    return "".join(f"{field.name}: {_scalar(getattr(config, field.name))}\n" for field in dataclasses.fields(config))


def _scalar(value: Any) -> str:
    if isinstance(value, float):
        digits, e, exponent = repr(value).partition("e")
        return digits + (".0" if e and "." not in digits else "") + e + exponent
    return json.dumps(str(value) if isinstance(value, Path) else value)
