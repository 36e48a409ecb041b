"""The devices that torch computes on here, and what people do to them between steps."""

from __future__ import annotations

import warnings

import torch

from trainer import InputError


def open_device(name: str) -> torch.device:
    """Raises InputError when this machine, or this build of torch, has no such device."""
    reason = _why_absent(name)
    if reason:
        raise InputError(f"--device {name}: torch {torch.__version__} {reason}; --device cpu always works")
    return torch.device(name)


def _why_absent(name: str) -> str | None:
    try:
        device = torch.device(name)
        module = torch.get_device_module(device)
    except (RuntimeError, AttributeError):
        return "knows no such device here; cuda, mps and backends that are registered with it may be had"
    if device.type == "mps" and not torch.backends.mps.is_available():
        return "sees no MPS device here (only Macs have one)"
    if not module.is_available():
        return f"sees no {device.type.upper()} device here"
    if device.index is not None and device.index >= module.device_count():
        return f"sees {module.device_count()} devices of this kind, which are counted from 0"
    return None


def without_onednn_lstm() -> None:
    """oneDNN takes an LSTM in bfloat16 and then fails ("could not create a primitive descriptor", torch 2.13, AVX-512 without AMX).

    For the whole process; torch's own LSTM takes its place.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch deprecates a flag that this call passes on
        torch.backends.mkldnn.set_flags(False)  # type: ignore[no-untyped-call]


def clear_cache(device: torch.device) -> None:
    """Give memory that torch keeps for reuse back to the device; a CPU has no such cache."""
    module = torch.get_device_module(device)
    if hasattr(module, "empty_cache"):
        module.empty_cache()


def synchronize(device: torch.device) -> None:
    """Wait until everything that was asked of the device is done; a CPU is never behind."""
    module = torch.get_device_module(device)
    if device.type != "cpu":
        module.synchronize()
