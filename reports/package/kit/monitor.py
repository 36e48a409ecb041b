"""Run a program and write down how it ends: memory.csv, stdout.log, stderr.log and ending.json in a folder.

Python's standard library only, 3.8 or newer.  Memory is read from /proc where there is one, and from `ps` elsewhere.
    monitor.py --out FOLDER [--wall S] [--idle S] [--memory BYTES] -- PROGRAM [ARGUMENT...]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PERIOD_S = 0.1
PAGE = os.sysconf("SC_PAGE_SIZE")


def main() -> int:
    options = arguments()
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    program = [word for word in options.program if word != "--" or word is not options.program[0]]
    started = time.monotonic()
    with open(folder / "stdout.log", "wb") as out, open(folder / "stderr.log", "wb") as err:  # noqa: PTH123
        try:
            child = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
        except OSError as problem:
            print(f"monitor.py: {program[0]} cannot be started: {problem.strerror}", file=sys.stderr)
            return 127
        ended_by, peak = follow(child, folder, started, options)
    kill_session(child.pid)
    number = -child.returncode if child.returncode < 0 else 0
    ending = {
        "returncode": child.returncode,
        "signal": signal.Signals(number).name if number else None,
        "ended_by": ended_by,
        "wall_s": round(time.monotonic() - started, 3),
        "peak_tree_rss_bytes": peak,
        "oom_kills": oom_kills(),
    }
    (folder / "ending.json").write_text(json.dumps(ending, indent=1) + "\n", encoding="utf-8")
    return 128 + number if number else int(child.returncode)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="monitor.py", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", required=True, help="folder for what is written")
    parser.add_argument("--wall", type=float, default=3600.0, help="end it after so many seconds")
    parser.add_argument("--idle", type=float, default=0.0, help="end it after so many seconds without output; 0: never")
    parser.add_argument("--memory", type=int, default=0, help="end it when its processes hold more bytes than this; 0: no limit")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    return parser.parse_args()


def follow(child: subprocess.Popen[bytes], folder: Path, started: float, options: argparse.Namespace) -> tuple[str, int]:
    """Until it has ended; who ended it, and the most that its processes held."""
    peak, written, silent_since = 0, -1, started
    with open(folder / "memory.csv", "w", encoding="utf-8", errors="replace") as curve:  # noqa: PTH123
        curve.write("time,step,pid,role,rank,device,kind,bytes\n")
        while child.poll() is None:
            now = time.monotonic()
            held = {pid: entry[2] for pid, entry in tree_of(child.pid).items()}
            for pid, rss in sorted(held.items()):
                curve.write(f"{now - started:.3f},,{pid},{'main' if pid == child.pid else 'worker'},,host,rss,{rss}\n")
            peak = max(peak, sum(held.values()))
            size = sum((folder / name).stat().st_size for name in ("stdout.log", "stderr.log"))
            if size != written:
                written, silent_since = size, now
            if reason := overdue(now, started, silent_since, sum(held.values()), options):
                kill_session(child.pid)
                child.wait()
                return reason, peak
            time.sleep(PERIOD_S)
    return "itself", peak


def overdue(now: float, started: float, silent_since: float, held: int, options: argparse.Namespace) -> str | None:
    if options.memory and held > options.memory and not os.environ.get("REPLAY_GROUP"):
        return "memory_watchdog"
    if options.idle and now - silent_since > options.idle:
        return "idle"
    return "wall" if now - started > options.wall else None


def tree_of(root: int) -> dict[int, tuple[int, int, int]]:
    """The process, its descendants and everything in its session."""
    everything = from_proc() if Path("/proc/self/stat").exists() else from_ps()
    found = {pid for pid, (_, session, _) in everything.items() if pid == root or session == root}
    while more := {pid for pid, (parent, _, _) in everything.items() if parent in found} - found:
        found |= more
    return {pid: everything[pid] for pid in found if pid in everything}


def from_proc() -> dict[int, tuple[int, int, int]]:
    """pid -> parent, session, resident bytes."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                fields = Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                found[int(name)] = (int(fields[1]), int(fields[3]), int(fields[21]) * PAGE)
    return found


def from_ps() -> dict[int, tuple[int, int, int]]:
    asked = ["ps", "-A", "-o", "pid=,ppid=,sess=,rss="]
    listed = subprocess.run(asked, capture_output=True, text=True, errors="replace", check=False).stdout
    rows: list[list[str]] = [line.split() for line in listed.splitlines()]
    return {int(row[0]): (int(row[1]), int(row[2], 16), int(row[3]) * 1024) for row in rows if len(row) == 4}


def kill_session(root: int) -> None:
    """Everything that is left of it, until nothing is."""
    for _ in range(20):
        left = tree_of(root)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def oom_kills() -> int | None:
    """How often the kernel killed something in our memory group; None: there is none."""
    group = os.environ.get("REPLAY_GROUP")
    for name in ("memory.oom_control", "memory.events"):
        try:
            for line in Path(group or "/nonexistent", name).read_text(errors="replace").splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        except OSError:
            continue
    return None


if __name__ == "__main__":
    sys.exit(main())
