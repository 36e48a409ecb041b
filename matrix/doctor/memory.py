"""Memory: who limits it, who kills for it, and who was killed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from matrix.doctor.finding import NotSeen, Seen, check
from matrix.doctor.place import Place, size
from matrix.evidence.kernel import history
from matrix.kernel_text import kernel_text
from matrix.runner import cgroup

GIB = 1 << 30
LEAST, LEAST_WITH_TORCH = 64 << 20, 300 << 20  # numpy and pandas alone; importing torch and faiss took 230 MB
DAEMONS = {
    "earlyoom": "SIGTERM, then SIGKILL",
    "systemd-oomd": "SIGKILL to a whole cgroup",
    "nohang": "SIGTERM, then SIGKILL",
    "oomd": "SIGKILL",
}
# "python[12]: segfault at 8 ip … in libfoo.so[…]", "traps: python[12] trap invalid opcode ip:… in libfoo.so[…]"
FAULT = re.compile(
    r"(?:traps: )?(?P<program>\S+)\[\d+\]:? (?P<what>segfault|general protection|trap [a-z ]+(?= ip:))\b.*? in (?P<where>[^\[\s]+)"
)
KILLED = re.compile(r"[Kk]illed process \d+ \((?P<program>[^)]*)\)")


def meminfo(place: Place) -> dict[str, int]:
    """Bytes by name.  Raises NotSeen."""
    fields = (line.split() for line in place.text("/proc/meminfo").splitlines())
    return {words[0].rstrip(":"): int(words[1]) * (1024 if words[2:] == ["kB"] else 1) for words in fields if len(words) > 1}


def _group() -> cgroup.Group:
    group = cgroup.own_group()
    if group is None:
        raise NotSeen("no memory cgroup of this process is mounted here")
    return group


def _linux(place: Place) -> None:
    if place.system != "linux":
        raise NotSeen(f"{place.system} has none, or tells it another way")


@check(
    id="memory-limit",
    group="memory",
    fine="no cgroup limit below the machine's memory that can be seen from here",
    causes="SIGKILL by the kernel when the group's processes together pass it: no traceback, exit 137, and DataLoader workers die first; "
    "free, top and psutil show the whole machine",
    unproven="that the job needs more",
    by_hand="cat /sys/fs/cgroup/memory.max (v2) or memory/memory.limit_in_bytes (v1), and memory.current",
    remedy="size workers and caches by this figure, not by the machine's; count workers x (cache + buffers)",
    references=("https://docs.kernel.org/admin-guide/cgroup-v2.html#memory", "measured: the kernel's counter and log name the process"),
)
def memory_limit(place: Place) -> Iterator[Seen]:
    """error: not enough is left to import what is installed."""
    _linux(place)
    group, total = _group(), meminfo(place)["MemTotal"]
    limit, slowed = group.memory_limit(), group.slowed_from()
    if slowed is not None and slowed < min(limit or total, total):
        summary = f"from {size(slowed)} on (memory.high) all processes of this group are held up until memory is given back: it looks hung"
        yield Seen(severity="warning", summary=summary, evidence=(str(group.path),))
    if limit is None or limit >= total:
        return
    left = group.memory_left()
    if left is None:
        raise NotSeen(f"{group.path} does not say how much of its limit is used")
    least = LEAST_WITH_TORCH if place.python.installed("torch") else LEAST
    summary = f"{size(limit)} for all processes of this group, of the machine's {size(total)}; {size(left)} are left"
    yield Seen(severity="error" if left < least else "warning", summary=summary, evidence=(str(group.path), f"{left:,} bytes left"))


@check(
    id="killed-before",
    group="memory",
    fine="the kernel has killed nothing for memory",
    causes="the same again, when the same job runs under the same limit",
    unproven="that it was your job; the machine's counter is of all groups since it started",
    by_hand="grep oom_kill /proc/vmstat; dmesg | grep -i 'killed process'; oom_kill in the group's memory.events or memory.oom_control",
    remedy="raise the limit or use less memory before the next run; `dmesg` names the processes",
    references=("https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files",),
)
def killed_before(place: Place) -> Iterator[Seen]:
    """error: in this very group, and it has a limit."""
    _linux(place)
    group = cgroup.own_group()
    own = (group.own_oom_kills() or 0) if group else 0
    found = re.search(r"^oom_kill (\d+)$", place.text("/proc/vmstat"), re.M)
    machine = int(found[1]) if found else 0
    lines, _ = history()
    killed = Counter(match["program"] for line in lines if (match := KILLED.search(line)))
    evidence = tuple(f"{program}: {count} in the kernel log" for program, count in killed.most_common(3))
    if own and group:
        limited = (group.memory_limit() or 1 << 62) < meminfo(place)["MemTotal"]
        yield Seen(
            severity="error" if limited else "warning",
            summary=f"{own:,} processes of this very group were killed for memory",
            evidence=(str(group.path), *evidence),
        )
    elif machine:
        names = f", of what the log still holds: {', '.join(f'{n} {c}x' for n, c in killed.most_common(3))}" if killed else ""
        summary = f"{machine:,} processes were killed for memory since this machine started{names}"
        yield Seen(severity="info", summary=summary, evidence=evidence)


@check(
    id="crashed-before",
    group="tools",
    fine="the kernel log tells of no crashed Python",
    causes="the same library crashing again",
    unproven="that it was your job, or that the library is to blame: it is where it crashed",
    by_hand="dmesg | grep -E 'segfault|trap|general protection'",
    remedy="`matrix run` on the job that crashed there",
    references=("https://docs.kernel.org/admin-guide/abi-testing.html",),
)
def crashed_before(place: Place) -> Iterator[Seen]:
    _linux(place)
    lines, why = history()
    if why:
        raise NotSeen(why)
    faults = [match for line in lines if (match := FAULT.search(line)) and match["program"].startswith(("python", "pt_", "ray"))]
    if faults:
        most = Counter((match["where"], match["what"]) for match in faults).most_common(3)
        places = ", ".join(f"{where} {count}x ({what})" for (where, what), count in most)
        yield Seen(severity="info", summary=f"{len(faults)} crashes of Python in the kernel log: {places}")


@check(
    id="memory-free",
    group="memory",
    fine="memory is free",
    causes="the kernel's OOM killer, or a machine that swaps and looks hung",
    unproven="what the job needs",
    by_hand="free -h",
    remedy="end what else holds memory, or wait",
)
def memory_free(place: Place) -> Iterator[Seen]:
    memory = meminfo(place)
    free, total = memory["MemAvailable"], memory["MemTotal"]
    if free < max(GIB, total // 10):
        yield Seen(severity="warning", summary=f"{size(free)} of {size(total)} are available")


@check(
    id="swap",
    group="memory",
    fine="swap is there and little used",
    causes="without swap a short peak is death at once; with much of it in use every step waits for the disk, and idle detection "
    "calls it a hang",
    unproven="that memory runs out",
    by_hand="swapon --show; vmstat 1",
    remedy="none needed without swap, but know that nothing softens a peak; with much in use end what holds memory",
    references=("https://docs.kernel.org/admin-guide/mm/concepts.html",),
)
def swap(place: Place) -> Iterator[Seen]:
    memory = meminfo(place)
    total, free = memory.get("SwapTotal", 0), memory.get("SwapFree", 0)
    if not total:
        yield Seen(severity="info", summary="no swap: a peak above the memory kills at once")
    elif free < total // 2:
        yield Seen(severity="warning", summary=f"{size(total - free)} of {size(total)} swap are in use")


@check(
    id="overcommit",
    group="memory",
    fine="the kernel promises more memory than there is",
    causes='"Cannot allocate memory" at a fork of a large process, or when a large array is made, while memory is free',
    unproven="that your program asks for so much",
    by_hand="cat /proc/sys/vm/overcommit_memory; grep Commit /proc/meminfo",
    remedy="sysctl vm.overcommit_memory=0, or spawn instead of fork",
    references=("https://docs.kernel.org/mm/overcommit-accounting.html",),
)
def overcommit(place: Place) -> Iterator[Seen]:
    if place.number("/proc/sys/vm/overcommit_memory") == 2:
        memory = meminfo(place)
        left = memory["CommitLimit"] - memory["Committed_AS"]
        summary = f"overcommit is off (vm.overcommit_memory=2); {size(max(left, 0))} of {size(memory['CommitLimit'])} can still be promised"
        yield Seen(severity="warning", summary=summary)


@check(
    id="oom-daemon",
    group="memory",
    fine="no OOM daemon that can be seen from here",
    causes="a kill before the kernel's limit is reached, which no kernel counter or log line shows; the daemon's own log does",
    unproven="that it picks your job; from within a container the host's daemons are not seen at all",
    by_hand="ps -e | grep -E 'oomd|earlyoom|nohang'; journalctl -u systemd-oomd -u earlyoom",
    remedy="exempt the job (earlyoom --avoid, ManagedOOMPreference=avoid), or know where to look",
    references=("https://man7.org/linux/man-pages/man8/systemd-oomd.8.html", "https://github.com/rfjakob/earlyoom"),
)
def daemon(place: Place) -> Iterator[Seen]:
    _linux(place)
    found = {}
    for folder in (place.root / "proc").iterdir():
        if folder.name.isdecimal():
            try:
                name = kernel_text(folder / "comm").strip()
            except OSError:
                continue
            if name in DAEMONS:
                found[name] = folder.name
    for name, pid in sorted(found.items()):
        yield Seen(severity="warning", summary=f"{name} runs (pid {pid}) and ends processes by {DAEMONS[name]}")


@check(
    id="oom-score",
    group="memory",
    fine="this process is no preferred victim",
    causes="the kernel kills this job before others that use more",
    unproven="that memory runs out",
    by_hand="cat /proc/self/oom_score_adj",
    remedy="choom -n 0 -- COMMAND (needs privileges to go down); in Kubernetes give requests equal to limits (Guaranteed)",
    references=("https://man7.org/linux/man-pages/man5/proc_pid_oom_score_adj.5.html",),
)
def score(place: Place) -> Iterator[Seen]:
    adjusted = place.number("/proc/self/oom_score_adj")
    if adjusted > 0:
        yield Seen(severity="warning" if adjusted >= 500 else "info", summary=f"oom_score_adj is {adjusted} and is inherited")


@check(
    id="panic-on-oom",
    group="memory",
    fine="running out of memory does not stop the machine",
    causes="the whole machine restarts when memory runs out, and every trace of the job is gone",
    unproven="that memory runs out",
    by_hand="cat /proc/sys/vm/panic_on_oom",
    remedy="sysctl vm.panic_on_oom=0",
    references=("https://docs.kernel.org/admin-guide/sysctl/vm.html#panic-on-oom",),
)
def panic(place: Place) -> Iterator[Seen]:
    if place.number("/proc/sys/vm/panic_on_oom"):
        yield Seen(severity="warning", summary="vm.panic_on_oom is set")


@check(
    id="huge-pages",
    group="memory",
    fine="huge pages only where programs ask for them",
    causes="resident memory that is larger than on other machines and falls later; a page written after a fork copies 2 MiB",
    unproven="that it matters here",
    by_hand="cat /sys/kernel/mm/transparent_hugepage/enabled; grep AnonHuge /proc/PID/smaps_rollup",
    remedy="echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, to compare",
    references=("https://docs.kernel.org/admin-guide/mm/transhuge.html",),
)
def huge_pages(place: Place) -> Iterator[Seen]:
    if "[always]" in place.text("/sys/kernel/mm/transparent_hugepage/enabled"):
        yield Seen(severity="info", summary="transparent huge pages are always used")
