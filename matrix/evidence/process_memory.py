"""What the kernel says about the memory of one living process, beyond its resident size.

`details` costs some 50 us.  `shares` walks every page table entry (72 ms for 6 GB in 4 KiB pages) and holds the
process' memory map meanwhile, so callers must ration it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import NamedTuple

import psutil

STATUS = {
    b"VmHWM": "hwm",
    b"RssAnon": "anon",
    b"RssFile": "file",
    b"RssShmem": "shmem",
    b"VmSwap": "swap",
    b"Threads": "threads",
}


RANKS = (b"RANK", b"SLURM_PROCID", b"OMPI_COMM_WORLD_RANK", b"PMIX_RANK", b"PMI_RANK", b"LOCAL_RANK")  # the first that is set counts


def details(pid: int) -> dict[str, int]:
    """hwm, anon, file, shmem, swap in bytes; threads, descriptors, minor_faults, major_faults as counts; {} when it is gone.

    What may not be read is left out (the descriptors of another user's process).
    """
    if sys.platform != "linux":
        return _details_psutil(pid)
    found: dict[str, int] = {}
    try:
        for line in _read(f"/proc/{pid}/status").split(b"\n"):
            name, _, value = line.partition(b":")
            if name in STATUS:
                found[STATUS[name]] = int(value.split()[0]) * (1024 if value.endswith(b"kB") else 1)
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        found["minor_faults"], found["major_faults"] = int(fields[7]), int(fields[9])
    except (OSError, ValueError, IndexError):
        return {}
    with contextlib.suppress(OSError):
        folder = f"/proc/{pid}/fd"  # its size is their number since Linux 6.2; pathlib would cost as much as the call
        found["descriptors"] = os.stat(folder).st_size or len(os.listdir(folder))  # noqa: PTH116, PTH208
    return found if "anon" in found else {}  # a zombie has none


def descriptor_limit(pid: int) -> int | None:
    """The soft limit on open descriptors; None: unlimited, or not to be read."""
    if sys.platform == "linux":
        import resource

        with contextlib.suppress(OSError):
            soft = resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]
            return None if soft == resource.RLIM_INFINITY else soft
    return None


class Shares(NamedTuple):
    """In bytes."""

    pss: int  # each shared page counted by its part
    uss: int  # ... and not at all
    huge: int | None  # of anonymous memory, in huge pages; None: not told here


def shares(pid: int) -> Shares | None:
    """None when it cannot be read."""
    if sys.platform != "linux":
        with contextlib.suppress(psutil.Error):
            uss = psutil.Process(pid).memory_full_info().uss
            return Shares(uss, uss, None)  # no PSS there: what is shared is left out
        return None
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = dict[bytes, int]()
        for line in _read(f"/proc/{pid}/smaps_rollup").split(b"\n")[1:]:
            name, _, value = line.partition(b":")
            if value:
                fields[name] = int(value.split()[0]) * 1024
        return Shares(fields[b"Pss"], fields[b"Private_Clean"] + fields[b"Private_Dirty"], fields.get(b"AnonHugePages"))
    return None


def statm(pid: int) -> bytes | None:
    """The first fields of Linux' statm where there is none, from psutil."""
    with contextlib.suppress(psutil.Error):
        memory = psutil.Process(pid).memory_info()
        page = os.sysconf("SC_PAGE_SIZE")
        return b"%d %d %d 0" % (memory.vms // page, memory.rss // page, getattr(memory, "shared", 0) // page)
    return None


def system_available() -> int:
    """Bytes that processes can still get without swapping."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(_read("/proc/meminfo").partition(b"MemAvailable:")[2].split()[0]) * 1024
    return int(psutil.virtual_memory().available)


def rank(pid: int) -> int | None:
    """RANK, or what a launcher sets in its place, in the environment at exec; None: not set, or set later by the program."""
    with contextlib.suppress(OSError, ValueError):
        words = dict(word.partition(b"=")[::2] for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"))
        return next((int(words[name]) for name in RANKS if name in words), None)
    return None


def free_bytes(pid: int, folder: str) -> int | None:
    """Free space for ordinary users where `folder` is, as the process sees it; None: there is no such folder."""
    for path in (f"/proc/{pid}/root{folder}", folder):  # its mount namespace may be its own
        with contextlib.suppress(OSError):
            space = os.statvfs(path)
            return space.f_bavail * space.f_frsize
    return None


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1 << 14)
    finally:
        os.close(descriptor)


def _details_psutil(pid: int) -> dict[str, int]:
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        with process.oneshot():
            memory = process.memory_info()
            return {
                "hwm": memory.rss,
                "anon": memory.rss,
                "threads": process.num_threads(),
                "descriptors": process.num_fds(),
                "minor_faults": getattr(memory, "pfaults", 0),
                "major_faults": getattr(memory, "pageins", 0),
            }
    return {}
