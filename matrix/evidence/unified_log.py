"""macOS' unified log about our processes, by `log show`: kills for memory and crashes.  In place of the kernel log of Linux."""

from __future__ import annotations

import json
import re
import subprocess
import time

from matrix.evidence import crash_report
from matrix.evidence.digits import whole
from matrix.records import NotCollected

SHOW_S = 30.0
WORDS = ("memorystatus", "jetsam", "killing largest", "Corpse", "crash report", "exc handler", "EXC_", "Sandbox")
PREDICATE = '(process == "kernel" OR process == "ReportCrash" OR process == "osanalyticshelper") AND (' + " OR ".join(
    f'eventMessage CONTAINS[c] "{word}"' for word in WORDS
) + ")"  # fmt: skip
IDS = re.compile(r"\[(\d+)\]|\bpid[ :=]+(\d+)|\bprocess (\d+)\b")


class UnifiedLog:
    """Like `KernelLog`: the log from the moment this is made."""

    def __init__(self, *, wanted: bool = True) -> None:
        self._since_unix_s, self._since = time.time(), time.strftime("%Y-%m-%d %H:%M:%S")
        self._why = "" if wanted else "not asked for"

    def lines_for(self, pids: set[int]) -> tuple[list[str], NotCollected | None]:
        """Lines that name one of these processes, as "[time] text", and why they may be missing."""
        found = [] if self._why else lines_for(self._show(), pids) + self._of_jetsam(pids)
        return found, NotCollected(what="unified log", why=self._why) if self._why else None

    def close(self) -> None:
        """Nothing is kept open."""

    def _of_jetsam(self, pids: set[int]) -> list[str]:
        """From its reports, which outlive the log, in the words of the log."""
        killed = crash_report.killed_for_memory(self._since_unix_s)
        return [f"[report] memorystatus: killing process {pid} ({reason})" for pid, reason in killed.items() if pid in pids]

    def _show(self) -> str:
        argv = ["log", "show", "--style", "ndjson", "--start", self._since, "--predicate", PREDICATE]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=SHOW_S, check=True)
        except (OSError, subprocess.SubprocessError) as problem:
            self._why = f"log show: {problem}"
            return ""
        return done.stdout.decode("utf-8", "replace")


def lines_for(text: str, pids: set[int]) -> list[str]:
    """From the output of `log show --style ndjson`: one JSON object a line; lines that are none are left out."""
    found = []
    for line in text.splitlines():
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            continue
        message = event.get("eventMessage") if isinstance(event, dict) else None
        if isinstance(message, str) and any(whole("".join(groups)) in pids for groups in IDS.findall(message)):
            found.append(f"[{event.get('timestamp', '')}] {str(event.get('processImagePath', '')).rpartition('/')[2]}: {message}")
    return found
