"""Where benchmarks write: benchmarks/results/<name>.json, which the README's figures cite."""

from __future__ import annotations

import json
import platform
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).with_name("results")


def machine() -> dict[str, Any]:
    """The machine that figures were measured on."""
    return {
        "cpus": psutil.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "python": platform.python_version(),
        "system": platform.system(),
    }


def save(name: str, figures: dict[str, Any]) -> None:
    """Print the figures and keep them with the machine they were measured on."""
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"benchmark": name, "machine": machine(), **figures}, indent=1)
    (RESULTS / f"{name}.json").write_text(text + "\n")
    print(text)


def spread(seconds: Sequence[float]) -> dict[str, float]:
    """Median and quartiles in milliseconds."""
    low, middle, high = statistics.quantiles(seconds, n=4)
    return {"q1_ms": round(low * 1e3, 2), "median_ms": round(middle * 1e3, 2), "q3_ms": round(high * 1e3, 2)}
