"""The machine that a run folder was written on."""

from __future__ import annotations

import os
import platform

import psutil

import matrix
from matrix.records import Machine


def here() -> Machine:
    return Machine(
        system=platform.system(),
        kernel=platform.release(),
        machine=platform.machine(),
        cpus=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        python=platform.python_version(),
        tool_version=matrix.__version__,
    )
