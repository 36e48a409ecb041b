"""Checkpoints: written whole or not at all, read back with everything that the next step depends on."""

from __future__ import annotations

import dataclasses
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import torch

from trainer import InputError
from trainer.cache import EmbeddingCache, copy_file
from trainer.config import TrainConfig, flag

NAME = "checkpoint.pt"
OFFSETS = "offsets.f32"  # third tier of the trainable offsets
MAY_DIFFER = {
    *("pairs", "bank", "out", "save_every", "resume", "device", "clear_cache_every", "synchronize_every", "threads", "workers", "prefetch"),
    *("start_method", "chunk", "chunk_cache_mb", "warm_search", "mine_timeout", "query_batch", "val_queries", "epochs", "max_steps"),
    *("cache_l1_mb", "cache_l2_mb", "cache_sync_every", "cache_memory_limit", "cache_summary_every"),
}


def save(config: TrainConfig, step: int, state: dict[str, Any], cache: EmbeddingCache | None) -> None:
    """Replace the checkpoint; when that fails, say so and keep the one before.

    A run of days is not ended by a disk that is full for an hour.
    """
    path = config.out / NAME
    part = config.out / f"{NAME}.part"  # one name, so that a killed run leaves one such file at most
    offsets = config.out / f"offsets-{step}.f32"
    try:
        if cache:
            cache.snapshot(offsets)
        with part.open("wb") as sink:
            torch.save({**state, "step": step, "config": _plain(config), "offsets": offsets.name if cache else None}, sink)
            sink.flush()
            os.fsync(sink.fileno())
        part.replace(path)
        _sync_folder(config.out)
    except (OSError, RuntimeError) as error:  # RuntimeError: torch's writer does not pass the reason on
        part.unlink(missing_ok=True)
        offsets.unlink(missing_ok=True)
        said = f"no checkpoint could be written to {path} ({_reason(error)}); the one before is kept"
        print(f"step {step}: {said}", file=sys.stderr, flush=True)
        return
    for old in config.out.glob("offsets-*.f32"):
        if old != offsets:
            old.unlink()


def load(config: TrainConfig) -> dict[str, Any] | None:
    """What was saved; None when there is no checkpoint yet.  Raises InputError: it is damaged, or of another configuration."""
    path = config.out / NAME
    if not path.exists():
        print(f"no checkpoint in {config.out}: starting at the first step", flush=True)
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        was = state["config"]
    except (OSError, RuntimeError, EOFError, KeyError, pickle.UnpicklingError) as error:
        raise InputError(f"{path}: damaged or no checkpoint ({_reason(error)}); remove it to start at the first step") from error
    now = _plain(config)
    changed = [name for name in now if name not in MAY_DIFFER and was.get(name) != now[name]]
    if bool(was.get("cache_l1_mb")) != bool(config.cache_l1_mb):
        changed.append("cache_l1_mb")
    if changed:
        said = ", ".join(f"{flag(name)} {was.get(name)} (now {now[name]})" for name in changed)
        raise InputError(f"{path}: was made with {said}; give the same options, or another --out")
    print(f"going on after step {state['step']} of {path}", flush=True)
    return state


def open_cache(config: TrainConfig, rows: int, saved: dict[str, Any] | None) -> EmbeddingCache:
    """The offsets of a run: as they were at the checkpoint, else all zero."""
    path = config.out / OFFSETS
    for old in (path, path.with_suffix(".journal")):
        old.unlink(missing_ok=True)
    if saved:
        try:
            copy_file(config.out / saved["offsets"], path)
        except OSError as error:
            raise InputError(f"{config.out / saved['offsets']}: {error.strerror}; the checkpoint needs it") from error
    return EmbeddingCache(
        path, rows, config.dim, l1_mb=config.cache_l1_mb, l2_mb=config.cache_l2_mb, batch=config.bs, memory_limit=config.cache_memory_limit
    )


def random_state(device: torch.device) -> dict[str, Any]:
    module = torch.get_device_module(device)
    return {"cpu": torch.get_rng_state(), device.type: module.get_rng_state()} if device.type != "cpu" else {"cpu": torch.get_rng_state()}


def set_random_state(device: torch.device, state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type in state and device.type != "cpu":
        torch.get_device_module(device).set_rng_state(state[device.type])


def _plain(config: TrainConfig) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in dataclasses.asdict(config).items()}


def _sync_folder(folder: Path) -> None:
    """Else the new name may be lost with the machine."""
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _reason(error: Exception) -> str:
    return str(error.strerror or error) if isinstance(error, OSError) else (str(error).splitlines() or [type(error).__name__])[0]
