"""macOS' reports and log, on files made by hand from the documented forms: none of this was ever run on a Mac."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from matrix.evidence import cores, crash, crash_report, unified_log
from matrix.evidence.deaths import OOM

HEAD = {
    "app_name": "python3.11",
    "timestamp": "2026-03-07 15:50:00.00 -0800",
    "bug_type": "309",
    "os_version": "macOS 15.2 (24C101)",
    "name": "python3.11",
    "incident_id": "0A1B",
}
BODY: dict[str, Any] = {
    "uptime": 5000,
    "version": 2,
    "pid": 1234,
    "cpuType": "ARM-64",
    "procName": "python3.11",
    "procPath": "/Users/USER/*/python3.11",
    "parentProc": "python3.11",
    "parentPid": 1200,
    "exception": {
        "codes": "0x0000000000000001, 0x000000016f5ffff0",
        "rawCodes": [1, 6163529712],
        "type": "EXC_BAD_ACCESS",
        "signal": "SIGSEGV",
        "subtype": "KERN_PROTECTION_FAILURE at 0x000000016f5ffff0",
    },
    "termination": {"flags": 0, "code": 11, "namespace": "SIGNAL", "indicator": "Segmentation fault: 11", "byProc": "exc handler"},
    "asi": {"libsystem_c.dylib": ["abort() called"]},
    "faultingThread": 1,
    "threads": [
        {
            "id": 90,
            "queue": "com.apple.main-thread",
            "frames": [{"imageOffset": 4, "symbol": "__psynch_cvwait", "symbolLocation": 8, "imageIndex": 0}],
        },
        {
            "triggered": True,
            "id": 91,
            "name": "worker",
            "threadState": {
                "flavor": "ARM_THREAD_STATE64",
                "pc": {"value": 4302004224},
                "sp": {"value": 6163529728},
                "far": {"value": 6163529712},
                "esr": {"value": 2449473607, "description": "(Data Abort) byte write Translation fault"},
            },
            "frames": [
                {"imageOffset": 9280, "symbol": "descend", "symbolLocation": 40, "imageIndex": 1},
                {"imageOffset": 9312, "symbol": "build", "sourceFile": "tree.cpp", "sourceLine": 62, "imageIndex": 1},
                {"imageOffset": 77, "imageIndex": 7},
            ],
        },
    ],
    "usedImages": [
        {
            "source": "P",
            "arch": "arm64e",
            "base": 6442450944,
            "path": "/usr/lib/system/libsystem_kernel.dylib",
            "name": "libsystem_kernel.dylib",
        },
        {"source": "P", "arch": "arm64", "base": 4301994944, "path": "/opt/site-packages/tree/_tree.so", "name": "_tree.so"},
    ],
}


def report(head: dict[str, Any] | None = None, **changes: Any) -> str:
    return json.dumps({**HEAD, **(head or {})}) + "\n" + json.dumps({**BODY, **changes}, indent=2)


def test_a_crash_report_gives_the_stack_of_the_thread_that_crashed_and_the_fault() -> None:
    found = crash_report.parse(report())
    assert found is not None and found.pid == 1234
    assert [(frame.function, frame.library, frame.place, frame.trust) for frame in found.stack] == [
        ("descend", "_tree.so", "", "symbol"),
        ("build", "_tree.so", "tree.cpp:62", "symbol"),
        ("", "", "", "none"),
    ]
    assert [[frame.function for frame in stack] for stack in found.others] == [["__psynch_cvwait"]]
    assert found.said == ["abort() called"]
    fault = found.fault
    assert fault is not None
    assert (fault.source, fault.trap, fault.address, fault.access) == ("crash report", "segfault", 0x16F5FFFF0, "write")
    assert (fault.tid, fault.ip, fault.library, fault.mapping, fault.stack_distance_bytes) == (91, 4302004224, "_tree.so", "no access", -16)


@pytest.mark.parametrize(
    ("kind", "signal", "trap"),
    [
        ("EXC_BAD_INSTRUCTION", "SIGILL", "invalid opcode"),
        ("EXC_ARITHMETIC", "SIGFPE", "divide error"),
        ("EXC_BAD_ACCESS", "SIGBUS", "bus error"),
    ],
)
def test_each_exception_has_its_own_name(kind: str, signal: str, trap: str) -> None:
    found = crash_report.parse(report(exception={"type": kind, "signal": signal, "codes": ""}))
    assert found is not None and found.fault is not None and found.fault.trap == trap
    assert (found.fault.address is None) == (trap in ("invalid opcode", "divide error"))


def test_an_abort_is_no_fault() -> None:
    found = crash_report.parse(report(exception={"type": "EXC_CRASH", "signal": "SIGABRT"}))
    assert found is not None and found.fault is None and found.stack


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no report",
        report()[:700],
        report(head={"bug_type": "298"}),
        "[]\n{}",
        report(pid=None),
    ],
)
def test_what_is_no_complete_report_of_a_crash_is_none(text: str) -> None:
    assert crash_report.parse(text) is None


@pytest.mark.parametrize("changes", [{"threads": None}, {"faultingThread": 9}, {"usedImages": "x"}, {"exception": None}, {"threads": [{}]}])
def test_every_part_of_a_report_may_be_missing_or_of_another_form(changes: dict[str, Any]) -> None:
    found = crash_report.parse(report(**changes))
    assert found is not None and found.pid == 1234


def test_the_report_of_our_process_is_taken_and_no_other_and_no_older_one(tmp_path: Path) -> None:
    old, other, ours = (tmp_path / f"python3.11-{name}.ips" for name in ("old", "other", "ours"))
    old.write_text(report())
    os.utime(old, (1000, 1000))
    other.write_text(report(pid=99))
    assert crash_report.find([1234], since_unix_s=5000, folders=[tmp_path, tmp_path / "none"], wait_s=0) is None
    ours.write_text(report())
    found = crash_report.find([1234], since_unix_s=5000, folders=[tmp_path], wait_s=0)
    assert found is not None and (found[0].pid, found[1]) == (1234, ours.read_text())
    assert len(list(tmp_path.iterdir())) == 3


def test_the_attempt_gets_what_the_report_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same interface as for a core."""
    (tmp_path / "python3.11.ips").write_text(report())
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(crash_report, "FOLDERS", (tmp_path,))
    monkeypatch.setattr(crash_report.find, "__kwdefaults__", {"folders": (tmp_path,), "wait_s": 0})
    plan = cores.CorePlan(folder=tmp_path, why_not="no cores here")
    found = crash.examine(plan, [1234], {}, tmp_path, since_unix_s=0)
    assert found.stack[0].function == "descend" and found.fault is not None and found.missing == []
    assert (tmp_path / crash.STACKS_FILE).read_text() == report()
    none = crash.examine(plan, [77], {}, tmp_path, since_unix_s=0)
    assert [missing.what for missing in none.missing] == ["crash report"]


JETSAM = {
    "memoryStatus": {"pageSize": 16384},
    "largestProcess": "python3.11",
    "processes": [
        {"pid": 1234, "name": "python3.11", "rpages": 700000, "reason": "per-process-limit", "killDelta": 12},
        {"pid": 4, "name": "logd", "rpages": 300},
        "rubbish",
    ],
}


def test_jetsams_report_names_the_process_that_it_ended_and_why(tmp_path: Path) -> None:
    text = json.dumps({**HEAD, "bug_type": "298"}) + "\n" + json.dumps(JETSAM)
    assert crash_report.jetsam(text) == {1234: "per-process-limit"}
    assert crash_report.jetsam(report()) == {} == crash_report.jetsam("{}")
    (tmp_path / "JetsamEvent.ips").write_text(text)
    assert crash_report.killed_for_memory(0, [tmp_path]) == {1234: "per-process-limit"}


def event(message: str, process: str = "/kernel") -> str:
    return json.dumps(
        {"timestamp": "2026-03-07 15:50:00.123456-0800", "eventMessage": message, "processImagePath": process, "processID": 0}
    )


MEMORY = "memorystatus: killing_specific_process pid 1234 [python3.11] (per-process-limit 3) 6291456KB - memorystatus_available_pages: 2"
CRASHED = "Saved crash report for python3.11[1234] version 3.11 to python3.11-2026-03-07-155000.ips"


def test_lines_of_the_unified_log_are_found_by_the_pid_and_rubbish_is_left_out() -> None:
    others = [
        event("memorystatus: killing_specific_process pid 12345 [x] (vm-pageshortage 1)"),
        "{",
        "[]",
        json.dumps({"eventMessage": 7}),
        "",
    ]
    text = "\n".join([event(MEMORY), *others, event(CRASHED, "/usr/libexec/ReportCrash")])
    lines = unified_log.lines_for(text, {1234})
    assert lines == [f"[2026-03-07 15:50:00.123456-0800] kernel: {MEMORY}", f"[2026-03-07 15:50:00.123456-0800] ReportCrash: {CRASHED}"]


@pytest.mark.parametrize(
    "line",
    [
        MEMORY,
        "low swap: killing largest compressed process with pid 1234 (python3.11) and size 9000 MB",
        "[report] memorystatus: killing process 1234 (vm-pageshortage)",
        "Memory cgroup out of memory: Killed process 1234 (python) total-vm:1kB",
    ],
)
def test_a_kill_for_memory_names_its_victim_on_each_system(line: str) -> None:
    (match,) = OOM.finditer(line)
    assert [group for group in match.groups() if group] == ["1234"]


def test_where_the_log_cannot_be_asked_the_reason_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(crash_report, "FOLDERS", ())
    lines, missing = unified_log.UnifiedLog().lines_for({1234})
    assert lines == [] and missing is not None and missing.why.startswith("log show: ")
