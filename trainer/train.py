"""The training loop, flat: every axis is a visible `if` on a field of the configuration."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from trainer import TrainingError, checkpoint
from trainer.config import TrainConfig
from trainer.data import Order, Pairs, open_bank
from trainer.devices import clear_cache, open_device, synchronize, without_onednn_lstm
from trainer.estimate import write_estimate
from trainer.evaluate import recall
from trainer.hard_negatives import Mining
from trainer.loss import FifoBank, hard_cosines, info_nce
from trainer.model import QueryTower
from trainer.optim import AdamW, cosine_lr
from trainer.progress import History, Progress


def train(config: TrainConfig) -> None:
    """Train as configured.  Raises InputError before the first step and TrainingError after it."""
    device = open_device(config.device)
    if config.threads:
        torch.set_num_threads(config.threads)
    if config.precision == "bf16" and config.cell == "lstm" and device.type == "cpu":
        without_onednn_lstm()
    pairs = Pairs(config.pairs, config.dim, config.seq_len, config.chunk, config.chunk_cache_mb)
    bank = open_bank(config.bank, config.dim)
    order = Order(len(pairs), config.bs, config.shuffle, config.seed)
    total = config.max_steps or config.epochs * order.steps_per_epoch
    saved = checkpoint.load(config) if config.resume else None
    done: int = saved["step"] if saved else 0

    history = History(config, done)
    write_estimate(config)
    mining = Mining(config, pairs, bank, order, total)  # before anything is computed: it may fork

    torch.manual_seed(config.seed)
    tower = QueryTower(config.dim, config.hidden, config.cell).to(device)
    optimizer = AdamW(list(tower.parameters()), config.weight_decay)
    updates = math.ceil(total / config.accum)
    fifo = FifoBank(config.memory_bank_size, config.dim, device) if config.memory_bank_size else None
    cache = checkpoint.open_cache(config, len(pairs), saved) if config.cache_l1_mb else None
    losses: list[float] = []  # of this epoch

    if saved:
        tower.load_state_dict(saved["tower"])
        optimizer.restore(saved["optimizer"])
        for parameter, gradient in zip(tower.parameters(), saved["gradients"], strict=True):
            parameter.grad = None if gradient is None else gradient.to(device)
        if fifo:
            fifo.restore(saved["fifo"])
        mining.restore(saved["mining"])
        losses = saved["losses"]
        checkpoint.set_random_state(device, saved["random"])
    history.stage("built", done)

    with contextlib.closing(Progress(total, done)) as progress, contextlib.closing(mining):
        for step, (rows, x, y) in enumerate(micro_batches(pairs, order, done + 1, total, config), start=done + 1):
            lr = cosine_lr((step - 1) // config.accum, updates, config.lr, config.lr_floor)
            if config.mining != "off" and mining.due(step):
                mining.refresh(step, tower)

            check_finite(step, {"X_train": x, "Y_train": y})
            x, y, own_rows = x.to(device), y.to(device), rows.to(device)
            if cache:
                offsets = torch.from_numpy(cache.get(rows.numpy())).to(device).requires_grad_()
                y = torch.nn.functional.normalize(y + offsets, dim=1)
            with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bf16"):
                queries = tower(x)
            queries = queries.float()
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
                fifo.push(y.detach(), own_rows)
            if cache:
                assert offsets.grad is not None
                cache.update(rows.numpy(), (offsets - config.cache_lr * config.accum * offsets.grad).detach().cpu().numpy())
                if step % config.cache_sync_every == 0:
                    cache.adapt()
                    cache.sync()

            if step % config.accum == 0 or step == total:
                check_finite(step, {f"the gradient of {name}": p.grad.norm() for name, p in tower.named_parameters() if p.grad is not None})
                if config.clip:
                    torch.nn.utils.clip_grad_norm_(tower.parameters(), config.clip)
                optimizer.step(lr)
            if config.clear_cache_every and step % config.clear_cache_every == 0:
                clear_cache(device)
            if config.synchronize_every and step % config.synchronize_every == 0:
                synchronize(device)

            losses.append(loss.item())
            progress.step(step, losses[-1], lr)
            if step == done + 1:
                history.stage("first step", step)
            if step % order.steps_per_epoch == 0 or step == total:
                epoch = math.ceil(step / order.steps_per_epoch)
                found = recall(tower, pairs, bank, config.val_queries) if config.val_queries else {}
                history.add(step, epoch, losses, found)
                history.stage(f"epoch {epoch}", step)
                losses.clear()
                if cache and (epoch % config.cache_summary_every == 0 or step == total):
                    print(cache.summary(), flush=True)
            if config.save_every and step % config.save_every == 0:
                state = {
                    "tower": tower.state_dict(),
                    "optimizer": optimizer.state(),
                    "gradients": [parameter.grad for parameter in tower.parameters()],
                    "fifo": fifo.state() if fifo else None,
                    "mining": mining.state(),
                    "losses": losses,
                    "random": checkpoint.random_state(device),
                }
                checkpoint.save(config, step, state, cache)
        if cache:
            cache.close()
    print("training finished", flush=True)


def micro_batches(pairs: Pairs, order: Order, first: int, total: int, config: TrainConfig) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """rows (bs,), x (bs, seq, dim), y (bs, dim) of steps `first` to `total`, epoch after epoch."""
    method = None if config.start_method == "default" or config.workers == 0 else config.start_method
    loader: torch.utils.data.DataLoader[Any] = torch.utils.data.DataLoader(
        pairs,  # type: ignore[arg-type]  # it has the two methods that are used
        sampler=order,
        batch_size=None,  # order gives whole micro-batches
        num_workers=config.workers,
        prefetch_factor=config.prefetch if config.workers else None,
        persistent_workers=config.workers > 0,
        multiprocessing_context=method,
    )
    while first <= total:
        order.first, order.last = first, min(total, math.ceil(first / order.steps_per_epoch) * order.steps_per_epoch)
        yield from loader
        first = order.last + 1


def check_finite(step: int, tensors: dict[str, Tensor]) -> None:
    """Raise TrainingError that names the step and the first tensor that holds NaN or infinity."""
    for name, tensor in tensors.items():
        if not bool((finite := torch.isfinite(tensor)).all()):
            kind = "NaN" if bool(tensor.isnan().any()) else "infinity"
            raise TrainingError(f"step {step}: {name} holds {kind} ({int((~finite).sum())} of {tensor.numel()} values are not finite)")
