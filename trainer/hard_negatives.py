"""When hard negatives are mined, for which queries, in which band, and by whom."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trainer import schedule
from trainer.config import TrainConfig
from trainer.data import Floats, Order, Pairs, Rows
from trainer.miners import Miner, ProcessMiner, ThreadMiner
from trainer.mining import HardNegatives, Ids, mine
from trainer.model import QueryTower, encode


class Mining:
    """A schedule's next phase takes hold at the first refresh in its epochs."""

    def __init__(self, config: TrainConfig, pairs: Pairs, bank: Floats, order: Order, total: int) -> None:
        self.phases = schedule.parse(config.mining_schedule)
        self.config = dataclasses.replace(config, negatives=most_negatives(config))
        self.pairs, self.bank, self.order, self.total = pairs, bank, order, total
        self.mined = HardNegatives(len(pairs), self.config.negatives, config.mine_reuse or config.mine_every)
        self.now: TrainConfig | None = None  # as this phase mines; None: it does not
        self.asked: Rows | None = None  # what the miner is working on, or has answered
        self.answer: Ids | None = None  # ... and that answer, fetched early for a checkpoint
        ahead = config.mining in ("thread", "process")
        self.miner: Miner | None = self.start_miner() if ahead and not config.warm_search else None

    def start_miner(self) -> Miner:
        if self.config.mining == "thread":
            return ThreadMiner(self.bank, self.config)
        return ProcessMiner(self.config, self.config.mine_every * self.config.bs)

    def at(self, step: int) -> TrainConfig | None:
        """How to mine in the epoch of a step; None: not at all."""
        if not self.phases:
            return self.config
        epoch = math.ceil(step / self.order.steps_per_epoch)
        phase = next((phase for phase in self.phases if phase.first <= epoch <= phase.last), None)
        if phase is None or phase.negatives == 0:
            return None
        return dataclasses.replace(self.config, negatives=phase.negatives, band_low=phase.low, band_high=phase.high)

    def due(self, step: int) -> bool:
        return step >= self.config.mine_start and (step - self.config.mine_start) % self.config.mine_every == 0

    def refresh(self, step: int, tower: QueryTower) -> None:
        """Have negatives for the queries of the steps from `step` to the next refresh."""
        if self.at(step) != self.now:
            self.mined.forget()
            self.now = self.at(step)
        if self.config.mining == "sync":
            self.mine_here(step, tower)
            return
        if self.miner is None:
            if self.now:  # the warm search
                self.mine_here(step, tower)
            self.miner = self.start_miner()
        if self.asked is None:  # the first time, or the first of a phase after one without mining
            self.ask(step, tower)
        self.collect(step)
        self.ask(step + self.config.mine_every, tower)  # the miner works one window ahead

    def mine_here(self, step: int, tower: QueryTower) -> None:
        rows = self.needed(step)
        if len(rows) and self.now:
            queries = encode(tower, self.pairs.x_train[rows]).cpu().numpy()
            self.mined.put(rows, mine(self.bank, queries, self.pairs.y_train[rows], self.now), step)

    def ask(self, step: int, tower: QueryTower) -> None:
        rows, config = self.needed(step), self.at(step)
        if len(rows) and self.miner and config:
            self.miner.request(encode(tower, self.pairs.x_train[rows]).cpu().numpy(), self.pairs.y_train[rows], config)
            self.asked = rows

    def fetch(self) -> None:
        """Wait for the miner's answer, if one is due."""
        if self.asked is not None and self.answer is None and self.miner:
            self.answer = self.miner.collect()

    def collect(self, step: int) -> None:
        self.fetch()
        if self.asked is not None and self.answer is not None:
            self.mined.put(self.asked, self.answer, step)
        self.asked = self.answer = None

    def needed(self, step: int) -> Rows:
        """The training rows that the window from `step` on uses and that have no negatives for all of it."""
        last = min(self.total, step + self.config.mine_every - 1)
        window = self.order.window(step, last)
        return self.mined.stale(window, last) if self.at(step) == self.now else window

    def documents(self, rows: Rows, step: int) -> tuple[Tensor, Tensor] | None:
        """Hard negatives (n, k, dim) of the rows and which of them are there (n, k); None when none is."""
        ids = self.mined.get(rows, step)
        if self.config.hard_fraction < 1:  # the rest of the micro-batch goes without, drawn anew for each step
            without = np.random.default_rng([self.config.seed, step, 1]).permutation(len(rows))
            ids[without[math.ceil(self.config.hard_fraction * len(rows)) :]] = -1
        if (ids < 0).all():
            return None
        return torch.from_numpy(self.bank[ids.clip(0)]), torch.from_numpy(ids >= 0)

    def state(self) -> dict[str, Any]:
        """Everything that a resumed run needs; waits for the miner's answer, which is part of it."""
        self.fetch()
        arrays = {"ids": self.mined.ids, "expires": self.mined.expires, "asked": self.asked, "answer": self.answer}
        tensors = {name: None if array is None else torch.from_numpy(array) for name, array in arrays.items()}
        return {**tensors, "now": self.now and (self.now.negatives, self.now.band_low, self.now.band_high)}

    def restore(self, state: dict[str, Any]) -> None:
        self.mined.ids[:], self.mined.expires[:] = state["ids"].numpy(), state["expires"].numpy()
        self.asked, self.answer = (None if state[name] is None else state[name].numpy() for name in ("asked", "answer"))
        if state["now"]:
            negatives, low, high = state["now"]
            self.now = dataclasses.replace(self.config, negatives=negatives, band_low=low, band_high=high)
        if self.asked is not None and self.miner is None:
            self.miner = self.start_miner()

    def close(self) -> None:
        if self.miner:
            self.miner.close()


def most_negatives(config: TrainConfig) -> int:
    """Hard negatives of one query in the phase that has the most."""
    return max(1, max((phase.negatives for phase in schedule.parse(config.mining_schedule)), default=config.negatives))
