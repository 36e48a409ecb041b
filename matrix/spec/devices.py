"""Whether a device of an axis exists on this machine, asked of the operating system and not of a framework."""

from __future__ import annotations

import functools
import platform
import re
from pathlib import Path

_DEVICE = re.compile(r"(auto|cpu|cuda|gpu|hip|hpu|ipu|meta|mps|mtia|npu|tpu|vulkan|xla|xpu)(:\d+)?")
_TELLING = re.compile(r"cpu|mps|cuda(:\d+)?")


@functools.cache  # a search asks thousands of times
def is_device_axis(values: tuple[object, ...]) -> bool:
    """All values name devices, and at least one of them is cpu, mps or cuda."""
    names = [str(value) for value in values]
    return all(_DEVICE.fullmatch(name) for name in names) and any(_TELLING.fullmatch(name) for name in names)


@functools.cache
def why_unavailable(
    device: str, *, system: str = platform.system(), machine: str = platform.machine(), root: Path = Path("/")
) -> str | None:
    """Why a device cannot be used on this machine; None: it can, or that cannot be known from outside."""
    name, _, index = device.partition(":")
    if name == "mps" and (system, machine) != ("Darwin", "arm64"):
        return f"mps needs macOS on arm64; this is {system} on {machine}"
    if name != "cuda":
        return None
    if system == "Darwin":
        return "cuda needs an NVIDIA device; macOS has none"
    if any((root / node).exists() for node in ("dev/kfd", "dev/dxg")):  # ROCm calls its devices cuda too; WSL has one node for all
        return None
    cards = max(len(list((root / "dev").glob("nvidia[0-9]*"))), len(list((root / "proc/driver/nvidia/gpus").glob("*"))))
    if not cards:
        return "cuda needs an NVIDIA device node (/dev/nvidia0 or /proc/driver/nvidia/gpus); there is none"
    return f"there is no device {index}: {cards} found" if index and int(index) >= cards else None
