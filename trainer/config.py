"""Every option of the trainer, once: the command line, the checks and config.yaml are all made from these fields."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from trainer import InputError, schedule


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run.  A step is one micro-batch; `accum` steps make one update of the weights."""

    pairs: Annotated[Path, "npz with X_train Y_train X_val Y_val"]
    bank: Annotated[Path, "npz with the documents to mine from, as `bank`"]
    out: Annotated[Path, "folder for config.yaml, history.jsonl, memory.jsonl and the checkpoint"] = Path("runs/train")
    save_every: Annotated[int, "steps from one checkpoint to the next; 0: none is written"] = 0
    resume: Annotated[bool, "go on from the checkpoint in --out; without one, start at the first step"] = False

    device: Annotated[str, "where to compute: cpu, cuda, mps, or another backend that torch has here"] = "cpu"
    precision: Annotated[Literal["fp32", "bf16"], "of the query tower's products; weights and loss stay fp32"] = "fp32"
    clear_cache_every: Annotated[int, "steps between two clearings of the device's memory cache (cuda, mps); 0: never"] = 0
    synchronize_every: Annotated[int, "steps between two waits for all work on the device (cuda, mps); 0: never"] = 0
    threads: Annotated[int, "threads of torch and of FAISS; 0 leaves both at their own default"] = 0
    seed: Annotated[int, "seed of the weights and of the order of the pairs"] = 0
    bs: Annotated[int, "pairs in a micro-batch"] = 32
    accum: Annotated[int, "micro-batches in one update of the weights"] = 1
    epochs: Annotated[int, "passes over the training pairs"] = 10
    max_steps: Annotated[int, "number of steps, whatever --epochs says; 0: --epochs decides"] = 0
    shuffle: Annotated[bool, "a new random order of the pairs in every epoch"] = True
    workers: Annotated[int, "processes that load micro-batches; 0: the trainer loads them itself"] = 0
    prefetch: Annotated[int, "micro-batches that each worker loads ahead"] = 2
    chunk: Annotated[int, "pairs that are read at a time and kept, by each process that loads; 0: each pair when it is used"] = 0
    chunk_cache_mb: Annotated[float, "MB of such chunks that each process that loads keeps, at most"] = 256.0
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
    mining_schedule: Annotated[str, "by epoch, from 1, as 0-5:none;6-10:8@0.82-0.92 (negatives@band); '': --negatives, --band-*"] = ""
    hard_fraction: Annotated[float, "share of the queries of a micro-batch that hard negatives are used for"] = 1.0
    negatives: Annotated[int, "hard negatives for each query, at most"] = 8
    candidates: Annotated[int, "nearest documents that are looked at"] = 128
    query_batch: Annotated[int, "queries in one FAISS search"] = 2048
    band_low: Annotated[float, "smallest cosine of query and hard negative"] = 0.3
    band_high: Annotated[float, "largest cosine of query and hard negative"] = 0.95
    near_duplicate: Annotated[float, "a document this close to the query's own is no negative"] = 0.98

    cache_l1_mb: Annotated[float, "MB of the first tier of the trainable offsets, one for each pair's document; 0: no offsets"] = 0.0
    cache_l2_mb: Annotated[float, "MB of the second tier, which takes what the first gives up; the third is a file in --out"] = 64.0
    cache_lr: Annotated[float, "learning rate of the offsets (plain gradient descent)"] = 1.0
    cache_sync_every: Annotated[int, "steps between two writes of changed offsets to the file"] = 100
    cache_memory_limit: Annotated[float, "percent of the machine's memory in use above which the tiers shrink"] = 90.0
    cache_summary_every: Annotated[int, "epochs between two summaries of the tiers"] = 1

    val_queries: Annotated[int, "the first N validation pairs are ranked after each epoch; 0: none"] = 2000


@dataclasses.dataclass(frozen=True, kw_only=True)
class SubsetConfig:
    """A small copy of large files, to try things on: rows drawn by chance, in the order of the file."""

    pairs: Annotated[Path, "npz with X_train Y_train X_val Y_val"]
    bank: Annotated[Path, "npz with the documents to mine from, as `bank`"]
    out: Annotated[Path, "folder for pairs.npz and bank.npz"]
    train: Annotated[int, "training pairs, at most"] = 2000
    val: Annotated[int, "validation pairs, at most"] = 500
    documents: Annotated[int, "documents of the bank, at most"] = 5000
    seed: Annotated[int, "equal seeds and sizes give equal files"] = 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """Tells whether an npz is mapped or loaded: memory before, after opening it, and after one access to each array."""

    file: Annotated[Path, "npz file"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class EstimateConfig:
    """The memory that a run will need, component by component, and what it needed where it has run already."""

    config: Annotated[Path, "config.yaml of a run, or one like it; options that are not in it have their defaults"]


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
    *("mine_reuse", "mine_timeout", "band_low", "val_queries", "spread", "noise", "save_every", "clear_cache_every", "synchronize_every"),
    *("chunk", "hard_fraction", "cache_l1_mb"),
}


Config = TrainConfig | SynthConfig | SubsetConfig | ProbeConfig | EstimateConfig


def check(config: Config) -> None:
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
        (config.hard_fraction > 1, f"--hard-fraction {config.hard_fraction} is more than 1"),
        (config.cache_memory_limit > 100, f"--cache-memory-limit {config.cache_memory_limit} is more than 100 percent"),
        (config.lr_floor > config.lr, f"--lr-floor {config.lr_floor} is more than --lr {config.lr}"),
    ]
    return [text for broken, text in rules if broken] + schedule.problems(config.mining_schedule, config.candidates)


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


def from_yaml(path: Path) -> TrainConfig:
    """The configuration in a file; options that it lacks have their defaults.  Raises InputError that names every problem."""
    from ruamel.yaml import YAML  # here: `--help` must not pay for it
    from ruamel.yaml.error import YAMLError

    try:
        values = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, YAMLError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}; expected the config.yaml of a run") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: holds no options; expected lines as in the config.yaml of a run, such as bs: 32")
    hints = {name: get_args(hint)[0] for name, hint in get_type_hints(TrainConfig, include_extras=True).items()}
    problems = [f"{name} is no option of train" for name in values if name not in hints]
    problems += [f"{name} is missing" for name in ("pairs", "bank") if name not in values]
    problems += [
        f"{name} is {value!r}; expected {_expected(hints[name])}" for name, value in values.items() if not _fits(hints.get(name), value)
    ]
    if problems:
        raise InputError(f"{path}: {'; '.join(problems)}")
    return TrainConfig(**{name: hints[name](value) if hints[name] in (Path, float) else value for name, value in values.items()})


def _fits(kind: Any, value: Any) -> bool:
    if kind is None:  # said already
        return True
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is float:
        return type(value) in (int, float)
    return type(value) is (str if kind is Path else kind)


def _expected(kind: Any) -> str:
    return f"one of {', '.join(get_args(kind))}" if get_origin(kind) is Literal else {Path: "a path", str: "text"}.get(kind, kind.__name__)
