"""Run a program and write down how it ends: memory.csv, stdout.log, stderr.log and ending.json in a folder.

Python's standard library only, 3.8 or newer.  Memory is read from /proc where there is one, and from `ps` elsewhere.
    monitor.py --out FOLDER [--wall S] [--idle S] [--memory BYTES] [--step PATTERN] -- PROGRAM [ARGUMENT...]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

PERIOD_S = 0.1
PAGE = os.sysconf("SC_PAGE_SIZE")
LARGEST_OUTPUT = 64 << 20  # bytes of an output that are searched
ANY_STEP = r"\b(?:global_?step|step|iteration|iter|batch)\b[\s:=#\[(]{0,4}(\d+)|\|\s*(\d+)/(?:\d+|\?) \["
TRACEBACK = re.compile(  # a launcher may write `[rank0]: ` before each line
    r"^(?P<before>(?:\[[^\]\n]{1,40}\]:? ?)?)(?:Original )?Traceback \(most recent call last\):\n"
    r"(?P<frames>(?:(?P=before)[ \t]+.*\n)+)(?P=before)(?P<type>[A-Za-z_][\w.]*)(?:: (?P<text>.*))?$",
    re.M,
)
FRAME = re.compile(r'File "(?:.*[/\\])?(?P<file>[^"]*)", line \d+, in (?P<function>.*)')
KILLED = re.compile(
    r"killed by signal: (?P<words>[A-Za-z ]+)|exit ?code *:? ?-(?P<number>\d+)"
    r"|exit ?code *:? ?(?P<status>\d{1,3})\b|<Signals\.(?P<name>SIG[A-Z]+)|by signal (?P<plain>SIG[A-Z]+)",
    re.I,
)
SPOKEN = (
    ("killed", "SIGKILL"),
    ("segmentation fault", "SIGSEGV"),
    ("aborted", "SIGABRT"),
    ("bus error", "SIGBUS"),
    ("terminated", "SIGTERM"),
)


def main() -> int:
    options = arguments()
    folder = Path(options.out)
    folder.mkdir(parents=True, exist_ok=True)
    program = [word for word in options.program if word != "--" or word is not options.program[0]]
    started = time.monotonic()
    with open(folder / "stdout.log", "wb") as out, open(folder / "stderr.log", "wb") as err:  # noqa: PTH123
        try:
            child = subprocess.Popen(
                program, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, preexec_fn=lambda: limit(options.limit)
            )
        except OSError as problem:
            print(f"monitor.py: {program[0]} cannot be started: {problem.strerror}", file=sys.stderr)
            return 127
        ended_by, peak, others = follow(child, folder, started, options)
    kill_session(child.pid)
    number = -child.returncode if child.returncode < 0 else 0
    said = output_of(folder)
    ending = {
        "returncode": child.returncode,
        "signal": signal.Signals(number).name if number else None,
        "ended_by": ended_by,
        "wall_s": round(time.monotonic() - started, 3),
        "peak_tree_rss_bytes": peak,
        "oom_kills": oom_kills(),
        "last_step": last_step(said, options.step),
        "exceptions": exceptions_in(said),
        "other_ends": sorted({*others, *endings_in(said)}),
    }
    (folder / "ending.json").write_text(json.dumps(ending, indent=1) + "\n", encoding="utf-8")
    return 128 + number if number else int(child.returncode)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="monitor.py", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", required=True, help="folder for what is written")
    parser.add_argument("--wall", type=float, default=3600.0, help="end it after so many seconds")
    parser.add_argument("--idle", type=float, default=0.0, help="end it after so many seconds without output; 0: never")
    parser.add_argument("--memory", type=int, default=0, help="end it when its processes hold more bytes than this; 0: no limit")
    parser.add_argument("--limit", action="append", default=[], metavar="NAME=VALUE", help="a limit of the kernel, as RLIMIT_NOFILE=256")
    parser.add_argument("--step", default=ANY_STEP, help="regular expression of a step in the output; its groups are the number")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    return parser.parse_args()


def limit(limits: list[str]) -> None:
    """In the child: set `NAME=VALUE`, or as much of it as this user may have."""
    for name, _, value in (pair.partition("=") for pair in limits):
        number, most = getattr(resource, name), resource.getrlimit(getattr(resource, name))[1]
        soft = int(value) if most == resource.RLIM_INFINITY else min(int(value), most)
        resource.setrlimit(number, (soft, soft + 1 if name == "RLIMIT_CPU" else soft))


# ------------------------------------------------------------------ reading the output
def output_of(folder: Path) -> str:
    """Both outputs, standard output first."""
    texts = []
    for name in ("stdout.log", "stderr.log"):
        if (folder / name).is_file():  # no pipe: reading one waits for ever
            with (folder / name).open("rb") as source:
                texts.append(source.read(LARGEST_OUTPUT).decode("utf-8", "replace").replace("\r", "\n"))
    return "\n".join(texts)


def last_step(text: str, pattern: str = ANY_STEP) -> int | None:
    """The highest step; None: none was printed."""
    found = (next(filter(None, step.groups()), None) for step in re.finditer(pattern, text, re.I))
    return max((int(number) for number in found if number), default=None)


def exceptions_in(text: str) -> dict[str, str]:
    """The exceptions of all tracebacks by `Type in function of file`, with what each says."""
    found = {}
    for traceback in TRACEBACK.finditer(text):
        frames = FRAME.findall(traceback["frames"])
        file, function = frames[-1] if frames else ("", "")
        found[f"{traceback['type'].rpartition('.')[2]} in {function.strip()} of {file}"] = (traceback["text"] or "")[:300]
    return found


def endings_in(text: str) -> list[str]:
    """Signals and statuses that the output says a process ended with, as a launcher writes them: `SIGKILL`, `exit 1`."""
    found = set()
    for killed in KILLED.finditer(text):
        words = (killed["words"] or "").strip().lower()
        name = killed["name"] or killed["plain"] or next((name for word, name in SPOKEN if words.startswith(word)), "")
        if killed["number"] and killed["number"] in {str(number.value) for number in signal.Signals}:
            name = signal.Signals(int(killed["number"])).name
        found.add(f"exit {killed['status']}" if killed["status"] else name.upper())
    return sorted(found - {""})


def follow(child: subprocess.Popen[bytes], folder: Path, started: float, options: argparse.Namespace) -> tuple[str, int, set[str]]:
    """Until it has ended; who ended it, the most that its processes held, and how other processes were seen to end."""
    peak, written, silent_since = 0, -1, started
    ends: set[str] = set()
    with open(folder / "memory.csv", "w", encoding="utf-8", errors="replace") as curve:  # noqa: PTH123
        curve.write("time,step,pid,role,rank,device,kind,bytes\n")
        while child.poll() is None:
            now = time.monotonic()
            held = {pid: entry[2] for pid, entry in tree_of(child.pid, ends).items()}
            for pid, rss in sorted(held.items()):
                curve.write(f"{now - started:.3f},,{pid},{'main' if pid == child.pid else 'worker'},,host,rss,{rss}\n")
            peak = max(peak, sum(held.values()))
            size = sum((folder / name).stat().st_size for name in ("stdout.log", "stderr.log"))
            if size != written:
                written, silent_since = size, now
            if reason := overdue(now, started, silent_since, sum(held.values()), options):
                kill_session(child.pid)
                child.wait()
                return reason, peak, ends
            time.sleep(PERIOD_S)
    return "itself", peak, ends


def overdue(now: float, started: float, silent_since: float, held: int, options: argparse.Namespace) -> str | None:
    if options.memory and held > options.memory and not os.environ.get("REPLAY_GROUP"):
        return "memory_watchdog"
    if options.idle and now - silent_since > options.idle:
        return "idle"
    return "wall" if now - started > options.wall else None


def tree_of(root: int, ends: set[str] | None = None) -> dict[int, tuple[int, int, int]]:
    """The process, its descendants and everything in its session; `ends` takes how those ended that nobody has waited for yet."""
    everything = from_proc(root, ends) if Path("/proc/self/stat").exists() else from_ps()
    found = {pid for pid, (_, session, _) in everything.items() if pid == root or session == root}
    while more := {pid for pid, (parent, _, _) in everything.items() if parent in found} - found:
        found |= more
    return {pid: everything[pid] for pid in found if pid in everything}


def from_proc(root: int, ends: set[str] | None) -> dict[int, tuple[int, int, int]]:
    """pid -> parent, session, resident bytes."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                fields = Path("/proc", name, "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] == "Z" and ends is not None and int(name) != root and int(fields[3]) == root:
                ends.add(end_of(int(fields[49])))
            if fields[0] != "Z":
                found[int(name)] = (int(fields[1]), int(fields[3]), int(fields[21]) * PAGE)
    return found


def end_of(status: int) -> str:
    """`SIGKILL`, or `exit 1`, of a wait status."""
    number = status & 0x7F
    return signal.Signals(number).name if number else f"exit {status >> 8}"


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
