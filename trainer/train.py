"""The training loop, flat: every axis is a visible `if` on a field of the configuration."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from trainer import InputError, TrainingError
from trainer.config import TrainConfig
from trainer.data import Floats, Order, Pairs, Rows, open_bank
from trainer.evaluate import recall
from trainer.loss import FifoBank, hard_cosines, info_nce
from trainer.miners import Miner, ProcessMiner, ThreadMiner
from trainer.mining import HardNegatives, mine
from trainer.model import QueryTower, encode
from trainer.optim import AdamW, cosine_lr
from trainer.progress import History, Progress


def train(config: TrainConfig) -> None:
    """Train as configured.  Raises InputError before the first step and TrainingError after it."""
    device = open_device(config.device)
    if config.threads:
        torch.set_num_threads(config.threads)
    pairs = Pairs(config.pairs, config.dim, config.seq_len)
    bank = open_bank(config.bank, config.dim)
    order = Order(len(pairs), config.bs, config.shuffle, config.seed)
    total = config.max_steps or config.epochs * order.steps_per_epoch

    history = History(config)
    mining = Mining(config, pairs, bank, order, total)  # before anything is computed: it may fork

    torch.manual_seed(config.seed)
    tower = QueryTower(config.dim, config.hidden, config.cell).to(device)
    optimizer = AdamW(list(tower.parameters()), config.weight_decay)
    updates = math.ceil(total / config.accum)
    fifo = FifoBank(config.memory_bank_size, config.dim, device) if config.memory_bank_size else None
    losses: list[float] = []

    with contextlib.closing(Progress(total)) as progress, contextlib.closing(mining):
        for step, (rows, x, y) in enumerate(micro_batches(pairs, order, total, config), start=1):
            lr = cosine_lr((step - 1) // config.accum, updates, config.lr, config.lr_floor)
            if config.mining != "off" and mining.due(step):
                mining.refresh(step, tower)

            check_finite(step, {"X_train": x, "Y_train": y})
            x, y, own_rows = x.to(device), y.to(device), rows.to(device)
            queries = tower(x)
            check_finite(step, {"the query vectors": queries})
            others = []
            if fifo:
                others.append(fifo.cosines(queries, own_rows))
            if config.mining != "off" and (hard := mining.documents(rows.numpy(), step)):
                others.append(hard_cosines(queries, hard[0].to(device), hard[1].to(device)))
            loss = info_nce(queries, y, others, config.tau, config.margin)
            check_finite(step, {"the loss": loss})
            (loss / config.accum).backward()  # type: ignore[no-untyped-call]
            if fifo:
                fifo.push(y, own_rows)

            if step % config.accum == 0 or step == total:
                check_finite(step, {f"the gradient of {name}": p.grad.norm() for name, p in tower.named_parameters() if p.grad is not None})
                if config.clip:
                    torch.nn.utils.clip_grad_norm_(tower.parameters(), config.clip)
                optimizer.step(lr)

            losses.append(loss.item())
            progress.step(step, losses[-1], lr)
            if step % order.steps_per_epoch == 0 or step == total:
                found = recall(tower, pairs, bank, config.val_queries) if config.val_queries else {}
                history.add(step, math.ceil(step / order.steps_per_epoch), losses, found)
                losses.clear()
    print("training finished", flush=True)


def open_device(name: str) -> torch.device:
    """Raises InputError when this machine, or this build of torch, has no such device."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError(f"--device cuda: torch {torch.__version__} sees no CUDA device here; --device cpu always works")
    if name == "mps" and not torch.backends.mps.is_available():
        raise InputError(f"--device mps: torch {torch.__version__} sees no MPS device here (only Macs have one); --device cpu always works")
    return torch.device(name)


def micro_batches(pairs: Pairs, order: Order, total: int, config: TrainConfig) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """rows (bs,), x (bs, seq, dim), y (bs, dim) of steps 1 to total, epoch after epoch."""
    method = None if config.start_method == "default" or config.workers == 0 else config.start_method
    loader: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(
        pairs,  # type: ignore[arg-type]  # it has the two methods that are used
        sampler=order,
        batch_size=None,  # order gives whole micro-batches
        num_workers=config.workers,
        persistent_workers=config.workers > 0,
        multiprocessing_context=method,
    )
    for epoch in range(math.ceil(total / order.steps_per_epoch)):
        order.epoch = epoch
        yield from itertools.islice(loader, total - epoch * order.steps_per_epoch)


def check_finite(step: int, tensors: dict[str, Tensor]) -> None:
    """Raise TrainingError that names the step and the first tensor that holds NaN or infinity."""
    for name, tensor in tensors.items():
        if not bool((finite := torch.isfinite(tensor)).all()):
            kind = "NaN" if bool(tensor.isnan().any()) else "infinity"
            raise TrainingError(f"step {step}: {name} holds {kind} ({int((~finite).sum())} of {tensor.numel()} values are not finite)")


class Mining:
    """When hard negatives are mined, for which queries, and by whom."""

    def __init__(self, config: TrainConfig, pairs: Pairs, bank: Floats, order: Order, total: int) -> None:
        self.config, self.pairs, self.bank, self.order, self.total = config, pairs, bank, order, total
        self.mined = HardNegatives(len(pairs), config.negatives, config.mine_reuse or config.mine_every)
        self.asked: Rows | None = None  # what the miner is working on
        ahead = config.mining in ("thread", "process")
        self.miner: Miner | None = self.start_miner() if ahead and not config.warm_search else None

    def start_miner(self) -> Miner:
        if self.config.mining == "thread":
            return ThreadMiner(self.bank, self.config)
        return ProcessMiner(self.config, self.config.mine_every * self.config.bs)

    def due(self, step: int) -> bool:
        return step >= self.config.mine_start and (step - self.config.mine_start) % self.config.mine_every == 0

    def refresh(self, step: int, tower: QueryTower) -> None:
        """Have negatives for the queries of the steps from `step` to the next refresh."""
        if self.config.mining == "sync":
            self.mine_here(step, tower)
            return
        if self.miner is None:  # the warm search
            self.mine_here(step, tower)
            self.miner = self.start_miner()
        elif self.asked is None:  # the first time without a warm search
            self.ask(step, tower)
        self.collect(step)
        self.ask(step + self.config.mine_every, tower)  # the miner works one window ahead

    def mine_here(self, step: int, tower: QueryTower) -> None:
        rows = self.needed(step)
        if len(rows):
            queries = encode(tower, self.pairs.x_train[rows]).cpu().numpy()
            self.mined.put(rows, mine(self.bank, queries, self.pairs.y_train[rows], self.config), step)

    def ask(self, step: int, tower: QueryTower) -> None:
        rows = self.needed(step)
        if len(rows) and self.miner:
            self.miner.request(encode(tower, self.pairs.x_train[rows]).cpu().numpy(), self.pairs.y_train[rows])
            self.asked = rows

    def collect(self, step: int) -> None:
        if self.asked is not None and self.miner:
            self.mined.put(self.asked, self.miner.collect(), step)
            self.asked = None

    def needed(self, step: int) -> Rows:
        """The training rows that the window from `step` on uses and that have no negatives for all of it."""
        last = min(self.total, step + self.config.mine_every - 1)
        return self.mined.stale(self.order.window(step, last), last)

    def documents(self, rows: Rows, step: int) -> tuple[Tensor, Tensor] | None:
        """Hard negatives (n, k, dim) of the rows and which of them are there (n, k); None when none is."""
        ids = self.mined.get(rows, step)
        if (ids < 0).all():
            return None
        return torch.from_numpy(self.bank[ids.clip(0)]), torch.from_numpy(ids >= 0)

    def close(self) -> None:
        if self.miner:
            self.miner.close()
