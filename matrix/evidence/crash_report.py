"""Crash reports of macOS (`.ips`): a line of JSON about the report, then one JSON object about the process that died.

The form is Apple's ("Interpreting the JSON format of a crash report").  Jetsam's own reports have the same two parts and list
every process; the one that was killed has a reason.  Read here, never moved: they are the user's.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from matrix.evidence.log import short_path
from matrix.records import Fault, Frame, Trust

FOLDERS = (Path("~/Library/Logs/DiagnosticReports"), Path("/Library/Logs/DiagnosticReports"))
CRASH, JETSAM = "309", "298"  # bug_type
WAIT_S = 5.0  # the system writes a report a moment after the death
MAX_FRAMES, OTHERS, OTHER_FRAMES = 80, 16, 24  # as from a core
ADDRESS = re.compile(r"\bat (0x[0-9a-f]+)")
TRAPS = {
    "EXC_BAD_ACCESS": "segfault",
    "EXC_BAD_INSTRUCTION": "invalid opcode",
    "EXC_ARITHMETIC": "divide error",
    "EXC_BREAKPOINT": "breakpoint",
}
Body = dict[str, Any]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
    """What a crash report tells of one process; frames as from a core."""

    pid: int
    stack: list[Frame] = dataclasses.field(default_factory=list)
    others: list[list[Frame]] = dataclasses.field(default_factory=list)
    fault: Fault | None = None  # None: not by a fault of its own instructions
    said: list[str] = dataclasses.field(default_factory=list)  # what the libraries and the system noted: "abort() called"


def find(
    pids: Sequence[int], *, since_unix_s: float, folders: Iterable[Path] = FOLDERS, wait_s: float = WAIT_S
) -> tuple[Report, str] | None:
    """The newest report about one of `pids`, and its text; waits for it, because it is written after the death."""
    deadline = time.monotonic() + wait_s
    while True:
        for path in _newest(folders, since_unix_s):
            text = path.read_text(encoding="utf-8", errors="replace")
            report = parse(text)
            if report and report.pid in pids:
                return report, text
        if time.monotonic() >= deadline:
            return None
        time.sleep(0.2)


def parse(text: str) -> Report | None:
    """A report of a crash; None for anything else (other kinds of reports, a file that is not complete yet)."""
    body = _body(text, CRASH)
    if body is None or not isinstance(body.get("pid"), int):
        return None
    threads = [thread for thread in _list(body.get("threads")) if isinstance(thread, dict)]
    faulting = body.get("faultingThread")
    at = faulting if isinstance(faulting, int) and 0 <= faulting < len(threads) else None
    stacks = [[_frame(frame, _list(body.get("usedImages"))) for frame in _list(thread.get("frames"))] for thread in threads]
    crashed = stacks.pop(at) if at is not None else []
    return Report(
        pid=body["pid"],
        stack=crashed[:MAX_FRAMES],
        others=[stack[:OTHER_FRAMES] for stack in stacks[:OTHERS]],
        fault=_fault(body, threads[at] if at is not None else {}, crashed),
        said=[str(line) for lines in _dict(body.get("asi")).values() for line in _list(lines)],
    )


def killed_for_memory(since_unix_s: float, folders: Iterable[Path] = FOLDERS) -> dict[int, str]:
    """Reasons by pid, `per-process-limit` or `vm-pageshortage`, of the processes that jetsam ended since then, by its reports."""
    found: dict[int, str] = {}
    for path in _newest(folders, since_unix_s):
        found |= jetsam(path.read_text(encoding="utf-8", errors="replace"))
    return found


def jetsam(text: str) -> dict[int, str]:
    """Reasons by pid in one of its reports; {} for anything else."""
    processes = [_dict(one) for one in _list((_body(text, JETSAM) or {}).get("processes"))]
    return {one["pid"]: str(one["reason"]) for one in processes if "reason" in one and isinstance(one.get("pid"), int)}


def _newest(folders: Iterable[Path], since_unix_s: float) -> list[Path]:
    found: list[tuple[float, Path]] = []
    for folder in folders:
        for path in folder.expanduser().glob("*.ips"):
            try:
                found.append((path.stat().st_mtime, path))
            except OSError:
                continue
    return [path for when, path in sorted(found, reverse=True) if when >= since_unix_s]


def _body(text: str, kind: str) -> Body | None:
    head, _, rest = text.partition("\n")
    try:
        about, body = json.loads(head), json.loads(rest)
    except (ValueError, RecursionError):
        return None
    return body if isinstance(about, dict) and isinstance(body, dict) and str(about.get("bug_type")) == kind else None


def _frame(frame: Any, images: list[Any]) -> Frame:
    frame = _dict(frame)
    index = frame.get("imageIndex")
    image = _dict(images[index]) if isinstance(index, int) and 0 <= index < len(images) else {}
    library = str(image.get("name") or str(image.get("path") or "").rpartition("/")[2])
    name = str(frame.get("symbol") or "")
    place = f"{short_path(str(frame['sourceFile']))}:{frame.get('sourceLine', 0)}" if frame.get("sourceFile") else ""
    trust: Trust = "symbol" if name else "library" if library else "none"
    return Frame(function=name, library=library, place=place, kind="native", trust=trust)


def _whole_number(value: object) -> int:
    """Return a number of the report; 0 where the report has something else there."""
    return value if isinstance(value, int) else 0


def _fault(body: Body, thread: Body, stack: list[Frame]) -> Fault | None:
    exception, state = _dict(body.get("exception")), _dict(thread.get("threadState"))
    trap = TRAPS.get(str(exception.get("type")))
    if trap is None:
        return None
    subtype = str(exception.get("subtype") or "")
    found = ADDRESS.search(subtype)
    address = int(found[1], 16) if found else _register(state, "far")
    ip, sp = (
        next((value for name in names if (value := _register(state, name)) is not None), None) for names in (("pc", "rip"), ("sp", "rsp"))
    )
    memory = trap == "segfault"
    return Fault(
        source="crash report",
        tid=_whole_number(thread.get("id")) or _whole_number(body["pid"]),
        trap="bus error" if memory and exception.get("signal") == "SIGBUS" else trap,
        address=address if memory else None,
        ip=ip,
        sp=sp,
        access=_access(str(_dict(state.get("esr")).get("description") or _dict(state.get("err")).get("description") or ""))
        if memory
        else None,
        library=stack[0].library if stack else "",
        mapping="no access" if "KERN_PROTECTION_FAILURE" in subtype else "nothing" if "KERN_INVALID_ADDRESS" in subtype else "",
        stack_distance_bytes=address - sp if memory and address is not None and sp is not None else None,
    )


def _access(description: str) -> Literal["read", "write", "execute"] | None:
    """From "(Data Abort) byte write Translation fault"."""
    if "Instruction Abort" in description:
        return "execute"
    return "write" if "write" in description else "read" if "read" in description else None


def _register(state: Body, name: str) -> int | None:
    value = _dict(state.get(name)).get("value")
    return value if isinstance(value, int) else None


def _dict(value: Any) -> Body:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
