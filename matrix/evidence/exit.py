"""How a process ended, from its wait status."""

from __future__ import annotations

import os
import signal

from matrix.records import Exit

# A wrapper that ends with 128+17 has not seen a death by SIGCHLD: these do not end a process.
HARMLESS = {"SIGCHLD", "SIGCONT", "SIGSTOP", "SIGTSTP", "SIGTTIN", "SIGTTOU", "SIGURG", "SIGWINCH", "SIGINFO"}


def signal_name(number: int) -> str | None:
    """`SIGABRT`, `SIGRTMIN+3`; None when there is no such signal."""
    first, last = int(getattr(signal, "SIGRTMIN", 1 << 16)), int(getattr(signal, "SIGRTMAX", 0))
    if first <= number <= last:
        return f"SIGRTMIN+{number - first}" if number > first else "SIGRTMIN"
    try:
        return signal.Signals(number).name
    except ValueError:
        return None


def decode(status: int) -> Exit:
    """The fields that a wait status (os.waitpid, os.wait4) holds; `ended_by` and `start_error` are the caller's to fill.

    A shell, `timeout` or a container runtime reports the death of its child as 128+n: the signal is then read from
    there and `wrapped` says so.
    """
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return Exit(returncode=-number, signal=signal_name(number) or f"SIG{number}", core_dumped=os.WCOREDUMP(status))
    code = os.WEXITSTATUS(status)
    name = signal_name(code - 128) if code > 128 else None
    if name is None or name in HARMLESS:
        return Exit(returncode=code)
    return Exit(returncode=code, signal=name, wrapped=True)
