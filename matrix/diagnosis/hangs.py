"""What a process that hangs waits for, in one word, from the facts of its autopsy."""

from __future__ import annotations

from collections.abc import Collection
from itertools import takewhile
from typing import Literal

from matrix.evidence.processes import waits_for_memory
from matrix.records import ForkEvent, Observation, ProcessSeen

HangClass = Literal[
    "spin",
    "lock that no thread holds after fork",
    "interpreter lock",
    "lock",
    "pipe or queue",
    "child",
    "sleep",
    "disk",
    "memory.high",
    "memory limit",
    "stopped",
    "unknown",
]
BUSY_SHARE = 0.2  # of one CPU in the window: a spinning process has to share its CPU with others
IDLE_SHARE = 0.03  # who used less only happened to be awake: a wait for the interpreter lock looks up every 5 ms
QUEUES = ("queue.py:", "multiprocessing/queues.py:", "multiprocessing/connection.py:", "selectors.py:")
PIPES = ("pipe_", "unix_stream_", "sk_wait", "tcp_", "inet_", "poll", "ep_", "do_select", "wait_woken")  # kernel functions
DISKS = ("io_schedule", "folio_wait", "wait_on_page", "blk_", "ext4_", "xfs_", "nfs_", "rpc_wait", "fuse_", "request_wait_answer", "jbd2_")
OVER_HIGH = "mem_cgroup_handle_over_high"  # holds up who allocates beyond memory.high of its cgroup; mm/memcontrol.c
VFORK = ("kernel_clone", "wait_for_vfork_done", "do_fork", "_do_fork")
GIL = ("take_gil", "PyEval_RestoreThread", "PyEval_AcquireThread")


def hang_class(process: ProcessSeen, threaded_forkers: Collection[int]) -> HangClass:
    """`threaded_forkers`: processes that forked while other threads were alive in them."""
    if process.state in ("T", "t"):
        return "stopped"
    if process.wchan in VFORK:  # state D too: until the child has become another program
        return "child"
    if OVER_HIGH in process.wchan:  # state D too, for up to 2 s at a time
        return "memory.high"
    if waits_for_memory(process.wchan):
        return "memory limit"
    if process.state == "D" or process.wchan.startswith(DISKS):
        return "disk"
    if _spins(process):
        return "spin"
    frames = first_thread(process)
    if process.gil_holder or any(name in frame for frame in frames[:4] for name in GIL):
        return "interpreter lock"
    if any(word in frame for frame in frames for word in QUEUES) or any(word in process.wchan for word in PIPES):
        return "pipe or queue"
    if "futex" in process.wchan or any("acquire_lock" in frame for frame in frames[:4]):
        return "lock that no thread holds after fork" if process.threads == 1 and process.ppid in threaded_forkers else "lock"
    return "child" if process.wchan in ("do_wait", "kernel_wait4") else "sleep" if "nanosleep" in process.wchan else "unknown"


def _spins(process: ProcessSeen) -> bool:
    share = process.cpu_delta_s / process.window_s if process.window_s else None  # None: not measured
    if process.state == "R":
        return share is None or share > IDLE_SHARE
    return share is not None and share > BUSY_SHARE


def first_thread(process: ProcessSeen) -> list[str]:
    """Frames of the thread that is listed first, innermost first: of a forked process the one that forked, which goes on alone."""
    return list(takewhile(lambda frame: not frame.startswith("-- thread"), process.stack))


def threaded_forks(observation: Observation) -> list[ForkEvent]:
    return [fork for fork in observation.forks if fork.threads_alive > 1]


def classes(observation: Observation) -> dict[int, HangClass]:
    """By pid, for every process that was alive when the attempt was ended."""
    forkers = {fork.pid for fork in threaded_forks(observation)}
    return {process.pid: hang_class(process, forkers) for process in observation.processes}
