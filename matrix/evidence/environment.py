"""What the hook inside the child wrote: environment changes, forks, exits, and who is who."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matrix.evidence.hook_file import hook_records
from matrix.evidence.log import short_path
from matrix.records import EnvChange, ExitCall, ForkEvent

# As in the hook, which can import nothing from here: variables that runtimes read, but for what may be a secret.
VALUES = (
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "VECLIB_", "NUMEXPR_", "MALLOC_", "LD_", "DYLD_", "PYTHON",
    "CUDA_", "NCCL_", "TORCH_", "PYTORCH_", "ATEN_", "GLIBC_", "TBB_", "NPY_",
)  # fmt: skip
SECRETS = ("TOKEN", "SECRET", "KEY", "PASS", "AUTH", "CRED")
MINES = re.compile(r"(?:^|[\W_])min(?:e|er|ers|ing)(?:$|[\W_\d])", re.I)  # in the name of what a process was started to do
END = "interpreter end"  # the call of an ExitCall that only says that the interpreter came to its normal end


@dataclasses.dataclass(frozen=True, kw_only=True)
class HookProcess:
    """A Python process that announced itself."""

    pid: int
    ppid: int
    role: str  # main | worker | miner | other
    dump_signal: int | None  # dumps its stacks to stacks.<pid>.txt; None: it takes no such signal
    started_s: float  # since the start of the attempt


@dataclasses.dataclass(frozen=True, kw_only=True)
class LimitSet:
    """A limit that a process set for itself."""

    pid: int
    name: str  # as in Bound
    soft: int  # -1: unlimited
    hard: int
    time_s: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class HookFacts:
    env_changes: list[EnvChange] = dataclasses.field(default_factory=list)
    forks: list[ForkEvent] = dataclasses.field(default_factory=list)
    # A process without an entry here ended by a signal, or in native code that called exit().
    exit_calls: list[ExitCall] = dataclasses.field(default_factory=list)
    processes: dict[int, HookProcess] = dataclasses.field(default_factory=dict)
    limits: list[LimitSet] = dataclasses.field(default_factory=list)
    native_imports: dict[int, list[str]] = dataclasses.field(default_factory=dict)  # by pid, of those that came to their normal end


def read_hook(path: Path, started_unix_s: float) -> HookFacts:
    """The facts in a hook.jsonl; empty when there is none.  Lines that are not whole are left out."""
    facts = HookFacts()
    for record in hook_records(path):
        time_s = round(record["t"] - started_unix_s, 6)
        if record["kind"] == "hello":
            facts.processes[record["pid"]] = _process(record, time_s)
        elif record["kind"] == "env":
            facts.env_changes.append(_env_change(record, time_s))
        elif record["kind"] == "fork":
            facts.forks.append(_fork(record, time_s))
        elif record["kind"] == "exit":
            facts.exit_calls.append(_exit_call(record, time_s))
        elif record["kind"] == "rlimit":
            limit = LimitSet(pid=record["pid"], name=record["name"], soft=record["soft"], hard=record["hard"], time_s=time_s)
            facts.limits.append(limit)
        elif record["kind"] == "modules":
            facts.native_imports[record["pid"]] = record["native"]
        elif record["kind"] == "end":
            facts.exit_calls.append(ExitCall(pid=record["pid"], call=END, status="", where="", time_s=time_s))
    return facts


def _exit_call(record: dict[str, Any], time_s: float) -> ExitCall:
    return ExitCall(
        pid=record["pid"],
        call=record["call"],
        status=record["status"],
        where=_short(record["where"]),
        time_s=time_s,
        installed=record.get("installed"),
    )


def kept(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that runtimes read."""
    return {name: environment[name] for name in sorted(filter(_is_kept, environment))}


@functools.cache
def _is_kept(name: str) -> bool:
    upper = name.upper()
    return not any(word in upper for word in SECRETS) and (upper.startswith(VALUES) or upper.endswith("_THREADS"))


def packages(modules: list[str]) -> list[str]:
    """Their top-level packages, each once, in that order."""
    return list(dict.fromkeys(name.partition(".")[0] for name in modules))


def _process(record: dict[str, Any], time_s: float) -> HookProcess:
    role = "main" if record["main"] else "worker" if record["start"] == "fork" or record["helper"] == "spawn" else "other"
    if role == "worker" and MINES.search(record.get("task") or ""):
        role = "miner"
    return HookProcess(pid=record["pid"], ppid=record["ppid"], role=role, dump_signal=record["dump_signal"], started_s=time_s)


def _env_change(record: dict[str, Any], time_s: float) -> EnvChange:
    return EnvChange(pid=record["pid"], name=record["name"], value=record["value"], module=record["module"], time_s=time_s)


def _fork(record: dict[str, Any], time_s: float) -> ForkEvent:
    method, module, names = record["start_method"], record["module"], record.get("names") or []
    return ForkEvent(
        pid=record["pid"], threads_alive=record["threads"], start_method=method, time_s=time_s, module=module, thread_names=names
    )


def _short(where: str) -> str:
    """`/home/me/train.py:12 in f` as `train.py:12 in f`."""
    file, colon, rest = where.rpartition(":")
    return f"{short_path(file)}{colon}{rest}"
