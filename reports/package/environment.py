"""Facts about the machine and about the diagnosed program's interpreter, each with how long it took to get, or why it is missing."""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from matrix.records import Attempt, Machine

# Variables that change how native libraries behave; of all others only the name is kept.
TECHNICAL = re.compile(
    r"(?:OMP|KMP|GOMP|MKL|OPENBLAS|BLIS|VECLIB|NUMEXPR|NUMBA|NPY|CUDA|CUBLAS|CUDNN|NCCL|TORCH|PYTORCH|ATEN|TF|XLA|JAX|HIP|ROCM|MALLOC|PYTHON"
    r"|LD|DYLD|SLURM_(?:JOB_ID|NTASKS|CPUS|MEM|GPUS|STEP)|OMPI|PMI|UCX|GLOO|FI|TOKENIZERS|LANG|LC|TZ)(?:_\w+)?|PYTHON\w*|PATH|TMPDIR|SHELL|TERM"
)
_PACKAGES = (
    "import importlib.metadata as m, json, platform, re, sys, sysconfig; "
    "tops = lambda d: (d.read_text('top_level.txt') or re.sub(r'[-.]', '_', d.metadata['Name'] or '')).split(); "
    "print(json.dumps({'modules': {top: (d.metadata['Name'] or '?') + '==' + d.version for d in m.distributions() for top in tops(d)}, "
    "'version': sys.version, 'implementation': platform.python_implementation(), 'prefix': sys.prefix, "
    "'base_prefix': sys.base_prefix, 'platform': sysconfig.get_platform(), 'libc': ' '.join(platform.libc_ver()), "
    "'packages': sorted({(d.metadata['Name'] or '?') + '==' + d.version for d in m.distributions()}, key=str.lower)}))"
)
_GROUP_FILES = (
    "memory.max",
    "memory.high",
    "memory.swap.max",
    "cpu.max",
    "pids.max",
    "memory.limit_in_bytes",
    "cpu.cfs_quota_us",
    "pids.max",
)
_KERNEL_FILES = (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/pid_max",
    "/proc/sys/kernel/threads-max",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/vm/overcommit_memory",
    "/proc/sys/vm/max_map_count",
    "/sys/kernel/mm/transparent_hugepage/enabled",
)


def collect(machine: Machine | None, attempt: Attempt | None, environment: Mapping[str, str]) -> list[dict[str, Any]]:
    """One entry for each collector: name, status, duration_s, and value or why.

    When this is not the machine of the run, only what the plan kept of that one is told."""
    sections: list[tuple[str, Callable[[], Any]]] = [("recorded with the run", lambda: vars(machine) if machine else None)]
    if machine is None or is_same(machine):
        sections += [
            ("operating system", _system),
            ("processor", _processor),
            ("memory", _memory),
            ("kernel", lambda: {path: _text(path) for path in _KERNEL_FILES if _text(path) is not None}),
            ("limits", _limits),
            ("cgroup", _cgroup),
            ("environment variables", lambda: _variables(environment)),
        ]
    else:
        sections.append(("machine", lambda: _fail("this package was made on another machine than the run, so nothing was read here")))
    sections.append(("interpreter", lambda: interpreter(attempt)))
    return [_timed(name, what) for name, what in sections]


def is_same(machine: Machine) -> bool:
    here = (platform.system(), platform.release(), platform.machine())
    return here == (machine.system, machine.kernel, machine.machine)


def _timed(name: str, what: Callable[[], Any]) -> dict[str, Any]:
    began = time.monotonic()
    try:
        result: dict[str, Any] = {"status": "collected", "value": what()}
        if result["value"] is None:
            result = {"status": "not collected", "why": "it was not recorded"}
    except (OSError, ValueError, subprocess.SubprocessError) as problem:
        result = {"status": "not collected", "why": " ".join(str(problem).split())[:300]}
    return {"name": name, "duration_s": round(time.monotonic() - began, 3), **result}


def _fail(why: str) -> None:
    raise ValueError(why)


def _system() -> dict[str, Any]:
    release = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', _text("/etc/os-release") or "", re.MULTILINE))
    name = release.get("PRETTY_NAME") or platform.platform()
    return {"name": name, "kernel": platform.release(), "machine": platform.machine(), "libc": " ".join(platform.libc_ver())}


def _processor() -> dict[str, Any]:
    text = _text("/proc/cpuinfo") or ""
    found = dict(re.findall(r"^(model name|flags|microcode|Features)\s*:\s*(.*)$", text, re.MULTILINE))
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    return {
        "model": found.get("model name"),
        "processors": os.cpu_count(),
        "usable": usable,
        "flags": found.get("flags") or found.get("Features"),
    }


def _memory() -> dict[str, Any]:
    text = _text("/proc/meminfo")
    if text is None:
        return {"total_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")}
    found = {name: int(amount) * 1024 for name, amount in re.findall(r"^(MemTotal|SwapTotal|Hugepagesize):\s+(\d+) kB", text, re.MULTILINE)}
    shm = os.statvfs("/dev/shm")
    return {**found, "dev_shm_bytes": shm.f_frsize * shm.f_blocks}


def _limits() -> dict[str, Any]:
    names = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    return {name: ["unlimited" if value < 0 else value for value in resource.getrlimit(getattr(resource, name))] for name in names}


def _cgroup() -> dict[str, Any]:
    """Limits of our own group; its path is left out, for it names users, jobs and containers."""
    text = _text("/proc/self/cgroup")
    if text is None:
        raise ValueError("this system has no cgroups")
    roots = []
    for line in text.splitlines():
        _, controllers, path = line.split(":", 2)
        folder = Path("/sys/fs/cgroup", controllers if controllers else "")
        roots += [Path(f"{folder}{path}"), folder]
    found: dict[str, str] = {}
    for root in roots:
        for name in _GROUP_FILES:
            if (value := _text(str(root / name))) is not None:
                found.setdefault(name, value)
    return {"version": 2 if "\n0::" in f"\n{text}" and text.count("\n") == 1 else 1, **found}


def _variables(environment: Mapping[str, str]) -> dict[str, Any]:
    technical = {name: value for name, value in sorted(environment.items()) if TECHNICAL.fullmatch(name)}
    return {"technical": technical, "other names": sorted(set(environment) - set(technical))}


def interpreter(attempt: Attempt | None) -> dict[str, Any]:
    """Version and packages, asked of the interpreter itself; nothing of what is installed is imported."""
    if attempt is None:
        raise ValueError("there is no attempt whose interpreter could be asked")
    program = attempt.argv[0]
    if not re.search(r"(?:python|pypy)[\d.]*$", program):
        raise ValueError(f"the command starts {Path(program).name}, which is no Python interpreter")
    asked = subprocess.run(
        [program, "-c", _PACKAGES],
        cwd="/",
        capture_output=True,
        text=True,
        errors="replace",
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if asked.returncode:
        raise ValueError(f"the interpreter ended with status {asked.returncode}: {asked.stderr.strip()[-200:]}")
    facts: dict[str, Any] = json.loads(asked.stdout)
    return facts


def _text(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
