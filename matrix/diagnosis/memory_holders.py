"""Who held the memory: the workers of a pool, or pages that are larger than what was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from matrix.diagnosis.case import Case
from matrix.diagnosis.cause import finding
from matrix.diagnosis.memory_causes import ALLOCATOR, MEMORY_FILES, NEIGHBOUR, RETENTION, WORKERS, WORKING_SET
from matrix.diagnosis.memory_form import FEW, HALF, RARER, size, too_short
from matrix.evidence.deaths import initiating
from matrix.records import Death, Finding, Observation, ProcessMemory

MOST = 0.5  # of the tree's memory in its workers
ALONE = 0.6  # of what all workers held, in one of several: that worker grew, and no copies were made


def by_workers(death: Observation) -> Iterator[Finding]:
    processes = death.memory.processes
    if not processes:
        return
    workers = _pool(processes)
    if not workers:
        if too_short(death) or _unread_deaths(death):
            return
        yield finding(WORKERS, "workers", death, -4.0, "there was no worker process", "memory.csv")
        return
    if any(map(_unread, workers)):  # gone before the first look: they held nobody knows how much
        return
    held, whole = _held_by(workers, processes, death.memory.peak_group_bytes)
    of_its_own = "" if workers[0].role == "worker" else ", programs of their own,"
    fact = f"{len(workers)} worker process{'es' if len(workers) > 1 else ''}{of_its_own} held {size(held)} of {size(whole)}"
    weight = 2.5 if held > MOST * whole and len(workers) > 1 else -2.0 if held < FEW * whole else 0.0
    if weight > 0 and (alone := _one_of_them(death, workers, held)):
        yield finding(WORKERS, "workers", death, -2.5, alone, "memory.csv")
        return
    if weight:
        yield finding(WORKERS, "workers", death, weight, fact, "memory.csv")
    if weight > 0:  # what grew, or was large, was not one process
        for cause in (RETENTION, ALLOCATOR, WORKING_SET):
            yield finding(cause, "workers", death, -1.5, fact, "memory.csv")


def _one_of_them(death: Observation, workers: list[ProcessMemory], held: int) -> str | None:
    """Say that one of several workers held most of what all of them held; None: they held about as much as each other."""
    largest = max(workers, key=_own)
    share = max(_own(largest), largest.anon_bytes)
    if share <= ALONE * max(held, share):
        return None
    died = initiating(death.deaths)
    its_end = ", which died first" if died and died.pid == largest.pid else ""
    return f"one of {len(workers)} workers held {size(share)} of the {size(max(held, share))} that all of them held{its_end}: no copies"


def _held_by(workers: list[ProcessMemory], processes: list[ProcessMemory], counted: int | None) -> tuple[int, int]:
    """What these workers held, and the whole tree.  Where forked pages are counted once for every process that has them, it is at most
    what all of them were charged with together, less what the others have."""
    held, whole = sum(map(_own, workers)), sum(map(_own, processes))
    if not counted or whole <= counted or all(worker.uss_bytes is not None for worker in workers):
        return held, whole
    mine = {worker.pid for worker in workers}
    others = sum(max(_own(process), process.anon_bytes) for process in processes if process.pid not in mine)
    return min(held, max(0, counted - others)), counted


def _unread(process: ProcessMemory) -> bool:
    """Whether only its size was seen, and not what of it is its own."""
    return process.uss_bytes is None and not process.anon_bytes + process.file_bytes + process.shmem_bytes


def _own(process: ProcessMemory) -> int:
    """What would be free without it: pages of its own, else anonymous ones."""
    return process.anon_bytes + process.shmem_bytes if process.uss_bytes is None else max(process.uss_bytes, 0)


def _pool(processes: list[ProcessMemory], *, least: int = 2) -> list[ProcessMemory]:
    """The workers; where there are none, several helpers that are programs of their own and hold about as much as each other: whoever
    starts one for each core or file has a pool, also without multiprocessing."""
    workers = [process for process in processes if process.role == "worker"]
    helpers = [process for process in processes if process.role == "other"]
    largest = max(map(_own, helpers), default=0)
    alike = [process for process in helpers if largest and _own(process) >= HALF * largest]
    large = sum(map(_own, alike)) >= FEW * sum(map(_own, processes))
    return workers or (alike if large and _at_once(alike) >= least else [])


def worker_count(observation: Observation, *, least: int = 2) -> int:
    """Most workers at one time, and those whose deaths alone are known.  `least`: of programs of their own; one alone is none, but what
    is left of a pool."""
    pool = _pool(observation.memory.processes, least=least)
    began = initiating(observation.deaths)
    if began and began.time_s is not None:  # a pool starts another worker in the place of one that died
        pool = [worker for worker in pool if worker.first_s <= began.time_s] or pool
    return _at_once(pool) + len(_unread_deaths(observation))


def _unread_deaths(observation: Observation) -> list[Death]:
    """Workers that were gone before anybody read what they held."""
    read = {process.pid for process in observation.memory.processes}
    return [death for death in observation.deaths if death.role == "worker" and death.pid not in read]


def _at_once(workers: list[ProcessMemory]) -> int:
    return max((sum(each.first_s <= other.last_s and other.first_s <= each.last_s for other in workers) for each in workers), default=0)


def who_held(death: Observation) -> tuple[str, str]:
    """Return who held most of the memory and of which kind, in words, and the form of the cause that this shows; ("", ""): unknown."""
    memory = death.memory
    counted = memory.peak_group_bytes or memory.peak_tree_pss_bytes or memory.peak_tree_rss_bytes or 0
    files = (memory.peak_group_shmem_bytes or 0) - max((process.shmem_bytes for process in memory.processes), default=0)
    if counted and files >= HALF * counted:
        return f"{size(files)} of it were files in memory file systems (/dev/shm, tmpfs), which no process had mapped", MEMORY_FILES
    largest = max(memory.processes, key=_held_alone, default=None)
    if largest is None or _held_alone(largest) < HALF * counted:
        return "", ""
    stranger = largest.role == "other" and not _pool(memory.processes)
    held = f"{_kind_of(largest)} of {_called(largest)} made up {size(_held_alone(largest))} of it"
    return held, NEIGHBOUR if stranger else ""


def _held_alone(process: ProcessMemory) -> int:
    return max(_own(process), process.anon_bytes + process.shmem_bytes)


def _kind_of(process: ProcessMemory) -> str:
    return "shared memory" if process.shmem_bytes > process.anon_bytes else "anonymous memory"


def _called(process: ProcessMemory) -> str:
    """Return what people call a process: a rank by its rank."""
    if process.rank is not None:
        return f"rank {process.rank} (pid {process.pid})"
    names = {"main": "the main process", "other": "another process beside it"}
    return f"{names.get(process.role, process.role)} (pid {process.pid})"


def huge_pages(death: Observation) -> Iterator[Finding]:
    """Dense data lies in huge pages as well: that they hold the memory is no evidence, but reason enough to ask what it is without them."""
    if held := _in_huge_pages(death):
        huge, whole = held
        fact = f"{size(huge)} of the {size(whole)} that one process held were huge pages: who touches a byte of one has all of it"
        yield finding(ALLOCATOR, "huge pages", death, RARER, fact)


def of_huge_pages(case: Case) -> bool:
    """Whether that is so in half of the deaths, or more."""
    of_huge = sum(_in_huge_pages(death) is not None for death in case.deaths)
    return of_huge > 0 and 2 * of_huge >= len(case.deaths)


def _in_huge_pages(death: Observation) -> tuple[int, int] | None:
    """(bytes in huge pages, bytes) of the largest process, when most of what it had for itself lay in huge pages."""
    largest = max(death.memory.processes, key=_own, default=None)
    if largest is None or not largest.uss_bytes or (largest.huge_bytes or 0) <= HALF * largest.uss_bytes:
        return None
    return largest.huge_bytes or 0, largest.uss_bytes
