"""Shell completion, typed at a terminal: each shell reads its script as its help says, and takes what is offered."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from matrix.completion.command import HOW
from tests.matrix.command_line import environment

STARTS = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], ""),
    "zsh": (["zsh", "-f", "-i"], "autoload -Uz compinit; compinit -u -D; "),
    "fish": (["fish", "--no-config", "--interactive"], ""),
}
# The installed command: it completes, and prints every other command line that reaches it instead of running it.
PROGRAM = """#!{python}
import os, sys
if "_MATRIX_COMPLETE" in os.environ or sys.argv[1] == "completion":
    from matrix.__main__ import main
    sys.exit(main())
print("<" + "|".join(sys.argv[1:]) + ">")
"""
PATIENCE_S = 300.0  # each completion starts a Python, and the machine may be loaded


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("bin", "home", "runs/death/20260101-000000/attempts/0001-aa", "configs"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("job.yaml", "notes.txt", "configs/big one.yml"):
        (tmp_path / name).touch()
    program = tmp_path / "bin" / "matrix"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    return tmp_path


class Terminal:
    """What a shell shows, and what is typed to it."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.shown = ""

    def enter(self, keys: str, awaited: str) -> None:
        """Type, and read until that was shown."""
        self.shown = ""
        os.write(self.descriptor, keys.encode())
        until = time.monotonic() + PATIENCE_S
        while awaited not in self.shown:
            assert time.monotonic() < until and self._read(), f"{awaited!r} was not shown after {keys!r}, but {self.shown!r}"

    def _read(self) -> bool:
        """False at the end of the shell."""
        if select.select([self.descriptor], [], [], 1.0)[0]:
            try:
                got = os.read(self.descriptor, 1 << 16)
            except OSError:  # what Linux says when nobody has the terminal open any more
                return False
            self.shown += got.decode(errors="replace")
            return bool(got)
        return True


def _owned() -> None:
    """The terminal at standard input becomes the one that the session is controlled by: fish refuses to start without."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextmanager
def terminal(shell: str, folder: Path) -> Iterator[Terminal]:
    """The shell at a prompt, with the completion that its help tells to put into its start-up file."""
    argv, first = STARTS[shell]
    inner, outer = pty.openpty()
    env = {**environment(), "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}", "HOME": str(folder / "home"), "TERM": "xterm"}
    child = subprocess.Popen(argv, cwd=folder, env=env, stdin=outer, stdout=outer, stderr=outer, start_new_session=True, preexec_fn=_owned)
    os.close(outer)
    try:
        shown = Terminal(inner)
        ready = first + HOW[shell].partition("#")[0].strip()
        shown.enter(f"{ready}; echo re''ady\r", "ready\r\n")
        yield shown
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        os.close(inner)


@pytest.mark.slow
@pytest.mark.parametrize("shell", list(STARTS))
def test_at_a_terminal_each_shell_completes_commands_options_files_runs_and_attempts(shell: str, folder: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    with terminal(shell, folder) as typed:
        typed.enter("matrix ru\tjo\t\r", "<run|job.yaml>")
        typed.enter("matrix plan conf\tb\t\r", "<plan|configs/big one.yml>")
        typed.enter("matrix plan 'configs/b\t\r", "<plan|configs/big one.yml>")
        typed.enter("matrix run job.yaml --resu\t\r", "<run|job.yaml|--resume>")
        typed.enter("matrix replay dea\t00\t\r", "<replay|death|0001-aa>")
        typed.enter("matrix init -- python not\t\r", "<init|--|python|notes.txt>")
