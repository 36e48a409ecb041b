"""Names that are no UTF-8, of any process on the machine: the kernel cuts a name at 15 bytes, often within a letter."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from matrix.evidence import signals
from matrix.kernel_text import kernel_bytes, kernel_text
from matrix.runner.leftovers import process_table
from tests.matrix.command_line import PATIENCE_S, ROOT, environment, observations, only_run, specification, wait_until

linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's names are read on Linux only")
CUT_NAME = "b-訓練モデル".encode()  # 17 bytes: its last letter is cut
NO_UTF8 = b"\xff\xfe) Z 1 ("  # and it looks like the fields that follow a name
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


def interpreter_for_nobody() -> str:
    """An interpreter that an ordinary user may start and that finds our packages; "": there is none, or we may not be that user."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        return ""
    starts_itself = "import subprocess, sys, numpy, pydantic, matrix.__main__; subprocess.run([sys.executable, '-c', ''], check=True)"
    for python in (sys.executable, "/usr/bin/python3"):
        if subprocess.run([*NOBODY, python, "-c", starts_itself], cwd="/", env=with_packages(), capture_output=True).returncode == 0:
            return python
    return ""


def with_packages() -> dict[str, str]:
    """The environment of a command, where another interpreter finds what ours has installed."""
    return {**environment(), "PYTHONPATH": os.pathsep.join([str(ROOT), *site.getsitepackages()])}


PYTHON = interpreter_for_nobody()
no_other_user = pytest.mark.skipif(not PYTHON, reason="no ordinary user may start Python with our packages here")
USERS = [pytest.param(False, id="this user"), pytest.param(True, id="an ordinary user", marks=no_other_user)]


def tool(*words: str, cwd: Path, ordinary: bool = False) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, as this user or as an ordinary one."""
    start = [*NOBODY, PYTHON] if ordinary else [sys.executable]
    argv = [*start, "-m", "matrix", *words]
    return subprocess.run(
        argv, cwd=cwd, env=with_packages(), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S
    )


def sleeper(folder: Path, name: bytes, *prefix: str) -> subprocess.Popen[bytes]:
    """Start a process of that name, which sleeps."""
    program = folder / os.fsdecode(name)
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    process = subprocess.Popen([*prefix, program, "600"])
    assert wait_until(lambda: kernel_bytes(f"/proc/{process.pid}/comm").strip() == name[:15])
    with pytest.raises(UnicodeDecodeError):
        kernel_bytes(f"/proc/{process.pid}/comm").decode()
    return process


@pytest.fixture
def strange(tmp_path: Path) -> Iterator[list[int]]:
    """Processes of such names."""
    processes = [sleeper(tmp_path, name) for name in (CUT_NAME, NO_UTF8)]
    yield [process.pid for process in processes]
    for process in processes:
        process.kill()
        process.wait()


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter and write to."""
    folder = Path(tempfile.mkdtemp(prefix="odd-names-"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@linux
def test_the_process_table_knows_them_and_their_parent(strange: list[int]) -> None:
    assert {(pid, os.getpid()) for pid in strange} <= set(process_table())


@linux
def test_their_names_are_read_with_replacement(strange: list[int]) -> None:
    assert all("\ufffd" in kernel_text(f"/proc/{pid}/comm") for pid in strange)


@linux
@pytest.mark.parametrize("ordinary", USERS)
def test_a_matrix_runs_beside_them(strange: list[int], ordinary: bool, place: Path) -> None:
    program = ["/bin/sh", "-c", "echo step 1; sleep 1.2; exit 3"]
    spec = specification(place, {"run": {"command": program}, "matrix": {"mode": [1]}, "search": {"max_runs": 1}})
    done = tool("run", str(spec), cwd=place, ordinary=ordinary)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert {seen.exit.returncode for seen in observations(only_run(place))} == {3}


@linux
@pytest.mark.parametrize("ordinary", USERS)
def test_a_run_is_watched_beside_them_and_a_child_of_such_a_name_is_seen(strange: list[int], ordinary: bool, place: Path) -> None:
    program = place / os.fsdecode(CUT_NAME)
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    done = tool("watch", "--", str(program), "1.5", cwd=place, ordinary=ordinary)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert [seen.exit.returncode for seen in observations(only_run(place))] == [0]


@linux
@pytest.mark.parametrize("ordinary", USERS)
def test_doctor_looks_at_a_machine_where_they_run(strange: list[int], ordinary: bool, place: Path) -> None:
    done = tool("doctor", cwd=place, ordinary=ordinary)
    assert "Traceback" not in done.stdout + done.stderr
    assert "UnicodeDecodeError" not in done.stdout + done.stderr
    assert done.returncode in (0, 1), done.stderr


@linux
@pytest.mark.parametrize("ordinary", USERS)
@pytest.mark.slow
def test_the_autopsy_of_it_is_written(ordinary: bool, place: Path) -> None:
    process = sleeper(place, CUT_NAME, *(NOBODY if ordinary else []))
    try:
        done = tool("explain", "--pid", str(process.pid), cwd=place, ordinary=ordinary)
        assert "Traceback" not in done.stderr
        assert done.returncode == 0, done.stderr
    finally:
        process.kill()
        process.wait()


@linux
def test_who_sent_a_signal_has_a_name_though_it_is_no_utf8(place: Path) -> None:
    """A shell of such a name kills the program: its name is read while it lives."""
    shell = place / os.fsdecode(CUT_NAME)
    shutil.copy("/bin/sh", shell)
    command = [str(shell), "-c", "/bin/sleep 60 & sleep 1; kill -KILL $!; wait $!; sleep 1.2; exit 137"]
    spec = specification(place, {"run": {"command": command}, "matrix": {"mode": [1]}, "search": {"max_runs": 1}})
    done = tool("run", str(spec), cwd=place)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    seen = observations(only_run(place))
    assert {each.exit.signal for each in seen} == {"SIGKILL"}
    if not signals.watch().why_not:
        assert all("\ufffd" in each.signals_sent[0].from_name for each in seen)
