"""The memory of a process tree over time, cheap enough not to change what it measures.

Every sample reads /proc/PID/statm and the cgroup's usage with descriptors that stay open (2 us a process, four times as
much in a thread that has just been woken; psutil elsewhere).  Another process than the main one whose memory did not change
between two full samples is read at full samples only, until it does; its last figure stands for it meanwhile.  A full sample
is every fifth, and every tenth while nothing but the main process changes.  So it is with the dearer figures of such a process: they
are read at every fourth look.  The light samples between are taken by `wait`, in the place of the event loop's own waiting.
What costs more is read less often, and everything is paced by its own cost: a tree of hundreds of processes is sampled less
often, not at a higher price.  Rows go to memory.csv in long form, one figure a row, so that
a new kind needs no new format.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from itertools import repeat
from pathlib import Path

from matrix.evidence import process_memory
from matrix.evidence.processes import roles
from matrix.records import ProcessMemory
from matrix.runner.cgroup import Group
from matrix.runner.curve_file import CurveFile
from matrix.runner.held import Held

PAGE = os.sysconf("SC_PAGE_SIZE")
LINUX = Path("/proc/self").exists()
FAST_S, FAST_FOR_S = 0.01, 10.0  # 100 Hz while a program loads and takes its first steps, which is where most of its shape is
FULL_EVERY, FULL_AT_REST = 5, 10  # samples: all processes, not only those that change
LOOKS_AT_REST = 4  # looks: also at those that do not change
SIZES, STARTS = repeat(128), repeat(0)  # of all that is read at a sample: it is one line
SLOW_S = 0.05  # then 20 Hz: a death within a step is still seen, at a third of a percent of a core
FIRST_SHARES_S = 1.0  # a child that is gone by then is left alone
SAMPLE_COSTS, LOOK_COSTS, SHARES_COSTS = 66, 400, 100  # the next one no sooner than so many times its CPU: 1.5 %, 0.25 %, 1 % of a core
CHECK_COSTS = 10  # while RSS is above the limit that the watchdog guards
WALK_S = 25e-3 / (1 << 30)  # for each byte in 4 KiB pages on a busy machine; half of that on a quiet one
LARGEST_SHARES = 32 << 30  # a walk of more would stop this thread, which also drains the child's output, for half a second
WHY_TOO_LARGE = "a process is larger than 32 GiB, and reading its PSS would take half a second each time"
UNREAD = -1
SOON = 32  # processes, up to which a look is cheap
MOST_PROCESSES = 1000  # are remembered
MOST_REPORTED = 64
Poll = Callable[[float], list[tuple[int, int]]]  # milliseconds -> (descriptor, event)


class Pace:
    """When something may be done again: after `every_s`, or later when its CPU time times `costs` asks for that."""

    def __init__(self, costs: float, first_s: float = 0.0) -> None:
        self.next_s = first_s
        self._costs = costs

    def spent(self, now_s: float, every_s: float, cpu_s: float) -> None:
        self.next_s = now_s + max(every_s, self._costs * cpu_s)


class Sampler:
    """`folders` are watched for free space, by the name of the row; times are seconds since the attempt's start."""

    def __init__(self, path: Path, *, group: Group | None = None, folders: dict[str, str] | None = None) -> None:
        self.samples = 0
        self.next_s = 0.0  # when the next sample is due
        self.first_step_total: int | None = None
        self.last_total: int | None = None
        self.peak_total: int | None = None
        self.peak_pss: int | None = None
        self.peak_shmem: int | None = None  # charged to the group
        self.system_available: int | None = None
        self.least_free: dict[str, int] = {}
        self.too_large: set[int] = set()  # processes whose PSS was not read for their size
        self._main = 0
        self._folders = folders or {}
        self._group = group
        self._usage = _open_usage(group)
        self._open: dict[int, int] = {}  # pid -> descriptor of its statm
        self._held: dict[int, Held] = {}
        self._fresh: set[int] = set()  # their role is not certain yet
        self._step = ""
        self._least_s = 0.0  # between samples, by the last full one: to measure each would cost as much as to read two processes
        self._moving: list[int] = []  # those of them that are read at every sample
        self._light: list[int] = []  # their descriptors, and that of the usage
        self._lights = 0  # samples of those alone, until all are read again
        self._at_full: dict[int, bytes] = {}  # pid -> its statm at the last full sample
        self._latest: dict[int, bytes] = {}  # pid -> its last statm, but for what was read while waiting since
        self._raw: list[tuple[float, int | None, list[int], list[bytes]]] = []  # time, step, those read, their statm and the usage
        self._rows: dict[int, tuple[int, bytes, str, str]] = {}  # pid -> RSS, its statm, rows without time and step, as last settled
        self._joined: tuple[int, list[str]] | None = None  # RSS and rows of all of them; None: one has changed since
        self._looks = 0
        self._tree: dict[str, int] = {}  # figures of the whole tree as last written
        self._look, self._shares, self._check = Pace(LOOK_COSTS), Pace(SHARES_COSTS, FIRST_SHARES_S), Pace(CHECK_COSTS)
        self._pss: dict[int, int] = {}  # in the order in which they are read next
        self._file = CurveFile(path)

    # -------------------------------------------------------------- twice a second
    def look(self, now_s: float, pids: set[int], main: int) -> None:
        """The processes to sample from now on, and everything about them that is not worth a hundred readings a second."""
        self.settle()
        began = time.thread_time()
        self._main = main
        self._follow(now_s, pids)
        few = len(pids) <= SOON
        due = now_s >= self._look.next_s or (few and now_s < FAST_FOR_S)  # of a short attempt each look counts
        if due or few:  # a worker that dies early must have been told from a helper
            self._name_roles(pids)
        if due:
            all_of_them = self._looks % LOOKS_AT_REST == 0
            self._looks += 1
            rows = [row for pid in sorted(pids) if all_of_them or self._has_changed(pid) for row in self._details(now_s, pid)]
            self._file.write(rows + self._of_the_tree(now_s))
            self._look.spent(now_s, 0.0, time.thread_time() - began)
        self._file.flush()

    def _follow(self, now_s: float, pids: set[int]) -> None:
        for pid in set(self._open) - pids:
            self._drop(pid)
        for pid in (set(self._rows) | set(self._latest)) - pids:
            self._remove_rows(pid)
            self._latest.pop(pid, None)
        new = pids - set(self._pss)
        for pid in new:
            self._held[pid] = Held(first_s=now_s, last_s=now_s, prefix=f",{pid},other,,host,")
            with contextlib.suppress(OSError):
                self._open[pid] = os.open(f"/proc/{pid}/statm", os.O_RDONLY)
                self._lights = 0
        self._fresh |= new
        self._pss = {**dict.fromkeys(sorted(new), UNREAD), **{pid: pss for pid, pss in self._pss.items() if pid in pids}}
        self._forget(pids)

    def _name_roles(self, pids: set[int]) -> None:
        """Of new processes, twice: a forked child may be about to become another program."""
        if not self._fresh:
            return
        said = roles(pids)
        for pid in pids:
            held = self._held[pid]
            role = said.get(pid, held.role)
            held.role = "main" if pid == self._main else "other" if role == "main" else role
            held.rank = process_memory.rank(pid) if pid in self._fresh else held.rank
            held.prefix = f",{pid},{held.role},{'' if held.rank is None else held.rank},host,"
            if pid in self._rows:
                self._set_rows(pid, self._rows[pid][1])
        self._fresh = {pid for pid in self._fresh & pids if not self._held[pid].figures}

    def _has_changed(self, pid: int) -> bool:
        held = self._held[pid]  # one that was never looked at may be gone before the next look
        return pid == self._main or not held.figures or held.looked != self._latest.get(pid)

    def _details(self, now_s: float, pid: int) -> list[str]:
        held = self._held[pid]
        held.looked = self._latest.get(pid)
        found = process_memory.details(pid)
        held.peak = max(held.peak, found.get("hwm", 0))
        changed = {kind: value for kind, value in found.items() if held.figures.get(kind) != value}
        held.figures.update(changed)
        held.threads = max(held.threads, found.get("threads", 0))
        held.descriptors = max(held.descriptors, found.get("descriptors", 0))
        held.descriptor_limit = process_memory.descriptor_limit(pid)
        return [f"{now_s:.3f},{self._step}{held.prefix}{kind},{value}\n" for kind, value in changed.items()]

    def _of_the_tree(self, now_s: float) -> list[str]:
        self.system_available = process_memory.system_available()
        shmem = self._group.shmem_bytes() if self._group else None
        self.peak_shmem = max(shmem, self.peak_shmem or 0) if shmem is not None else self.peak_shmem
        cache = self._group.file_cache_bytes() if self._group else None
        found = {"available": self.system_available, "file_cache": cache, "group_shmem": shmem}
        for name, folder in self._folders.items():
            free = process_memory.free_bytes(self._main, folder)
            if free is not None:
                self.least_free[name] = min(free, self.least_free.get(name, free))
            found[f"{name}_free"] = free
        changed = {kind: value for kind, value in found.items() if value is not None and self._tree.get(kind) != value}
        self._tree.update(changed)
        return [f"{now_s:.3f},{self._step},,tree,,host,{kind},{value}\n" for kind, value in changed.items()]

    def _forget(self, alive: set[int]) -> None:
        """Of a program that forks for ever the smallest of those that are gone."""
        if len(self._held) > MOST_PROCESSES + len(alive):
            gone = sorted(set(self._held) - alive, key=lambda pid: self._held[pid].peak)
            for pid in gone[: MOST_PROCESSES // 2]:
                del self._held[pid]

    # -------------------------------------------------------------- up to a hundred times a second
    def wait(self, poll: Poll, began_s: float, until_s: float, step: int | None) -> list[tuple[int, int]]:
        """What `poll` (of milliseconds) tells, nothing when it is time for more than a light sample; the clock began at `began_s`.

        As little of Python as can be: a thread that has just been woken runs with cold caches, at several times the price of the same
        work in bulk."""
        clock, pread, keep = time.monotonic, os.pread, self._raw.append
        every_ms, moving, light = 1000 * self._every_s(clock() - began_s), self._moving, self._light
        ready = poll(max(0.0, 1000 * (min(self.next_s, until_s) + began_s - clock())))
        while not ready and self._lights and (now_s := clock() - began_s) < until_s:
            try:
                keep((now_s, step, moving, list(map(pread, light, SIZES, STARTS))))
            except OSError:
                self._lights = 0
                break
            self._lights -= 1
            self.next_s = now_s + every_ms / 1000
            ready = poll(min(every_ms, 1000 * (until_s - now_s)))  # of a large tree the next sample is far
        return ready

    def sample(self, now_s: float, step: int | None) -> None:
        """Only reads."""
        if not (self._lights and self._read_light(now_s, step)):
            self._read_all(now_s, step)
        self.next_s = now_s + self._every_s(now_s)
        if now_s >= self._shares.next_s and self._latest:
            self._read_shares(now_s)

    def _read_light(self, now_s: float, step: int | None) -> bool:
        """False when a process is gone: then all are read."""
        try:
            read = list(map(os.pread, self._light, SIZES, STARTS))
        except OSError:
            return False
        self._lights -= 1
        self._latest.update(zip(self._moving, read, strict=False))
        self._raw.append((now_s, step, self._moving, read))
        return True

    def _every_s(self, now_s: float) -> float:
        return max(FAST_S if now_s < FAST_FOR_S else SLOW_S, self._least_s)

    def settle(self) -> None:
        """Write the samples that were read since the last time, and count them."""
        for now_s, step, pids, read in self._raw:
            self._step = "" if step is None else str(step)
            for pid, statm in zip(pids, read, strict=False):
                if pid not in self._rows or self._rows[pid][1] != statm:
                    self._held[pid].last_s = now_s
                    self._set_rows(pid, statm)
            if self._rows:
                stamp = f"{now_s:.3f},{self._step}"
                total, rows = self._joined = self._joined or self._join()
                self._count(total, step)
                self._file.add(stamp.join(rows), len(rows) - 1)
                if self._usage is not None:
                    self._file.add(f"{stamp},,tree,,host,used,{int(read[-1])}\n", 1)
        for pid in self._rows if self._raw else ():
            self._held[pid].last_s = self._raw[-1][0]
        self._raw.clear()

    def _set_rows(self, pid: int, statm: bytes) -> None:
        rss, shared = _sizes(statm)
        held = self._held[pid]
        held.peak = max(held.peak, rss)
        if rss:
            self._rows[pid] = rss, statm, f"{held.prefix}rss,{rss}\n", f"{held.prefix}shared,{shared}\n"
            self._joined = None
        else:
            self._remove_rows(pid)

    def _remove_rows(self, pid: int) -> None:
        self._rows.pop(pid, None)
        self._joined = None

    def _join(self) -> tuple[int, list[str]]:
        """And a first one that is empty: the time and the step are put between them."""
        return sum(row[0] for row in self._rows.values()), ["", *(row for _, _, *both in self._rows.values() for row in both)]

    def exceeds(self, now_s: float, limit_bytes: int) -> bool:
        """Whether the tree holds more than that: by RSS, then, because forked processes share pages, by PSS where it can be read."""
        if sum(_sizes(statm)[0] for statm in self._latest.values()) <= limit_bytes or now_s < self._check.next_s:
            return False
        began = time.thread_time()
        held = [found.pss if (found := process_memory.shares(pid)) else _sizes(statm)[0] for pid, statm in self._latest.items()]
        self._check.spent(now_s, 0.0, time.thread_time() - began)
        return sum(held) > limit_bytes

    def _count(self, total: int, step: int | None) -> None:
        self.samples += 1
        self.last_total = total
        self.peak_total = max(total, self.peak_total or 0)
        if step is not None and self.first_step_total is None:
            self.first_step_total = total

    def _read_all(self, now_s: float, step: int | None) -> None:
        """Every process; and which of them are read, and how often, until the next full sample."""
        began = time.thread_time()
        read = self._read_open() if LINUX else {pid: statm for pid in self._pss if (statm := process_memory.statm(pid))}
        self._least_s = SAMPLE_COSTS * (time.thread_time() - began)
        usage = [] if self._usage is None else [self._usage]
        self._moving = [pid for pid, statm in read.items() if pid in self._open and (pid == self._main or statm != self._at_full.get(pid))]
        self._light = [*map(self._open.__getitem__, self._moving), *usage]
        self._lights = (FULL_AT_REST if self._moving == [self._main] else FULL_EVERY) - 1
        self._at_full = read
        self._latest.update(read)
        self._raw.append((now_s, step, list(read), [*read.values(), *(os.pread(descriptor, 128, 0) for descriptor in usage)]))

    def _read_open(self) -> dict[int, bytes]:
        """Nothing for one that is gone."""
        found = {}
        for pid, descriptor in list(self._open.items()):
            try:
                found[pid] = os.pread(descriptor, 128, 0)
            except OSError:
                self._drop(pid)
                found[pid] = b""
        return found

    def _drop(self, pid: int) -> None:
        os.close(self._open.pop(pid))
        self._lights = 0  # what is read at a light sample has changed

    def _read_shares(self, now_s: float) -> None:
        """PSS and USS of one process, the one whose turn it is: all of them at once would stop this thread for too long."""
        self.settle()  # rows stay in the order of time
        began = time.thread_time()
        pid = next(iter(self._pss), 0)
        held = self._held.get(pid)
        if held is None:
            return
        before = self._pss.pop(pid)
        self._pss[pid] = before  # to the end of the queue
        if held.peak > LARGEST_SHARES:
            self.too_large.add(pid)
        elif now_s >= SHARES_COSTS * WALK_S * held.peak and (found := process_memory.shares(pid)):  # the first one is rationed too
            self._pss[pid] = found.pss
            for kind, value in (("pss", found.pss), ("uss", found.uss)):
                held.figures[kind] = max(value, held.figures.get(kind, 0))
                self._file.write([f"{now_s:.3f},{self._step}{held.prefix}{kind},{value}\n"])
            if found.huge is not None:
                held.figures["huge"] = max(found.huge, held.figures.get("huge", 0))
        if min(self._pss.values()) != UNREAD:
            self.peak_pss = max(sum(self._pss.values()), self.peak_pss or 0)
        self._shares.spent(now_s, SLOW_S, time.thread_time() - began)

    # -------------------------------------------------------------- at the end
    def processes(self, main_maxrss: int | None) -> list[ProcessMemory]:
        """What each process held, the largest first.

        `main_maxrss` is the status' own figure for the main process; it is the largest child's when that was larger, so it
        counts only where there was no child.
        """
        main = self._held.get(self._main)
        if main and main_maxrss and len(self._held) == 1:
            main.peak = max(main.peak, main_maxrss)
        largest = sorted(self._held.items(), key=lambda item: -item[1].peak)
        return [held.record(pid) for pid, held in largest[:MOST_REPORTED] if held.peak]

    def close(self) -> None:
        self.settle()
        for descriptor in [*self._open.values(), *([] if self._usage is None else [self._usage])]:
            os.close(descriptor)
        self._open, self._usage = {}, None
        self._file.close()


def _sizes(statm: bytes) -> tuple[int, int]:
    """(RSS, shared part of it) in bytes; zeros for a process that has no memory any more."""
    fields = statm.split(b" ", 3)
    return (int(fields[1]) * PAGE, int(fields[2]) * PAGE) if len(fields) > 3 else (0, 0)


def _open_usage(group: Group | None) -> int | None:
    """What is charged to the group and to every group nested below it."""
    if group:
        with contextlib.suppress(OSError):
            return os.open(group.path / ("memory.current" if group.isolation == "cgroup-v2" else "memory.usage_in_bytes"), os.O_RDONLY)
    return None
