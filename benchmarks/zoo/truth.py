"""What is true of each program: its cause, its axes, where it dies, and which single changes end that."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

Value = str | int | float
Cell = dict[str, Value]
COMMON: dict[str, list[Value]] = {"bs": [16, 32], "accum": [1, 4], "threads": [1, 2], "shuffle": [0, 1]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Truth:
    """`causes`: either is right when there are several; `dies`: of a cell."""

    program: str
    causes: tuple[str, ...]
    axes: dict[str, list[Value]]
    known_bad: Cell
    dies: Callable[[Any], bool]

    @property
    def every_axis(self) -> dict[str, list[Value]]:
        return {**{name: values for name, values in COMMON.items() if name not in self.axes}, **self.axes}

    @property
    def bad(self) -> Cell:
        common: Cell = {"bs": 32, "accum": 1, "threads": 2, "shuffle": 0}
        return {name: {**common, **self.known_bad}[name] for name in self.every_axis}

    @property
    def culprit(self) -> dict[str, list[Value]]:
        """Axes whose change alone, from the known-bad cell, ends the death, with the values that still die."""
        found = {}
        for axis, values in self.every_axis.items():
            fatal = [value for value in values if self.dies({**self.bad, axis: value})]
            if len(fatal) < len(values):
                found[axis] = fatal
        return found


TRUTHS = (
    Truth(
        program="tile_unit",
        causes=("illegal_instruction",),
        axes={"kernels": ["plain", "tuned"]},
        known_bad={"kernels": "tuned"},
        dies=lambda c: c["kernels"] == "tuned",
    ),
    Truth(
        program="rewritten_bank",
        causes=("file_changed_under_mmap",),
        axes={"refresh": ["off", "renamed", "in_place"]},
        known_bad={"refresh": "in_place"},
        dies=lambda c: c["refresh"] == "in_place",
    ),
    Truth(
        program="bad_shard",
        causes=("corrupt_input_data",),
        axes={"shard": ["a", "b"], "verify": [0, 1]},
        known_bad={"shard": "b", "verify": 0},
        dies=lambda c: c["shard"] == "b" and not c["verify"],
    ),
    Truth(
        program="accelerator",
        causes=("device_backend_fault",),
        axes={"device": ["cpu", "npu"], "accum": [1, 4, 8, 16]},
        known_bad={"device": "npu", "accum": 16},
        dies=lambda c: c["device"] == "npu" and c["accum"] >= 8,
    ),
    Truth(
        program="late_destructor",
        causes=("native_memory_corruption",),
        axes={"cleanup": ["program", "library"]},
        known_bad={"cleanup": "library"},
        dies=lambda c: c["cleanup"] == "library",
    ),
    Truth(
        program="ranks",
        causes=("native_bad_argument",),
        axes={"world": [1, 2], "negatives": [8, 9]},
        known_bad={"world": 2, "negatives": 9},
        dies=lambda c: c["world"] == 2 and c["negatives"] == 9,
    ),
    Truth(
        program="heartbeat",
        causes=("watchdog_or_time_limit",),
        axes={"heartbeat": [0.0, 1.0, 8.0], "validate": [0, 1]},
        known_bad={"heartbeat": 1.0, "validate": 1},
        dies=lambda c: c["heartbeat"] == 1.0 and c["validate"] == 1,
    ),
    Truth(
        program="shared_queue",
        causes=("native_thread_race",),
        axes={"prefetch": ["inline", "thread"]},
        known_bad={"prefetch": "thread"},
        dies=lambda c: c["prefetch"] == "thread",
    ),
    Truth(
        program="forked_pool",
        causes=("fork_unsafe",),
        axes={"start": ["fork", "spawn"], "workers": [0, 2]},
        known_bad={"start": "fork", "workers": 2, "threads": 2},
        dies=lambda c: c["start"] == "fork" and c["workers"] == 2 and c["threads"] == 2,
    ),
    Truth(
        program="padding",
        causes=("native_memory_corruption",),
        axes={"seq": [30, 32], "pad": [0, 1]},
        known_bad={"seq": 30, "pad": 1},
        dies=lambda c: c["seq"] == 30 and c["pad"] == 1,
    ),
    Truth(
        program="checkpoint_size",
        causes=("resource_limit",),
        axes={"history": ["last", "all"], "limit_mb": [0, 8]},
        known_bad={"history": "all", "limit_mb": 8, "bs": 32},
        dies=lambda c: c["history"] == "all" and c["limit_mb"] == 8,
    ),
    Truth(
        program="lost_symbol",
        causes=("binary_incompatibility",),
        axes={"build": ["old", "new"]},
        known_bad={"build": "new"},
        dies=lambda c: c["build"] == "new",
    ),
    Truth(
        program="slow_consumer",
        causes=("deadlock",),
        axes={"prefetch": [0, 4, 64], "reader": ["stays", "stops"]},
        known_bad={"prefetch": 4, "reader": "stops"},
        dies=lambda c: c["prefetch"] == 4 and c["reader"] == "stops",
    ),
    Truth(
        program="no_convergence",
        causes=("cpu_bound_stall",),
        axes={"tolerance": [0.0, 1e-9]},
        known_bad={"tolerance": 0.0},
        dies=lambda c: c["tolerance"] == 0.0,
    ),
    Truth(
        program="wrong_key",
        causes=("python_exception",),
        axes={"labels": ["dense", "sparse"]},
        known_bad={"labels": "sparse"},
        dies=lambda c: c["labels"] == "sparse",
    ),
    Truth(
        program="two_faults",
        causes=("native_bad_argument", "native_memory_corruption"),
        axes={"augment": [0, 1], "mining": [0, 1]},
        known_bad={"augment": 1, "mining": 1},
        dies=lambda c: c["augment"] == 1 or c["mining"] == 1,
    ),
    Truth(program="nothing_wrong", causes=("healthy",), axes={}, known_bad={}, dies=lambda c: False),
)
