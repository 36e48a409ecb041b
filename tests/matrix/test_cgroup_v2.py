"""The places that people start the tool in where cgroup version 2 holds the controllers; `python -m tests.vm` has such a machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from matrix.diagnosis import judge
from matrix.runner import cgroup
from matrix.runner.cgroup_home import REST
from matrix.runner.patience import Limits
from tests.matrix.command_line import TOOL, alive, environment, kill, left_by, observations, only_run, specification, verdict
from tests.matrix.command_line import wait_until as wait_so_long
from tests.matrix.conftest import Observe
from tests.matrix.test_doctor_machine import child, found

MIB = 1 << 20
ROOT = Path("/sys/fs/cgroup")
ASKS = str(Path(__file__).parents[1] / "children" / "asks_for_a_group.py")
READS = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")  # or the interpreter in root's home could not be started
NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *READS)
SLOW = Limits(wall_s=900)  # a guest may have little of a processor
KILLED = {"status": -9, "kills": [1, 1], "isolation": "cgroup-v2", "limit": 48 * MIB, "pids": 20, "cpu": 0.9, "why": "", "left": False}


def _why_not() -> str:
    if os.geteuid() != 0 or shutil.which("setpriv") is None or shutil.which("unshare") is None:
        return "needs root, setpriv and unshare, to arrange groups"
    names = ROOT / "cgroup.controllers"
    if not names.exists() or not {"memory", "pids", "cpu"} <= set(names.read_text().split()):
        return "version 2 holds no memory controller here; python -m tests.vm has a machine where it does"
    return "" if os.access(ROOT, os.W_OK) and not (ROOT / "cgroup.type").exists() else "not at the root of the hierarchy"


pytestmark = pytest.mark.skipif(bool(_why_not()), reason=_why_not() or "-")


@pytest.fixture
def outer() -> Iterator[Path]:
    """An empty group that hands its controllers on, as a slice of systemd does; what is in it afterwards is removed."""
    folder = ROOT / f"test-{os.getpid()}"
    for controller in ("memory", "pids", "cpu"):
        (ROOT / "cgroup.subtree_control").write_text(f"+{controller}")
    folder.mkdir()
    for controller in ("memory", "pids", "cpu"):
        (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    yield folder
    cgroup.Group(folder, "cgroup-v2").end()
    assert not folder.exists()


@pytest.fixture
def inner(outer: Path) -> Path:
    """The group that the tool is started in, as a login session."""
    (outer / "session").mkdir()
    return outer / "session"


def ask(folder: Path, *prefix: str) -> dict[str, Any]:
    """Start the tool's part that makes groups in that group."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = [sys.executable, ASKS, str(folder), *prefix, sys.executable, ASKS]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def given(folder: Path) -> None:
    """To nobody, as systemd gives a user his part."""
    for name in ("", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"):
        os.chown(folder / name, 65534, 65534)


def in_container(*more: str) -> Sequence[str]:
    """In a cgroup namespace whose root is the group it is started in, with its own mount of it."""
    return ("unshare", "--cgroup", "--mount", *more, "sh", "-c", f'umount {ROOT} && mount -t cgroup2 none {ROOT} && exec "$@"', "sh")


def test_in_a_login_session_of_root_groups_are_made_beside_it(outer: Path, inner: Path) -> None:
    told = ask(inner)
    assert told == {**told, **KILLED, "before": "", "home": str(outer)}
    assert told["own"] == told["moved_to"] == f"0::/{outer.name}/session"


def test_a_limit_of_the_own_group_is_not_left_behind(outer: Path, inner: Path) -> None:
    """All in it move one level down, and the limit holds for the tool and its children as before."""
    (inner / "memory.max").write_text(str(40 * MIB))
    bystander = subprocess.Popen([sys.executable, ASKS, str(inner), "sleep", "60"])
    try:
        told = ask(inner)
        where = Path(f"/proc/{bystander.pid}/cgroup").read_text().strip()
    finally:
        bystander.kill()
        bystander.wait()
    assert told == {**told, **KILLED, "before": "", "home": str(inner), "limit": 40 * MIB, "kills": told["kills"]}
    assert told["moved_to"] == where == f"0::/{outer.name}/session/{REST}"


def test_as_root_of_a_container_groups_are_made_in_it_now_and_at_the_next_start(inner: Path) -> None:
    told = ask(inner, *in_container())
    assert told == {**told, **KILLED, "before": "", "own": "0::/", "home": str(ROOT), "moved_to": f"0::/{REST}"}
    told = ask(inner / REST)
    assert told == {**told, **KILLED, "home": str(inner), "moved_to": told["own"]}


def test_what_is_of_another_container_is_not_moved_and_nothing_else_is(inner: Path) -> None:
    """A process without a number here: then there is the watchdog."""
    (inner / "pids.max").write_text("100")
    stranger = subprocess.Popen([sys.executable, ASKS, str(inner), "sleep", "60"])
    try:
        told = ask(inner, *in_container("--pid", "--fork", "--mount-proc"))
        assert "one is of another container" in told["why"]
        assert told["moved_to"] == told["own"] and "home" not in told
        assert not (inner / REST).exists()
    finally:
        stranger.kill()
        stranger.wait()


def test_a_user_with_a_part_of_his_own_has_groups_and_one_without_is_told_why(outer: Path, inner: Path) -> None:
    told = ask(inner, *NOBODY)
    assert told == {"before": told["why"], "why": told["why"], "own": told["own"], "moved_to": told["own"]}
    assert f"cgroup-v2: {inner}: Permission denied; cgroup-v2: {outer}: Permission denied" in told["why"]
    given(inner)
    told = ask(inner, *NOBODY)
    assert told == {**told, **KILLED, "home": str(inner), "moved_to": f"0::/{outer.name}/session/{REST}"}


def test_a_user_whose_programs_have_a_group_each_has_groups_beside_them(outer: Path, inner: Path) -> None:
    given(outer)
    given(inner)
    told = ask(inner, *NOBODY)
    assert told == {**told, **KILLED, "home": str(outer), "moved_to": told["own"]}


def test_what_is_handed_on_nowhere_is_told_with_the_reason(outer: Path, inner: Path) -> None:
    """Threads share a group there, and memory is of processes."""
    (outer / "cgroup.subtree_control").write_text("-memory")
    (outer / "pids.max").write_text("max")
    (ROOT / "cgroup.subtree_control").write_text("-memory")
    try:
        told = ask(inner, *NOBODY)
    finally:
        (ROOT / "cgroup.subtree_control").write_text("+memory")
    assert "home" not in told and told["why"].startswith(f"cgroup-v2: {inner}: ")


NESTED = f"""
    import os, subprocess, sys
    from pathlib import Path
    own = Path("/sys/fs/cgroup" + Path("/proc/self/cgroup").read_text().strip().removeprefix("0::"))
    nested, rest = own / "nested", own / "rest"
    nested.mkdir(), rest.mkdir()
    (rest / "cgroup.procs").write_text("0")
    (own / "cgroup.subtree_control").write_text("+memory")
    (nested / "memory.max").write_text(str({48 * MIB}))
    grows = "open(sys.argv[1], 'w').write('0')\\nx = []\\nwhile True: x.append(bytearray(4 << 20))"
    status = subprocess.run([sys.executable, "-c", "import sys\\n" + grows, str(nested / "cgroup.procs")]).returncode
    {{tidies_up}}
    sys.exit(status == -9 and 3)
"""


@pytest.mark.parametrize("tidies_up", ["pass", "nested.rmdir()"], ids=["kept", "removed"])
def test_a_kernel_oom_in_a_group_that_the_child_made_below_ours_is_seen_also_when_it_was_removed(observe: Observe, tidies_up: str) -> None:
    seen = observe(NESTED.format(tidies_up=tidies_up), memory=512 * MIB, limits=SLOW)
    assert (seen.exit.returncode, seen.memory.oom_kills) == (3, 1)
    assert judge.outcome(seen).signature == "SIGKILL:memory"


def test_a_group_that_the_kernel_ends_as_a_whole_is_ended_for_memory(observe: Observe) -> None:
    """memory.oom.group: the parent that would have said something dies with its worker."""
    program = """
        import subprocess, sys
        from pathlib import Path
        own = Path("/sys/fs/cgroup" + Path("/proc/self/cgroup").read_text().strip().removeprefix("0::"))
        (own / "memory.oom.group").write_text("1")
        subprocess.run([sys.executable, "-c", "x = []\\nwhile True: x.append(bytearray(4 << 20))"])
        print("unreached", flush=True)
    """
    seen = observe(program, memory=96 * MIB, limits=SLOW)
    assert (seen.exit.signal, seen.output_tail) == ("SIGKILL", [])
    assert (seen.memory.oom_kills or 0) >= 1
    assert judge.outcome(seen).signature == "SIGKILL:memory"


def test_a_group_ends_at_once_however_fast_it_forks(outer: Path) -> None:
    group = cgroup.Group(outer / "bomb", "cgroup-v2", pids_path=outer / "bomb")
    group.path.mkdir()
    (group.path / "pids.max").write_text("60")
    code = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"
    bomb = subprocess.Popen([sys.executable, ASKS, str(group.path), sys.executable, "-I", "-S", "-c", code])
    while (group.pids_refused() or 0) < 1:
        assert bomb.poll() is None
    assert group.kill() >= 50
    assert group.pids() == set()
    assert bomb.wait() == -9
    group.remove()
    assert not group.path.exists()


def test_a_limit_quota_or_bound_of_an_outer_group_is_that_of_the_inner_one(outer: Path, inner: Path) -> None:
    for name, text in (("memory.max", 900 * MIB), ("memory.high", 700 * MIB), ("cpu.max", "50000 100000"), ("pids.max", 77)):
        (outer / name).write_text(str(text))
    group = cgroup.Group(inner, "cgroup-v2", pids_path=inner)
    group.cpu_path = inner
    assert (group.memory_limit(), group.slowed_from(), group.cpu_share()) == (900 * MIB, 700 * MIB, 0.5)


def test_the_doctor_names_what_slows_and_whether_groups_can_be_made(outer: Path, inner: Path) -> None:
    (outer / "memory.high").write_text(str(700 * MIB))
    (outer / "cpu.max").write_text("50000 100000")
    group = cgroup.Group(inner, "cgroup-v2")
    environment = {**os.environ, "OMP_NUM_THREADS": "8"}
    told = child("memory-limit", "cpu-quota", "memory-limits-possible", joins=group, env=environment)
    assert found(told) == {"memory-limit": "warning", "cpu-quota": "warning"}
    assert told["found"]["memory-limit"]["summary"].startswith("from 700 MiB on (memory.high)")
    told = child("memory-limits-possible", joins=group, wrapper=NOBODY)
    assert told["found"]["memory-limits-possible"]["summary"] == f"{inner} cannot be written to; {outer} cannot be written to"


def test_what_is_left_of_a_limit_is_what_others_in_the_same_slice_have_not_used(outer: Path, inner: Path) -> None:
    (outer / "memory.max").write_text(str(250 * MIB))
    group = cgroup.Group(inner, "cgroup-v2")
    assert found(child("memory-limit", joins=group)) == {"memory-limit": "warning"}
    (outer / "another").mkdir()
    holds = f"x = bytearray(b'x') * ({190 * MIB}); print('holds', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, ASKS, str(outer / "another"), sys.executable, "-c", holds], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout and other.stdout.readline() == b"holds\n"
        told = child("memory-limit", joins=group)
        other.kill()
    assert found(told) == {"memory-limit": "error"}
    assert told["found"]["memory-limit"]["summary"].startswith("250 MiB for all processes of this group")


# ------------------------------------------------------------------ whole commands, started in such a group
def tool(folder: Path, *words: str, cwd: Path) -> subprocess.Popen[str]:
    argv = [sys.executable, ASKS, str(folder), *TOOL, *words]
    return subprocess.Popen(
        argv, cwd=cwd, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def waited(tool: subprocess.Popen[str], *, status: int = 0) -> tuple[str, str]:
    """What it printed until it ended as expected, and its errors."""
    said, errors = tool.communicate()
    assert tool.returncode == status, errors
    return said, errors


@pytest.mark.parametrize("limit", [None, 900 * MIB], ids=["session", "container"])
def test_what_outlives_a_watched_program_goes_to_the_recorders_group(outer: Path, inner: Path, tmp_path: Path, limit: int | None) -> None:
    """Not to the one around ours: that hands controllers on, so the kernel lets no process into it."""
    if limit:
        (inner / "memory.max").write_text(str(limit))
    leaves = "import subprocess as s; print(s.Popen(['sleep', '600'], stdout=s.DEVNULL, stderr=s.DEVNULL).pid)"
    recorder = tool(inner, "watch", "--", sys.executable, "-c", leaves, cwd=tmp_path)
    said, _ = waited(recorder)
    pid = int(said)
    try:
        assert alive(pid)
        assert Path(f"/proc/{pid}/cgroup").read_text() == f"0::/{outer.name}/session{f'/{REST}' if limit else ''}\n"
        assert [*outer.glob("watch-*"), *inner.glob("watch-*")] == []
    finally:
        os.kill(pid, 9)


UNTIL_TOLD = """
import glob, time
kept, end = [], time.monotonic() + 300
while time.monotonic() < end and not any("(memory.high): " in open(path).read() for path in glob.glob("runs/*/*/watch.log")):
    if len(kept) < 100:
        kept.append(bytearray(b"x") * (4 << 20))
    print("step", len(kept), flush=True)
    time.sleep(0.1)
"""


def test_watch_tells_before_the_kernel_slows_a_program_down(inner: Path, tmp_path: Path) -> None:
    (inner / "memory.high").write_text(str(400 * MIB))
    recorder = tool(inner, "watch", "--", sys.executable, "-c", UNTIL_TOLD, cwd=tmp_path)
    _, errors = waited(recorder)
    assert "WARNING: memory of the cgroup until the kernel slows it down (memory.high): " in errors
    log = (only_run(tmp_path) / "watch.log").read_text()
    assert "limits: memory 400.0 MiB, then the kernel slows it down (memory.high)" in log


@pytest.mark.parametrize("limit", [None, 900 * MIB], ids=["session", "container"])
def test_what_a_tool_left_that_was_killed_with_its_guardian_goes_at_the_next_start(inner: Path, tmp_path: Path, limit: int | None) -> None:
    if limit:
        (inner / "memory.max").write_text(str(limit))
    program = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(600)"
    content = {"run": {"command": [sys.executable, "-c", program]}, "matrix": {"mode": ["a", "b"]}, "search": {"max_runs": 1}}
    specification(tmp_path, {**content, "limits": {"memory": "64MiB"}, "executor": {"jobs": 1}})
    first = tool(inner, "run", "spec.yaml", cwd=tmp_path)
    outputs = "runs/*/*/attempts/*/stdout.log"
    assert wait_so_long(lambda: any(path.read_text().endswith("\n") for path in tmp_path.glob(outputs)))
    (pid,) = (int(path.read_text().split()[1]) for path in tmp_path.glob(outputs))
    kill(first, guardian=True)
    home = inner if limit else inner.parent
    assert alive(pid) and left_by(first.pid) and list(home.glob(f"mx-{first.pid}-*"))
    (tmp_path / "next").mkdir()
    specification(tmp_path / "next", {**content, "run": {"command": ["true"]}})
    second = tool(inner / REST if limit else inner, "run", "spec.yaml", cwd=tmp_path / "next")  # as one of its processes starts another
    waited(second)
    assert (left_by(first.pid), left_by(second.pid), list(home.glob("mx-*")), alive(pid)) == ([], [], [], False)


def test_a_program_that_meets_the_limit_of_the_container_around_the_tool_is_ended_for_memory(inner: Path, tmp_path: Path) -> None:
    """The specification sets none: the counter of our group tells of it all the same."""
    (inner / "memory.max").write_text(str(300 * MIB))
    grows = "import time\nx = []\nfor step in range(1, 200):\n x.append(bytearray(b'x') * (4 << 20)); print('step', step); time.sleep(0.05)"
    content = {"run": {"command": [sys.executable, "-c", grows]}, "matrix": {"mode": ["a", "b"]}, "search": {"max_runs": 1}}
    specification(tmp_path, {**content, "executor": {"jobs": 1}})
    ran = tool(inner, "run", "spec.yaml", cwd=tmp_path)
    waited(ran)
    (seen,) = observations(only_run(tmp_path))
    assert (seen.exit.signal, seen.memory.oom_kills, seen.memory.isolation) == ("SIGKILL", 1, "cgroup-v2")
    assert judge.outcome(seen).signature == "SIGKILL:memory"
    assert verdict(only_run(tmp_path)).ranking[0].cause.startswith("memory")


GROWS_ON_WHEN_TOLD = f"""
import glob, time
from matrix.runner import cgroup
around = cgroup.Group(cgroup.own_group().path.parent, "cgroup-v2")
kept, end, step = [], time.monotonic() + 300, 0
while True:
    told = any("WARNING: memory of the cgroup: " in open(path).read() for path in glob.glob("runs/*/*/watch.log"))
    if told or time.monotonic() > end or around.used_bytes() < 0.93 * {220 * MIB}:
        kept.append(bytearray(b"x") * (2 << 20))
    step += 1
    print("step", step, flush=True)
    time.sleep(0.05)
"""


def test_the_limit_of_the_container_is_told_before_the_kernel_ends_the_program(inner: Path, tmp_path: Path) -> None:
    """It is that of a group around the program's own, which the recorder uses too."""
    (inner / "memory.max").write_text(str(220 * MIB))
    recorder = tool(inner, "watch", "--", sys.executable, "-c", GROWS_ON_WHEN_TOLD, cwd=tmp_path)
    _, errors = waited(recorder, status=137)
    (seen,) = observations(only_run(tmp_path))
    assert (seen.memory.oom_kills, seen.memory.limit_bytes) == (1, 220 * MIB)
    assert verdict(only_run(tmp_path)).ranking[0].cause.startswith("memory")
    assert errors.index("WARNING: memory of the cgroup") < errors.index("it died after step")
