"""Attempts side by side on this machine: one supervising thread each, one guardian for all."""

from __future__ import annotations

import contextlib
import os
import py_compile
import queue
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import psutil

from matrix.evidence import runtimes
from matrix.records import Observation
from matrix.runner import attempt, cgroup
from matrix.runner.attempt import HOOK, Job, Live
from matrix.runner.launcher import GUARDIAN_MARK, SHORT_TEMP, Guardian
from matrix.runner.leftovers import mapped_by, recorded_pids, remove_shared_objects
from matrix.runner.tree import MARK, marked_processes, owner_is_dead

GUARDIAN_S = 30.0  # a guardian needs 20 s at most


class LocalPool:
    """At most `jobs` attempts at a time.  Closing it ends what still runs."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.running: dict[str, Live] = {}
        with contextlib.suppress(OSError):  # or every Python child compiles it (8 ms); where we were installed may be read-only
            py_compile.compile(str(HOOK / "sitecustomize.py"), quiet=2)
        self._guardian = Guardian()
        self._stop = threading.Event()
        self._done: queue.SimpleQueue[tuple[Job, Observation | BaseException]] = queue.SimpleQueue()
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="attempt")

    @property
    def guardian_pid(self) -> int:
        return self._guardian.process.pid

    @property
    def free(self) -> int:
        return self.jobs - len(self.running)

    def submit(self, job: Job) -> None:
        live = Live(attempt=job.attempt, started_monotonic=time.monotonic())
        self.running[job.attempt.id] = live
        self._threads.submit(self._run, job, live)

    def _run(self, job: Job, live: Live) -> None:
        try:
            result: Observation | BaseException = attempt.run(job, self._guardian, stop=self._stop, live=live)
        except BaseException as problem:  # handed to the caller's thread, which raises it
            result = problem
        self._done.put((job, result))

    def wait(self, timeout_s: float | None = None) -> Observation | None:
        """The next observation; None when none came in that time.  Raises what the supervisor raised."""
        try:
            job, result = self._done.get(timeout=timeout_s)
        except queue.Empty:
            return None
        del self.running[job.attempt.id]
        if isinstance(result, BaseException):
            raise result
        return result

    def interrupt(self) -> None:
        """End what runs; their observations say that they were interrupted."""
        self._stop.set()

    def close(self) -> None:
        self.interrupt()
        self._threads.shutdown(wait=True)
        self._guardian.close()

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def automatic_jobs(cpus: int | None, memory_bytes: int | None) -> int:
    """As many attempts as fit: `cpus` each (one when unset) and, where a limit is set, its memory."""
    by_cpu = (os.cpu_count() or 1) // (cpus or 1)
    around = cgroup.own_group()  # a container sees the whole machine's memory, and may use its own share
    left = around.memory_left() if around else None
    limits = [psutil.virtual_memory().available, *([] if left is None else [left])]
    by_memory = min(limits) // memory_bytes if memory_bytes else by_cpu
    return max(1, min(by_cpu, int(by_memory)))


def end_stopped_guardians() -> None:
    """Let guardians of dead tools go on, which a child may have stopped; kill one that does not come to its end."""
    for pid in marked_processes(f"{GUARDIAN_MARK}=mx-".encode()):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if owner_is_dead("mx", process.environ().get(GUARDIAN_MARK, "")):
                process.resume()
                end_of(process, patience_s=GUARDIAN_S)


def end_of(process: psutil.Process, *, patience_s: float) -> None:
    """Wait for its end, then kill.  Raises psutil.Error."""
    with contextlib.suppress(psutil.TimeoutExpired):
        process.wait(timeout=patience_s)
        return
    process.kill()


def clean_up_after_the_dead() -> None:
    """End and remove what a tool left behind that was killed together with its guardian.  To be called before anything is started."""
    end_stopped_guardians()
    pids, shared = set[int](), set[int]()
    for home in cgroup.homes():
        for folder in home.glob("mx-*"):
            if owner_is_dead("mx", folder.name):
                group = cgroup.Group(folder, "none")
                members = group.pids()
                pids |= members
                shared |= mapped_by(members)
                group.kill()
                group.remove()
    for pid in marked_processes(f"{MARK}=mx-".encode()):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if owner_is_dead("mx", process.environ().get(MARK, "")):
                shared |= mapped_by({pid})
                process.kill()
                process.wait(timeout=10)
                pids.add(pid)
    for folder in SHORT_TEMP.glob("mx-*"):
        with contextlib.suppress(OSError):  # its guardian, or another start of the tool, may just be removing it
            if owner_is_dead("mx", folder.name) and folder.stat().st_uid == os.getuid():
                pids |= recorded_pids(str(folder))
                shutil.rmtree(folder, ignore_errors=True)
    runtimes.remove_registrations(pids)
    remove_shared_objects(shared)
