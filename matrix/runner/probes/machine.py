"""What this machine and this user allow."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import psutil

from matrix.kernel_text import kernel_text

CAP_SYS_RESOURCE = 24
ROOT = Path(__file__).resolve().parents[3]  # the folder that holds our packages
TRY_A_MOUNT = """
import sys
sys.path.append({root!r})  # as the guardian does
from matrix.runner.starting import mount_private_copies
try:
    mount_private_copies([], [["/dev/shm", 1 << 20]])
except OSError as problem:
    sys.exit(str(problem))
"""


def own_status() -> dict[str, str]:
    """/proc/self/status; {} where there is none."""
    with contextlib.suppress(OSError):
        pairs = (line.partition(":") for line in kernel_text("/proc/self/status").splitlines())
        return {name: value.strip() for name, _, value in pairs}
    return {}


def may_raise_limits() -> bool:
    """Whether hard limits can be raised: CAP_SYS_RESOURCE, or root where there are no capabilities."""
    effective = own_status().get("CapEff")
    return bool(int(effective, 16) >> CAP_SYS_RESOURCE & 1) if effective else os.geteuid() == 0


def most_open_files() -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(kernel_text("/proc/sys/fs/nr_open"))
    return 10240  # OPEN_MAX of macOS


def memory_bytes() -> int:
    return int(psutil.virtual_memory().total)


def available_bytes() -> int:
    return int(psutil.virtual_memory().available)


def physical_cores(cpus: list[int]) -> int:
    """How many cores those processors are threads of; as many as there are processors where that is not known."""
    siblings = set()
    for cpu in cpus:
        path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        siblings.add(kernel_text(path) if path.exists() else str(cpu))
    return len(siblings)


@functools.cache
def malloc_debug_library() -> str | None:
    """The library for preloading that lies beside the C library in use; None: there is none."""
    with contextlib.suppress(OSError):
        for line in kernel_text("/proc/self/maps").splitlines():
            path = Path(line.split(maxsplit=5)[-1])
            if path.name.startswith(("libc.so.", "libc-2.")):
                found = path.with_name("libc_malloc_debug.so.0")
                return str(found) if found.exists() else None
    return None


@functools.cache
def why_no_mount() -> str:
    """Reason why a child cannot have a file system of its own; "" when a real mount succeeds."""
    if sys.platform != "linux":
        return f"{sys.platform} has no mount namespaces"
    code = TRY_A_MOUNT.format(root=str(ROOT))
    argv = [sys.executable, "-I", "-S", "-c", code]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.SubprocessError) as problem:
        return f"a mount could not be tried ({problem})"
    if done.returncode == 0:
        return ""
    last_line = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
    if "Traceback" in done.stderr:  # not refused: the trial itself is broken
        return f"a mount could not be tried ({last_line})"
    return f"needs root for a mount namespace ({last_line})"


def why_no_device(env: Mapping[str, str]) -> str:
    """Why the program has no CUDA device; "" when it has one."""
    if not any(Path("/dev").glob("nvidia[0-9]*")):
        return "there is no NVIDIA device here"
    return "CUDA_VISIBLE_DEVICES hides every device" if env.get("CUDA_VISIBLE_DEVICES") in ("", "-1") else ""
