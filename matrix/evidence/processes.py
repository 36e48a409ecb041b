"""Autopsy of living processes: what each one waits for, whether it uses CPU, and where its Python code is."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import time
from itertools import takewhile
from pathlib import Path
from typing import Any

import psutil

from matrix.evidence.environment import MINES, read_hook
from matrix.evidence.load import runnable
from matrix.evidence.log import dumped_stacks, short_path
from matrix.evidence.process_memory import rank
from matrix.kernel_text import kernel_text
from matrix.records import ProcessSeen

PY_SPY_S = 10.0  # for one process; 0.2 s is usual, also with torch and native frames
DUMP_S = 2.0
STACKS_S = 40.0  # for all processes together
MAX_STACKS = 16
MAX_FRAMES = 120
SETTLES_S = 1.0
NO_OOM_KILLER = "mem_cgroup_oom"  # mem_cgroup_oom_synchronize, or what an older kernel calls it; mm/memcontrol.c
PF_KTHREAD = 0x00200000
RUNNABLE_LOOKS = 5  # within the window
NEIGHBOURS = re.compile(r"\b(?:faiss|hnswlib|annoy|scann|nmslib|usearch|pynndescent)\b", re.I)
PSUTIL_STATES = {"running": "R", "sleeping": "S", "disk-sleep": "D", "stopped": "T", "tracing-stop": "t", "zombie": "Z", "idle": "I"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Look:
    """One process at one moment."""

    ppid: int
    name: str
    state: str
    wchan: str
    threads: int
    cpu_s: float
    command: tuple[str, ...]


def autopsy(pids: set[int], window_s: float, *, pause: bool = True) -> list[ProcessSeen]:
    """Every process of `pids` that still lives, the main one first; takes `window_s` seconds and the time of the stacks.

    State and wchan are the main thread's, CPU is the whole process's: a hang that spins in another thread shows there.
    `stack` holds the main thread's frames, then other Python threads' behind a line `-- thread NAME`; native frames
    are among them where py-spy can read them.  Without py-spy the hook's dump signal is used, and only on
    processes that announced it and still handle it.  Nothing is killed.  Without `pause` no process is stopped for the moment
    that this takes, nor sent a signal: then there are Python frames only, which may be torn.
    """
    before = {pid: look for pid in pids if (look := _look(pid))}
    counts = {pid: list[int]() for pid in before}
    for _ in range(RUNNABLE_LOOKS):
        time.sleep(window_s / RUNNABLE_LOOKS)
        for pid in before:
            counts[pid].append(runnable(pid))
    after = {pid: look for pid in before if (look := _look(pid))}
    ranks = {pid: rank(pid) for pid in after}
    roles = {pid: _role(pid, after, ranks) for pid in after}
    order = sorted(after, key=lambda pid: (roles[pid] != "main", roles[pid] != "worker", pid))
    deadline = time.monotonic() + STACKS_S
    stops = {pid: pause and not waits_for_memory(after[pid].wchan) for pid in order}  # who waits there does not stop for anybody
    stacks = {pid: _stack(pid, pause=stops[pid]) for pid in order[:MAX_STACKS] if time.monotonic() < deadline}
    roles |= {pid: "miner" for pid, (stack, _) in stacks.items() if roles[pid] == "worker" and mines(stack)}
    return [
        ProcessSeen(
            pid=pid,
            ppid=after[pid].ppid,
            role=roles[pid],
            name=after[pid].name,
            state=after[pid].state,
            wchan=after[pid].wchan,
            threads=after[pid].threads,
            cpu_s=round(after[pid].cpu_s, 3),
            cpu_delta_s=round(max(0.0, after[pid].cpu_s - before[pid].cpu_s), 3),
            window_s=window_s,
            stack=stacks.get(pid, ([], None))[0],
            gil_holder=stacks.get(pid, ([], None))[1],
            rank=ranks[pid],
            runnable_threads=round(sum(counts[pid]) / len(counts[pid])) if sys.platform == "linux" else None,
        )
        for pid in order
    ]


def _look(pid: int) -> Look | None:
    if sys.platform != "linux":
        return _look_psutil(pid)
    process = Path(f"/proc/{pid}")
    try:
        head, _, rest = kernel_text(process / "stat").rpartition(")")
        command = tuple(kernel_text(process / "cmdline").split("\0")[:-1])
        fields = rest.split()
        state, ppid, threads = fields[0], int(fields[1]), int(fields[17])
        cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None
    return Look(ppid=ppid, name=head.partition("(")[2], state=state, wchan=_wchan(process), threads=threads, cpu_s=cpu_s, command=command)


def waits_for_memory(wchan: str) -> bool:
    """Whether it waits in the kernel until somebody makes room below the memory limit of its group, which has no OOM killer (version 1,
    memory.oom_control).  It is in state D."""
    return wchan.startswith(NO_OOM_KILLER)


def wchan_of(pid: int) -> str:
    """The kernel function in which its main thread sleeps; "": none, or unknown."""
    return _wchan(Path(f"/proc/{pid}"))


def _wchan(process: Path) -> str:
    with contextlib.suppress(OSError):
        name = kernel_text(process / "wchan")
        return "" if name == "0" else name
    return ""


def _look_psutil(pid: int) -> Look | None:
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return Look(
                ppid=process.ppid(),
                name=process.name(),
                state=PSUTIL_STATES.get(process.status(), "?"),
                wchan="",
                threads=process.num_threads(),
                cpu_s=times.user + times.system,
                command=tuple(process.cmdline()),
            )
    except psutil.Error:
        return None


def command(pid: int) -> list[str]:
    """The words that a process was started with; [] for one of the kernel's own, one that has ended, or one that keeps none.

    For a moment within an exec every process shows none, so what shows none is looked at again."""
    deadline = time.monotonic() + SETTLES_S
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        while not (words := process.cmdline()) and not _is_the_kernels(pid) and time.monotonic() < deadline:
            time.sleep(0.005)
        return words
    return []


def _is_the_kernels(pid: int) -> bool:
    """A thread of the kernel says so in its flags (proc(5), field 9 of stat)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return bool(int(kernel_text(f"/proc/{pid}/stat").rpartition(")")[2].split()[6]) & PF_KTHREAD)
    return False


def roles(pids: set[int]) -> dict[int, str]:
    """main, rank, worker or other for each of `pids` that can be told; all processes of the attempt must be among them.

    What a process is for shows beside its parent: once that has ended (also while it waits to be collected) nothing is said."""
    looks = {pid: look for pid in pids if (look := _look(pid))}
    ranks = {pid: rank(pid) for pid in looks}
    ended = {pid for pid, look in looks.items() if look.state in "ZX"}
    return {pid: _role(pid, looks, ranks) for pid, look in looks.items() if look.ppid not in ended}


LOADS = "_worker_loop"  # the main function of torch's DataLoader workers


def mines(stack: list[str]) -> bool:
    """Whether a worker's main thread is in a search for neighbours, or in code that calls itself mining."""
    main = list(takewhile(lambda frame: not frame.startswith("-- thread"), stack))
    if any(LOADS in frame for frame in main):
        return False  # whatever it looks up, it loads data
    return any(NEIGHBOURS.search(frame) or MINES.search(frame) for frame in main)


def _role(pid: int, looks: dict[int, Look], ranks: dict[int, int | None]) -> str:
    """main: its parent is none of ours (the oldest such one); rank: its parent gave it one; worker: multiprocessing's, or a copy
    of its parent."""
    roots = [each for each, look in looks.items() if look.ppid not in looks]
    look = looks[pid]
    if pid in roots:
        return "main" if pid == min(roots) else "other"
    if ranks[pid] is not None and ranks[pid] != ranks[look.ppid]:
        return "rank"
    spawned = any("multiprocessing.spawn import spawn_main" in word for word in look.command)
    return "worker" if spawned or look.command == looks[look.ppid].command else "other"


# ------------------------------------------------------------------ stacks
def _stack(pid: int, *, pause: bool) -> tuple[list[str], str | None]:
    """Frames, and the thread that holds the interpreter lock where that keeps others from running."""
    threads = _py_spy(pid, "--native") or _py_spy(pid) if pause else _py_spy(pid, "--nonblocking")
    if not threads:
        return _dump_by_signal(pid) if pause else [], None
    stacks = [(thread["thread_name"] or "?", [_frame(frame) for frame in thread["frames"]]) for thread in threads]
    return _joined(stacks), _gil_holder(threads)


def _gil_holder(threads: list[dict[str, Any]]) -> str | None:
    """A thread that holds the lock in native code: a healthy one gives it back before it waits."""
    for thread in threads:
        if thread.get("owns_gil") and len(threads) > 1 and thread["frames"] and not thread["frames"][0]["line"]:
            return str(thread["thread_name"] or thread["os_thread_id"])
    return None


def _py_spy(pid: int, *options: str) -> list[dict[str, Any]]:
    """Threads, the main one first; [] when py-spy is absent, may not read the process, or does not understand it."""
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    if program is None:
        return []
    argv = [program, "dump", "--json", *options, "--pid", str(pid)]
    try:
        threads: list[dict[str, Any]]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PY_SPY_S, check=True)
        threads = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    threads.sort(key=lambda thread: thread["os_thread_id"] != pid)
    return threads


def _frame(frame: dict[str, Any]) -> str:
    """`faiss/swigfaiss.py:12 in knn`, or `libgomp.so.1 in GOMP_parallel` for native code; addresses change and say nothing."""
    file = short_path(frame["filename"])
    if frame["line"]:
        return f"{file}:{frame['line']} in {frame['name']}"
    name = "?" if frame["name"].startswith("0x") else frame["name"]
    return f"{file.rpartition('/')[2]} in {name}"


def _dump_by_signal(pid: int) -> list[str]:
    """Ask the hook inside the process for its stacks."""
    folder = hook_folder(pid)
    announced = read_hook(folder / "hook.jsonl", 0.0).processes.get(pid) if folder else None
    if folder is None or announced is None or announced.dump_signal is None or not _handles(pid, announced.dump_signal):
        return []
    path = folder / f"stacks.{pid}.txt"
    try:
        start = path.stat().st_size
        os.kill(pid, announced.dump_signal)
    except OSError:
        return []
    return _joined([("MainThread" if at == 0 else "?", frames) for at, frames in enumerate(dumped_stacks(_appended(path, start)))])


def hook_folder(pid: int) -> Path | None:
    """Of the attempt that a process was started for; None: of none, or it may not be looked at."""
    with contextlib.suppress(OSError):
        for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if word.startswith(b"MATRIX_HOOK_DIR="):
                return Path(os.fsdecode(word.partition(b"=")[2]))
    return None


def _handles(pid: int, number: int) -> bool:
    """A process that announced the signal may have become another program by exec: it would die of it."""
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = kernel_text(f"/proc/{pid}/status").splitlines()
        caught = next(line for line in lines if line.startswith("SigCgt:"))
        return bool(int(caught.split()[1], 16) >> (number - 1) & 1)
    return False


def _appended(path: Path, start: int) -> str:
    """What is written behind `start`, once it stops growing; "" when a blocked process writes nothing."""
    deadline, size = time.monotonic() + DUMP_S, start
    while time.monotonic() < deadline:
        time.sleep(0.05)
        now = path.stat().st_size
        if now > start and now == size:
            break
        size = now
    with path.open("rb") as source:
        source.seek(start)
        return source.read().decode("utf-8", "replace")


def _joined(threads: list[tuple[str, list[str]]]) -> list[str]:
    """The first thread's frames, then the others', each behind a line with its name."""
    frames: list[str] = []
    for at, (name, stack) in enumerate(threads):
        frames += [f"-- thread {name}", *stack] if at else stack
    return frames[:MAX_FRAMES]
