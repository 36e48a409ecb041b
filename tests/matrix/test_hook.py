"""The hook inside real children: what it records, and that the program does not notice it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

HOOK = Path(__file__).parents[2] / "matrix/runner/hook"
CHILDREN = Path(__file__).parents[1] / "children"
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc or uses real-time signals")


def environment(folder: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(HOOK), more.pop("PYTHONPATH", "")]))
    inherited = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    return {**inherited, "PYTHONPATH": path, "MATRIX_HOOK_DIR": str(folder), **more}


def run(folder: Path, *argv: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *argv], env=environment(folder, **more), capture_output=True, text=True, timeout=60)


def records(folder: Path, kind: str) -> list[dict[str, Any]]:
    lines = (folder / "hook.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def test_environment_changes_name_the_module_and_keep_no_secret(tmp_path: Path) -> None:
    run(tmp_path, str(CHILDREN / "changes_environment.py")).check_returncode()
    found = [(r["name"], r["value"], r["removed"], r["module"]) for r in records(tmp_path, "env")]
    assert found == [
        ("KMP_DUPLICATE_LIB_OK", "True", False, "some_library"),
        ("OMP_NUM_THREADS", "1", False, "__main__"),
        ("WANDB_API_KEY", None, False, "__main__"),
        ("CUDA_AUTH_TOKEN", None, False, "__main__"),
        ("MKL_NUM_THREADS", "2", False, "__main__"),
        ("LD_DEBUG_OUTPUT", "x", False, "__main__"),
        ("HOME", None, True, "__main__"),
    ]
    assert "very secret" not in (tmp_path / "hook.jsonl").read_text()


def test_its_folder_is_not_on_the_import_path_of_the_program(tmp_path: Path) -> None:
    done = run(tmp_path, str(CHILDREN / "changes_environment.py"))
    assert str(HOOK) not in done.stdout


def test_a_wrapper_that_becomes_the_program_leaves_it_the_main_process(tmp_path: Path) -> None:
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''])"
    run(tmp_path, "-c", f"import os, sys; os.execv(sys.executable, [sys.executable, '-c', {program!r}])")
    assert [r["main"] for r in records(tmp_path, "hello")] == [True, True, False]


@linux
def test_forks_tell_the_threads_alive_and_the_start_method(tmp_path: Path) -> None:
    run(tmp_path, str(CHILDREN / "forks_with_threads.py")).check_returncode()
    found = [(r["threads"], r["names"], r["start_method"], r["module"]) for r in records(tmp_path, "fork")]
    assert found == [(2, ["MainThread", "prefetch"], "fork", "__main__"), (2, ["MainThread", "prefetch"], None, "__main__")]
    hellos = records(tmp_path, "hello")
    assert [(r["main"], r["start"], r["helper"]) for r in hellos if r["helper"] != "resource_tracker"] == [
        (True, "exec", None),
        (False, "fork", None),
        (False, "exec", "spawn"),
        (False, "fork", None),
    ]
    assert {r["ppid"] for r in hellos[1:]} == {hellos[0]["pid"]}


def test_an_exit_is_recorded_with_its_status_and_place(tmp_path: Path) -> None:
    assert run(tmp_path, "-c", "import sys\ndef leave(): sys.exit('no data')\nleave()").returncode == 1
    (record,) = records(tmp_path, "exit")
    assert (record["call"], record["status"], record["where"]) == ("sys.exit", "no data", "<string>:2 in leave")
    assert record["installed"] is False
    assert len(records(tmp_path, "end")) == 1


def test_an_exit_that_an_installed_package_calls_is_told_from_one_of_the_program(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "codec.py"
    package.parent.mkdir()
    package.write_text("import os\ndef decode(): os._exit(4)\n")
    assert run(tmp_path, "-c", f"import sys; sys.path.insert(0, {str(package.parent)!r}); import codec; codec.decode()").returncode == 4
    (record,) = records(tmp_path, "exit")
    assert record["installed"] is True and record["where"].endswith("codec.py:2 in decode")


def test_os_exit_is_recorded_and_there_is_no_end(tmp_path: Path) -> None:
    assert run(tmp_path, "-c", "import os; os._exit(7)").returncode == 7
    assert [(r["call"], r["status"]) for r in records(tmp_path, "exit")] == [("os._exit", "7")]
    assert records(tmp_path, "end") == []
    assert list(tmp_path.glob("stacks.*.txt")) == []


def test_an_exit_in_native_code_leaves_neither_exit_nor_end(tmp_path: Path) -> None:
    assert run(tmp_path, str(CHILDREN / "exits_in_c.py")).returncode == 0
    assert len(records(tmp_path, "hello")) == 1
    assert records(tmp_path, "exit") + records(tmp_path, "end") == []


@linux
def test_a_normal_end_leaves_a_copy_of_the_memory_map(tmp_path: Path) -> None:
    run(tmp_path, "-c", "import ctypes").check_returncode()
    (hello,) = records(tmp_path, "hello")
    assert "/libc" in (tmp_path / f"maps.{hello['pid']}.txt").read_text()


def test_the_stacks_of_a_forked_process_go_to_its_own_file(tmp_path: Path) -> None:
    done = run(tmp_path, str(CHILDREN / "segfaults_in_a_fork.py"))
    forked, status = map(int, done.stdout.split())
    assert os.WTERMSIG(status) == signal.SIGSEGV
    (main,) = [r["pid"] for r in records(tmp_path, "hello") if r["main"]]
    assert (tmp_path / f"stacks.{main}.txt").read_text() == ""
    assert "in read_nothing" in (tmp_path / f"stacks.{forked}.txt").read_text()
    assert "Fatal Python error" not in done.stderr


def test_a_program_that_reuses_our_descriptor_number_keeps_its_file_clean(tmp_path: Path) -> None:
    run(tmp_path, str(CHILDREN / "closes_descriptors.py"), str(tmp_path / "checkpoint")).check_returncode()
    assert (tmp_path / "checkpoint").read_bytes() == b""


@linux
def test_the_announced_signal_dumps_the_stacks_of_a_process_that_hangs(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, CHILDREN / "waits_for_a_signal.py"], env=environment(tmp_path), stdout=subprocess.PIPE)
    assert child.stdout
    try:
        child.stdout.readline()
        (hello,) = records(tmp_path, "hello")
        os.kill(child.pid, hello["dump_signal"])
        stacks = tmp_path / f"stacks.{child.pid}.txt"
        deadline = time.monotonic() + 20
        while "in <module>" not in stacks.read_text() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "in wait_for_ever" in stacks.read_text()
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def test_a_sitecustomize_of_the_user_still_runs(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import os; os.environ['OMP_WAIT_POLICY'] = 'passive'; MINE = 1\n")
    done = run(tmp_path, "-c", "import sitecustomize; print(sitecustomize.MINE)", PYTHONPATH=str(own))
    assert done.stdout == "1\n"
    assert [r["module"] for r in records(tmp_path, "env")] == ["sitecustomize"]


def test_an_error_in_the_users_sitecustomize_is_reported_as_without_the_hook(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import no_such_module\n")
    plain = {**os.environ, "PYTHONPATH": str(tmp_path)}
    without = subprocess.run([sys.executable, "-c", "print(1)"], env=plain, capture_output=True, text=True)
    hooked = run(tmp_path, "-c", "print(1)", PYTHONPATH=str(tmp_path))
    assert "no_such_module" in without.stderr
    assert (hooked.stdout, hooked.stderr) == (without.stdout, without.stderr)


def test_functions_that_were_replaced_can_still_be_sent_to_another_process(tmp_path: Path) -> None:
    code = "import os, pickle, sys; print([pickle.loads(pickle.dumps(f)) is f for f in (os._exit, sys.exit, os.putenv, os.unsetenv)])"
    assert run(tmp_path, "-c", code).stdout == "[True, True, True, True]\n"


def test_the_first_file_that_a_program_opens_has_the_same_number(tmp_path: Path) -> None:
    code = "import os; print(os.open(os.devnull, os.O_RDONLY))"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run(tmp_path, "-c", code).stdout == plain.stdout


def test_a_folder_that_cannot_be_written_is_no_error_of_the_program(tmp_path: Path) -> None:
    done = run(tmp_path / "absent", "-c", "import os; os.environ['A'] = 'b'; print(os.environ['A'])")
    assert (done.returncode, done.stdout, done.stderr) == (0, "b\n", "")


def test_an_isolated_interpreter_does_not_load_it(tmp_path: Path) -> None:
    run(tmp_path, "-I", "-c", "pass").check_returncode()
    assert list(tmp_path.iterdir()) == []


def test_the_start_method_probe_stands_in_for_fork_and_for_no_other_choice_of_the_program(tmp_path: Path) -> None:
    code = (
        "import multiprocessing as m; print(m.get_start_method(), *[m.get_context(k).get_start_method() for k in ('fork', 'forkserver')])"
    )
    assert run(tmp_path, "-c", code, MATRIX_START_METHOD="spawn").stdout == "spawn spawn forkserver\n"


def test_it_imports_nothing_that_takes_long(tmp_path: Path) -> None:
    code = "import sys; print(sorted(sys.modules))"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    added = set(eval(run(tmp_path, "-c", code).stdout)) - set(eval(plain.stdout))
    assert added <= {"sitecustomize", "faulthandler", "atexit", "_signal", "time", "resource", "__future__"}


# ------------------------------------------------------------------ files
def test_files_are_recorded_once_for_each_use_and_packages_by_name(tmp_path: Path) -> None:
    program, folder = tmp_path / "program", tmp_path / "attempt"
    program.mkdir()
    folder.mkdir()
    (program / "part.py").write_text("")
    (program / "in.txt").write_text("")
    (program / "job.py").write_text(
        "import part, pathlib, click\n"
        "for _ in range(3): open('in.txt').close(); pathlib.Path('out.txt').write_text('x')\n"
        "import importlib; importlib.reload(part)\n"
    )
    done = subprocess.run([sys.executable, "job.py"], cwd=program, env=environment(folder), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    found = [(Path(record["path"]).name, record["use"]) for record in records(folder, "file")]
    assert sorted(found) == [("in.txt", "read"), ("job.py", "read"), ("out.txt", "write"), ("part.py", "read")]
    assert "click" in [record["name"] for record in records(folder, "package")]


def test_a_million_files_do_not_fill_the_record_and_leave_room_for_others(tmp_path: Path) -> None:
    program = "import os\nfor n in range(2100):\n  try: open(f'/nowhere/{n}')\n  except OSError: pass\nos.environ['OMP_NUM_THREADS'] = '1'"
    run(tmp_path, "-c", program).check_returncode()
    assert [record["use"] for record in records(tmp_path, "file")].count("more") == 1
    assert len(records(tmp_path, "file")) == 2001 and len(records(tmp_path, "env")) == 1


def test_a_file_that_cannot_be_opened_has_the_same_traceback_as_without_the_hook(tmp_path: Path) -> None:
    code = "import pathlib\npathlib.Path('/nowhere').read_text()"
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run(tmp_path, "-c", code).stderr == plain.stderr != ""


def test_the_last_things_that_an_interpreter_does_may_open_files(tmp_path: Path) -> None:
    code = (
        "import atexit, os, sys\nclass Late:\n  def __del__(self, opened=os.open, write=os.write):\n"
        "    opened('/dev/null', 0); write(1, b'closed ')\n"
        "late = Late(); sys.late = Late(); atexit.register(lambda: open('/dev/null').close())"
    )
    done = run(tmp_path, "-c", code)
    plain = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert "closed" in done.stdout
