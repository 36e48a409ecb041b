"""Limits of the system other than memory and room."""

from __future__ import annotations

from reproducers.faults.fault import Amount, Fault

FAMILY, ANY_TIME = "limits", "seconds:1"

DESCRIPTOR_LEAK = Fault(
    name="descriptor-leak",
    family=FAMILY,
    cause="resource_limit",
    about="""
From a moment on, every step opens files that nobody closes, until no more may be opened.

What is real: 16 descriptors (--amount) are opened at every moment and kept; at the limit (ulimit -n) the kernel refuses one with
EMFILE, and the call raises OSError: Too many open files.  What is arranged: that they are of /dev/null.
People meet it as tensors of DataLoader workers that are kept (a descriptor each), sockets of retries, or log files of every epoch.
""",
    dies="OSError: [Errno 24] Too many open files",
    when="print:3",
    platforms="Linux, macOS",
    needs="nothing",
    why_not=lambda: None,
    again=True,
    on_a_call=True,
    amount=Amount(default=16, text="descriptors each time"),
)

CPU_LIMIT = Fault(
    name="cpu-limit",
    family=FAMILY,
    cause="watchdog_or_time_limit",
    about="""
A limit on processor time, set by somebody else, runs out.

What is real: RLIMIT_CPU of the process is set to what it has used and 2 seconds (--amount) more; when they are used the kernel sends
SIGXCPU.  What is arranged: that it is set from inside, at the moment, where a login shell or a batch system sets it before the start.
""",
    dies="SIGXCPU once that much processor time was used, else not at all",
    when=ANY_TIME,
    platforms="Linux, macOS",
    needs="nothing",
    why_not=lambda: None,
    amount=Amount(default=2, text="seconds of processor time that are left"),
)

FAULTS = (DESCRIPTOR_LEAK, CPU_LIMIT)
