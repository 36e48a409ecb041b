"""Hostile programs, one row each: the attempt has its facts, nothing is left, and the next attempt is as if nothing had been."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from matrix.records import Observation, read
from matrix.runner.launcher import Guardian
from matrix.runner.patience import Limits
from tests.matrix import machine_needs
from tests.matrix.command_line import alive
from tests.matrix.conftest import Observe

START = """
import os, pathlib, signal, subprocess, sys, time
here = pathlib.Path(os.environ["MATRIX_HOOK_DIR"])
temp = pathlib.Path(os.environ["TMPDIR"])
def note(pid): (here.parent.parent / "pids").open("a").write(f"{pid}\\n")
note(os.getpid())
print("step 1", flush=True)
"""
Check = Callable[[Observation, Path], bool]


def ended(status: int | str) -> Check:
    """By this exit status, or by this signal."""
    return lambda seen, _: (seen.exit.signal or seen.exit.returncode) == status


def hung(seen: Observation, _: Path) -> bool:
    return seen.exit.ended_by in ("idle", "wall")


def cut(seen: Observation, folder: Path) -> bool:
    """Its output was bounded."""
    size = (folder / "attempts" / seen.attempt / "stdout.log").stat().st_size
    return seen.dropped_output_bytes > 0 and size < 40 << 20


DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        code = "import os, sys, time; open(sys.argv[1], 'a').write(str(os.getpid()) + chr(10)); time.sleep(600)"
        os.execve(sys.executable, [sys.executable, "-S", "-c", code, str(here.parent.parent / "pids")], {})
    os._exit(0)
os.wait()
while len((here.parent.parent / "pids").read_text().split()) < 2: time.sleep(0.01)
"""
FORK_BOMB = """
import threading
deadline = time.time() + 1
while time.time() < deadline:
    try:
        if os.fork() == 0:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            deadline = time.time() + 600
    except OSError:
        time.sleep(0.05)
os._exit(4)
"""
ROWS: dict[str, tuple[str, Check, dict[str, Any]]] = {
    "forks as often as it can": (FORK_BOMB, ended(4), {"pids": 40}),
    "leaves a daemon without our mark": (DAEMON, ended(0), {}),
    "closes every descriptor": ("os.closerange(0, 4096); os._exit(5)", ended(5), {}),
    "ignores every signal": (
        "for n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError): pass\ntime.sleep(600)",
        hung, {"limits": Limits(wall_s=2)},
    ),
    "prints gigabytes": ("data = b'x' * (1 << 20)\nfor _ in range(300): os.write(1, data)", cut, {}),
    "prints anything": ("os.write(1, bytes(range(256)) * 2000 + b'\\x1b]0;title\\x07\\x1b[2J\\n'); os._exit(6)", ended(6), {}),
    "removes its working folder": ("os.chdir(pathlib.Path.cwd().parent); pathlib.Path('cwd').rmdir(); os._exit(7)", ended(7), {}),
    "takes the rights of its temp folder away": ("(temp / 'x').mkdir(); (temp / 'x').chmod(0); temp.chmod(0); os._exit(7)", ended(7), {}),
    "fills its temp folder": ("for n in range(2000): (temp / str(n)).write_bytes(b'x' * 1000)\nos._exit(7)", ended(7), {}),
    "makes a tree that is too deep to name": (
        "os.chdir(temp)\nfor _ in range(600): os.mkdir('d' * 50); os.chdir('d' * 50)\nos._exit(7)", ended(7), {},
    ),
    "has a name of other bytes": (
        "open('/proc/self/comm', 'wb').write(b'\\xe8\\xa8 ) R 1 (' ); time.sleep(0.6); os._exit(7)", ended(7), {},
    ),
    "stops itself": ("os.kill(os.getpid(), signal.SIGSTOP); time.sleep(600)", hung, {"limits": Limits(wall_s=3)}),
    "stops all of its session": ("os.killpg(0, signal.SIGSTOP)", hung, {"limits": Limits(wall_s=3)}),
    "asks to be traced, and is sent a signal": (
        "import ctypes; ctypes.CDLL(None).ptrace(0, 0, 0, 0); os.kill(os.getpid(), signal.SIGTERM); time.sleep(600)",
        ended("SIGTERM"), {},
    ),
    "asks its parent to end": ("os.kill(os.getppid(), signal.SIGINT); os.kill(os.getppid(), signal.SIGHUP); os._exit(7)", ended(7), {}),
    "links out of its folder": (
        "victim = here.parent.parent / 'victim'; victim.write_text('mine')\n"
        "for n in ('stacks.1.txt', 'x', 'core'): (here / n).symlink_to(victim)\nos._exit(7)",
        lambda seen, folder: (folder / "victim").read_text() == "mine", {},
    ),
    "has huge and strange file names": (
        "for name in (b'\\xff' * 200, b'a\\nb', b'-rf', b'\\x1b[2J', b'x' * 255):\n"
        "    open(os.fsencode(here) + b'/' + name, 'w').close()\nos._exit(7)",
        ended(7), {},
    ),
    "has files of another time": (
        "p = here / f'stacks.{os.getpid()}.txt'\n"
        "for t in (0, 1 << 40): p.touch(); os.utime(p, (t, t)); os.utime(here, (t, t))\nos._exit(7)",
        ended(7), {},
    ),
    "dies while it is a zombie's parent": ("for _ in range(50): os.fork() or os._exit(0)\nos.abort()", ended("SIGABRT"), {"core": False}),
    "sets its limits to nothing": (
        "import resource\n"
        "for n in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE): resource.setrlimit(n, (0, 0))\nos._exit(7)",
        ended(7), {},
    ),
    "has a namespace of its own": (
        "os.system('unshare -m sh -c \"mount -t tmpfs none /tmp; sleep 0.3\"'); os._exit(7)", ended(7), {"needs": machine_needs.mounts},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ROWS)
def test_a_program_that(what: str, observe: Observe, guardian: Guardian, tmp_path: Path) -> None:
    program, holds, more = ROWS[what]
    options = dict(more)
    if why := options.pop("needs", machine_needs.nothing)():
        pytest.skip(why)
    if options.get("pids") and (why := machine_needs.pids_groups()):
        pytest.skip(why)
    seen: Observation = observe(START + program, **options)
    assert holds(seen, tmp_path), (seen.exit, seen.output_tail[-3:])
    assert read(Observation, tmp_path / "attempts" / seen.attempt / "observation.json") == seen
    pids = [int(word) for word in (tmp_path / "pids").read_text().split()]
    (tmp_path / "cwd").mkdir(exist_ok=True)
    following: Observation = observe("import os; print('step 3'); print(len(os.listdir(os.environ['TMPDIR'])))")
    assert (following.exit.returncode, following.progress.last_step, following.output_tail[-1]) == (0, 3, "0")
    guardian.close()
    assert [pid for pid in pids if alive(pid)] == []
    assert not os.path.lexists(guardian.folder)
