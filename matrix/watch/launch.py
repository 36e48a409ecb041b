"""Starting the user's command as a shell would have: in the user's environment and folder, its streams followed on their way.

The recorder is its parent.  It gets a session of its own, so that a lost connection does not reach it, and, where any of the user's
streams is a terminal, terminals of its own in their place.  Standard output and error stay apart: each has its own.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import resource
import select
import shutil
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from matrix.evidence import own_limits
from matrix.runner.attempt import HOOK
from matrix.runner.cgroup import Group
from matrix.runner.launcher import Child, Ended, inherited
from matrix.runner.tree import MARK
from matrix.watch import keeper
from matrix.watch.terminal import Outlet, Terminal, inner, resize

PIPE_BYTES = 1 << 20
WAIT_MS = 50.0  # before a slow reader of the user's is asked again
END_OF_FILE = b"\x04"  # as typed
HANDED_ON = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)


class NotStarted(Exception):
    """The command cannot be started: it is not there, or is no program."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Stream:
    """One way out of the program."""

    name: str  # stdout | stderr; "": only what a terminal echoes
    reader: int
    outlet: Outlet


class OwnChild(Child):
    """A child of this very process, followed by a descriptor of it."""

    def __init__(self, process: subprocess.Popen[bytes], core_bytes: int) -> None:
        super().__init__(_descriptor_of(process.pid))
        self.pid = process.pid
        self.limits = {"RLIMIT_CORE": [core_bytes, -1]}
        self._process = process

    def read_status(self) -> None:
        """To be called when the descriptor is readable; does not wait."""
        pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
        if pid:
            self._process.returncode = os.waitstatus_to_exitcode(status)
            scale = 1 if sys.platform == "darwin" else 1024
            used = usage.ru_utime + usage.ru_stime
            switches = {"preempted": usage.ru_nivcsw, "yielded": usage.ru_nvcsw}
            self.ended = Ended(status=status, maxrss_bytes=usage.ru_maxrss * scale, cpu_s=used, **switches)


def _descriptor_of(pid: int) -> int:
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return os.open(os.devnull, os.O_RDONLY)  # always readable: then the child is asked at every turn


class Launched:
    """The running command with its streams."""

    def __init__(self, argv: Sequence[str], env: dict[str, str], group: Group | None, core_bytes: int | None) -> None:
        """`argv[0]`: as `find` gave it; `core_bytes`: of a core file, None: as the user has it.  Raises NotStarted."""
        self.terminal = Terminal()
        self.streams: list[Stream] = []
        self._inner: list[int] = []  # our ends of the program's terminals, its controlling one first
        theirs = self._open()
        try:
            process = subprocess.Popen(
                argv,
                env=env,
                stdin=theirs[0],
                stdout=theirs[1],
                stderr=theirs[2],
                close_fds=False,  # the user's own further descriptors reach it; ours are closed by exec
                start_new_session=True,
                preexec_fn=self._before_exec(group, core_bytes),
            )
        except (OSError, subprocess.SubprocessError) as problem:
            raise NotStarted(f"{argv[0]} cannot be started: {getattr(problem, 'strerror', None) or problem}") from problem
        finally:
            for descriptor in {one for one in theirs if one is not None}:
                os.close(descriptor)
        self._keeper = Keeper({reader: number for _, reader, number in self._readers})
        outlets = {number: Outlet(number) for number in (1, 2)}  # threads not before the fork
        self._errors = outlets[2]
        self.wrote = [False, True]  # whether it draws lines anew, as a bar does; whether its last line is complete
        self.streams = [Stream(name=name, reader=reader, outlet=outlets[number]) for name, reader, number in self._readers]
        self.child: Child = OwnChild(process, resource.getrlimit(resource.RLIMIT_CORE)[0] if core_bytes is None else core_bytes)
        self._by_reader = {stream.reader: stream for stream in self.streams}
        self._interrupted_s: float | None = None
        self._asked_s: float | None = None
        self._handlers: dict[int, object] = {}

    # -------------------------------------------------------------- streams
    def _open(self) -> tuple[int | None, int, int]:
        """The program's ends of its standard streams; None: ours, as it is."""
        self._readers: list[tuple[str, int, int]] = []
        control = None
        if self.terminal.descriptor is not None:
            ours, control = self._new_terminal()
            self._readers.append(("stdout" if os.isatty(1) else "stderr" if os.isatty(2) else "", ours, 1 if os.isatty(1) else 2))
        ends = []
        for number, name in ((1, "stdout"), (2, "stderr")):
            if control is not None and name == self._readers[0][0]:
                ends.append(control)
            elif os.isatty(number):
                ours, theirs = self._new_terminal()
                self._readers.append((name, ours, number))
                ends.append(theirs)
            else:
                ours, theirs = _pipe()
                self._readers.append((name, ours, number))
                ends.append(theirs)
        return control if self.terminal.reads else None, ends[0], ends[1]

    def _new_terminal(self) -> tuple[int, int]:
        ours, theirs = inner(self.terminal.size())
        self._inner.append(ours)
        return ours, theirs

    def _before_exec(self, group: Group | None, core_bytes: int | None) -> Callable[[], None]:
        control = None if not self._inner else 0 if self.terminal.reads else 1 if os.isatty(1) else 2

        def go() -> None:  # between fork and exec, before this process has any thread; the streams are in place by now
            if control is not None:
                fcntl.ioctl(control, termios.TIOCSCTTY, 0)
            for folder in group.folders if group else ():
                with contextlib.suppress(OSError):
                    (folder / "cgroup.procs").write_text("0")
            for name, pair in own_limits.limits_of_children().items():
                with contextlib.suppress(OSError, ValueError):
                    resource.setrlimit(getattr(resource, name), pair)
            if core_bytes is not None:
                with contextlib.suppress(OSError, ValueError):
                    resource.setrlimit(resource.RLIMIT_CORE, (core_bytes, resource.getrlimit(resource.RLIMIT_CORE)[1]))

        return go

    def readers(self) -> dict[int, str]:
        return {stream.reader: stream.name for stream in self.streams}

    def take(self, reader: int, data: bytes) -> None:
        """On to the user."""
        self.wrote[1] = data[-1:] == b"\n"
        self.wrote[0] |= b"\r" in data[:-1]
        self._by_reader[reader].outlet.put(data)

    def waits(self, reader: int) -> bool:
        """Whether the user's side is full: then the program waits as it would without us."""
        return self._by_reader[reader].outlet.full

    def is_seen(self, reader: int) -> bool:
        """Whether a terminal shows it at once."""
        return self._by_reader[reader].outlet.is_terminal

    def polled(self) -> Iterator[tuple[str, bytes]]:
        return iter(())

    def left(self) -> bool:
        return False

    def interrupted_s(self) -> float | None:
        """When the user last pressed Ctrl-C, by the monotonic clock."""
        return self._interrupted_s

    def asked_s(self) -> float | None:
        """When it was first asked to end, by SIGTERM."""
        return self._asked_s

    def typed(self) -> int | None:
        """Where keys come from, while this process is in the foreground."""
        if self.terminal.reads and self._inner and self.terminal.is_ours:
            self.terminal.set_mode()
            return 0
        return None

    def say(self, line: str) -> None:
        """A line of our own between the program's; a bar that is cut through is drawn again by its next update."""
        data = f"{line}\n".encode(errors="backslashreplace")
        if not os.isatty(2):
            self._errors.put(data)
            return
        between = b"" if self.wrote[1] else b"\r\x1b[K" if self.wrote[0] else b"\n"
        self.wrote[1] = True
        self._errors.put(between + data)

    def only_pass_on(self) -> None:
        """Pass the program's output and the user's keys on until the program has ended, and record nothing."""
        poll, ended = select.poll(), set[int]()
        while not self.child.over:
            free = {reader for reader in self._by_reader if reader not in ended and not self.waits(reader)}
            keyboard = self.typed()
            wanted = {self.child.status_fd, *free, *([] if keyboard is None else [keyboard])}
            for descriptor in wanted:
                poll.register(descriptor, select.POLLIN)
            ready = poll.poll(WAIT_MS)
            for descriptor in wanted:
                poll.unregister(descriptor)
            for descriptor, _ in ready:
                if descriptor == self.child.status_fd:
                    self.child.read_status()
                elif descriptor in free and not self._pass_on(descriptor):
                    ended.add(descriptor)
                elif descriptor == keyboard:
                    self.type()
        for reader in set(self._by_reader) - ended:
            while self._pass_on(reader, at_end=True):
                pass

    def _pass_on(self, reader: int, *, at_end: bool = False) -> bool:
        """Pass on what is there; False when there will be no more, or, `at_end`, when nothing is there."""
        try:
            data = os.read(reader, keeper.READ_BYTES)
        except BlockingIOError:
            return not at_end
        except OSError:  # a terminal whose other side is closed
            return False
        self.take(reader, data)
        return bool(data)

    def type(self) -> bool:
        """What the user typed goes to the program; False when nothing more will come."""
        try:
            data = os.read(0, 4096)
        except OSError:
            return False
        if data and self._inner:
            with contextlib.suppress(OSError):
                os.write(self._inner[0], data)
        return bool(data)

    # -------------------------------------------------------------- signals
    def take_signals(self) -> None:
        """Until `give_back_signals`, those that are meant for the program reach it.  What is ignored (nohup) stays so."""
        for number in HANDED_ON:
            self._take(number, self._hand_on)
        self._take(signal.SIGHUP, self._hung_up)
        self._take(signal.SIGWINCH, self._resized)
        self._take(signal.SIGTSTP, self._stop)

    def _take(self, number: signal.Signals, handler: Callable[[int, object], None]) -> None:
        if signal.getsignal(number) != signal.SIG_IGN:
            self._handlers[number] = signal.signal(number, handler)

    def give_back_signals(self) -> None:
        for number, handler in self._handlers.items():
            if number != signal.SIGHUP:  # a second one comes from the shell, and the result is still to be written
                signal.signal(number, handler)  # type: ignore[arg-type]
        self._handlers = {}
        self.terminal.restore()

    def _hand_on(self, number: int, _: object) -> None:
        """Keys reach the whole group, as from a terminal; another signal was sent to one process."""
        if number == signal.SIGINT:
            self._interrupted_s = time.monotonic()
        if number == signal.SIGTERM and self._asked_s is None:
            self._asked_s = time.monotonic()
        pid = self.child.pid
        if pid and self.child.ended is None:
            with contextlib.suppress(OSError):
                (os.killpg if number in (signal.SIGINT, signal.SIGQUIT) else os.kill)(pid, number)

    def _hung_up(self, _number: int, _frame: object) -> None:
        """The terminal is gone, or is going; the program has its own and hears nothing of it, but nobody will type any more."""
        if not self.terminal.lost and self.terminal.reads and self._inner:
            with contextlib.suppress(OSError):
                os.write(self._inner[0], END_OF_FILE)
        self.terminal.lost = True

    def _resized(self, _number: int, _frame: object) -> None:
        if size := self.terminal.size():
            for ours in self._inner:
                resize(ours, size)

    def _stop(self, _number: int, _frame: object) -> None:
        """Ctrl-Z: the program stops too, until the user goes on."""
        pid = self.child.pid or 0
        self.terminal.restore()
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGCONT)
        self.terminal.set_mode()

    def close(self) -> None:
        self.terminal.restore()
        for outlet in {self._errors, *(stream.outlet for stream in self.streams)}:
            outlet.close()
        self._keeper.take_over([stream.reader for stream in self.streams])
        for stream in self.streams:
            os.close(stream.reader)
        self.child.close()


class Keeper:
    """A process that passes the program's output on when this one is gone, also after a SIGKILL (`keeper.py`)."""

    def __init__(self, ways: dict[int, int]) -> None:
        """`ways`: each reader and the descriptor that its output goes to."""
        theirs, self._control = os.pipe()
        script = [sys.executable, "-I", "-S", keeper.__file__, str(theirs), *(f"{reader}:{out}" for reader, out in ways.items())]
        self._process: subprocess.Popen[bytes] | None = None
        try:
            with contextlib.suppress(OSError):  # without processes to spare the run is watched without it
                self._process = subprocess.Popen(script, stdin=subprocess.DEVNULL, pass_fds=[theirs, *ways], start_new_session=True)
        finally:
            os.close(theirs)

    def take_over(self, readers: Sequence[int]) -> None:
        """Let it pass on what processes that outlive the program still write; it is waited for where there is none."""
        os.close(self._control)
        if self._process and all(_is_over(reader) for reader in readers):
            self._process.wait()


def _is_over(reader: int) -> bool:
    """True if no process has the other end open any more."""
    poll = select.poll()
    poll.register(reader, select.POLLIN)
    return any(event & select.POLLHUP and not event & select.POLLIN for _, event in poll.poll(0))


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # the user's pipe quota may be spent
            fcntl.fcntl(read, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return read, write


def find(word: str) -> str:
    """The program that a shell would start.  Raises NotStarted."""
    found = shutil.which(word)
    if found is None:
        where = "" if os.sep in word else " on PATH"
        is_there = os.sep in word and Path(word).exists()
        why = "is not executable" if is_there else f"was not found{where}"
        hint = f"write `python {word}`" if is_there and word.endswith(".py") else "check its name"
        raise NotStarted(f"{word}: {why}; {hint}")
    return str(Path(found).absolute())


def environment(token: str, folder: Path, *, hook: bool) -> dict[str, str]:
    """The user's own, with our mark, the hook, and output that is written at once."""
    env = {**inherited(), MARK: token}
    env.setdefault("PYTHONUNBUFFERED", "1")
    if hook:
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HOOK), env.get("PYTHONPATH")]))
        env["MATRIX_HOOK_DIR"] = str(folder.resolve())
    return env
