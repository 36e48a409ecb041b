"""Wait statuses of real children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from matrix.evidence.exit import decode
from matrix.records import Exit


def status_of(*argv: str) -> int:
    pid = os.posix_spawn(argv[0], argv, {**os.environ, "PYTHONPATH": ""})
    return os.waitpid(pid, 0)[1]


def die_by(number: int) -> tuple[str, ...]:
    code = f"import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); os.kill(os.getpid(), {number})"
    return (sys.executable, "-c", code)


@pytest.mark.parametrize("name", ["SIGABRT", "SIGSEGV", "SIGKILL", "SIGBUS", "SIGTERM"])
def test_a_signal_is_named(name: str) -> None:
    number = int(signal.Signals[name])
    assert decode(status_of(*die_by(number))) == Exit(returncode=-number, signal=name)


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="no real-time signals here")
def test_a_real_time_signal_is_named_by_its_distance_from_the_first() -> None:
    number = int(signal.SIGRTMIN) + 3
    assert decode(status_of(*die_by(number))) == Exit(returncode=-number, signal="SIGRTMIN+3")


@pytest.mark.parametrize("code", [0, 1, 2, 128, 145, 255])
def test_a_plain_exit_code_names_no_signal(code: int) -> None:
    assert decode(status_of("/bin/sh", "-c", f"exit {code}")) == Exit(returncode=code)


def test_a_shell_that_reports_its_childs_death_is_a_wrapper() -> None:
    assert decode(status_of("/bin/sh", "-c", "sh -c 'kill -ABRT $$'; exit $?")) == Exit(returncode=134, signal="SIGABRT", wrapped=True)


def test_the_core_flag_is_read() -> None:
    flagged = signal.SIGSEGV | 0x80  # the kernel sets it also when a later step fails to write the file
    assert decode(flagged) == Exit(returncode=-11, signal="SIGSEGV", core_dumped=True)


def test_a_wait_status_agrees_with_subprocess() -> None:
    argv = die_by(int(signal.SIGUSR1))
    assert decode(status_of(*argv)).returncode == subprocess.run(argv).returncode
